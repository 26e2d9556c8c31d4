"""The rules of `verify`: a healthy execution breaks none, and each corruption breaks its own."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model.events import EventType
from penstock.model.examinations import Examination, Examined, Place
from penstock.model.remedies import REMEDIES
from penstock.model.retelling import Retelling, Wrong
from penstock.model.states import State, next_state, possible_events
from penstock.model.verifying import findings_in

ID = "0197a000-0000-7000-8000-000000000001"
OTHER = "0197a000-0000-7000-8000-000000000002"
LAST = "ffffffff-ffff-ffff-ffff-ffffffffffff"
OWNER = "worker-1"
OBSERVER = "worker-2"
PLACE = Place(ID, "mail", 3, suspect=False, task="send")


class Entry(NamedTuple):
    type: str
    worker_id: str | None = None
    data: str | None = None


def by(event: EventType, worker_id: str | None = OWNER, data: str | None = None) -> Entry:
    return Entry(event, worker_id, data)


def claimed(attempt: int | None, worker_id: str | None = OWNER) -> Entry:
    data = None if attempt is None else f'{{"attempt":{attempt}}}'
    return Entry(EventType.CLAIMED, worker_id, data)


CREATED = Entry(EventType.CREATED)
READY = Entry(EventType.MARKED_READY)
LATER = Entry(EventType.SCHEDULED)
RERUN = Entry(EventType.RERUN)
CANCELLED = Entry(EventType.CANCELLED)
STARTED = by(EventType.STARTED)
COMPLETED = by(EventType.COMPLETED)
FAILED = by(EventType.FAILED)
RETRY = by(EventType.RETRY_SCHEDULED)
RELEASED = by(EventType.RELEASED)
SUSPENDED = by(EventType.SUSPENDED)
LOST = '{"lost_worker":"worker-1","started":true,"crashes":1}'
RECOVERED = by(EventType.RECOVERED, OBSERVER, LOST)
ABANDONED = by(EventType.ABANDONED, OBSERVER, LOST)
ENQUEUED = (CREATED, READY)


def told(*entries: Entry) -> Retelling:
    retelling = Retelling()
    for entry in entries:
        retelling.add(*entry)
    return retelling


def execution(state: State, *entries: Entry, attempt: int = 0, fence: int = 0) -> Examination:
    """An execution that is as it should be; what is not obvious from its state is given."""
    running = state is State.RUNNING
    return Examination(
        id=ID,
        root_id=ID,
        task="send",
        queue="mail",
        priority=3,
        state=state,
        sub_state="active" if running else None,
        attempt=attempt,
        retries=0,
        crashes=0,
        suspect=False,
        fence=fence,
        worker_id=OWNER if running else None,
        has_due_time=state is State.SCHEDULED,
        finished=state in {State.COMPLETED, State.FAILED, State.SKIPPED, State.CANCELLED},
        serial=None,
        ahead=None,
        serial_is_known=True,
        will_be_released=False,
        twin=None,
        places=(PLACE,) if state is State.READY else (),
        told=told(*entries),
    )


def examined(
    *executions: Examination,
    strays: tuple[Place, ...] = (),
    remains: Mapping[str, Retelling] | None = None,
) -> Examined:
    return Examined(
        executions=executions,
        strays=strays,
        remains=remains or {},
        events=0,
        until=LAST,
        next=None,
    )


def codes(everything: Examined) -> list[Wrong]:
    return [finding.code for finding in findings_in(everything)]


ready = execution(State.READY, *ENQUEUED)
running = execution(State.RUNNING, *ENQUEUED, claimed(1), attempt=1, fence=1)
completed = execution(
    State.COMPLETED, *ENQUEUED, claimed(1), STARTED, COMPLETED, attempt=1, fence=2
)
failed = execution(State.FAILED, *ENQUEUED, claimed(1), STARTED, FAILED, attempt=1, fence=2)
scheduled = execution(State.SCHEDULED, CREATED, LATER)
cancelled = execution(State.CANCELLED, *ENQUEUED, CANCELLED)
behind = replace(execution(State.WAITING, CREATED), serial="line", ahead=OTHER)
crashed = replace(
    execution(State.READY, *ENQUEUED, claimed(1), STARTED, RECOVERED, attempt=1, fence=2),
    crashes=1,
    suspect=True,
    places=(PLACE._replace(suspect=True),),
)

HEALTHY: Mapping[str, Examination] = {
    "ready": ready,
    "running": running,
    "completed": completed,
    "failed": failed,
    "scheduled": scheduled,
    "cancelled": cancelled,
    "waiting behind another": behind,
    "waiting for word that was left": replace(behind, ahead=None, will_be_released=True),
    "the head of a serial": replace(ready, serial="line"),
    "recovered after a crash": crashed,
    "recovered before it had started": replace(
        execution(State.READY, *ENQUEUED, claimed(1), RECOVERED, attempt=0, fence=2),
        suspect=True,
        places=(PLACE._replace(suspect=True),),
    ),
    "abandoned": replace(
        execution(State.FAILED, *ENQUEUED, claimed(1), STARTED, ABANDONED, attempt=1, fence=2),
        crashes=1,
    ),
    "retried": replace(
        execution(State.SCHEDULED, *ENQUEUED, claimed(1), STARTED, RETRY, attempt=1, fence=2),
        retries=1,
    ),
    "released": execution(State.READY, *ENQUEUED, claimed(1), STARTED, RELEASED, fence=2),
    "deferred for long": execution(
        State.SCHEDULED, *ENQUEUED, claimed(1), STARTED, by(EventType.SCHEDULED), fence=2
    ),
    "deferred in memory": replace(
        execution(
            State.RUNNING,
            *ENQUEUED,
            claimed(1),
            STARTED,
            by(EventType.DEFERRED),
            attempt=1,
            fence=1,
        ),
        sub_state="deferred",
    ),
    "suspended until a signal comes": replace(
        execution(State.WAITING, *ENQUEUED, claimed(1), STARTED, SUSPENDED, fence=2),
        awaits="signal:approved",
    ),
    "suspended at the head of a serial": replace(
        execution(State.WAITING, *ENQUEUED, claimed(1), STARTED, SUSPENDED, fence=2),
        awaits="signal:approved",
        serial="line",
    ),
    "rerun, with fresh counters": execution(
        State.READY, *ENQUEUED, claimed(1), RETRY, READY, claimed(2), FAILED, RERUN, READY,
        attempt=2, fence=4,
    ),
    "rerun after retention took its history": execution(
        State.RUNNING, RERUN, READY, claimed(8), attempt=8, fence=15
    ),
    "rerun and not claimed since": execution(State.READY, RERUN, READY, attempt=7, fence=14),
    "without the history that retention took": replace(completed, told=told()),
    "cancelled instead of released": execution(
        State.CANCELLED, *ENQUEUED, claimed(1), by(EventType.CANCELLED), attempt=0, fence=2
    ),
    "cancelled by its handler": execution(
        State.CANCELLED, *ENQUEUED, claimed(1), by(EventType.CANCELLED), attempt=1, fence=2
    ),
    "cancelled instead of retried": replace(
        execution(
            State.CANCELLED,
            *ENQUEUED,
            claimed(1),
            by(EventType.CANCELLED, OWNER, '{"error":{"type":"E","message":"m"},"delay":60.0}'),
            attempt=1,
            fence=2,
        ),
        retries=1,
    ),
    "cancelled instead of recovered": replace(
        execution(
            State.CANCELLED,
            *ENQUEUED,
            claimed(1),
            STARTED,
            by(EventType.CANCELLED, OBSERVER, LOST),
            attempt=1,
            fence=2,
        ),
        crashes=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_what_operations_leave_behind_is_no_finding(name: str) -> None:
    assert findings_in(examined(HEALTHY[name])) == []


CORRUPTIONS: Mapping[str, tuple[Examination, list[Wrong]]] = {
    # --- the row and its history ---
    "a state changed by hand": (replace(running, state="completed", sub_state=None, worker_id=None,
                                        finished=True), [Wrong.STATE_DIFFERS]),
    "a state that there is not": (replace(cancelled, state="lost", finished=False),
                                  [Wrong.STATE_DIFFERS]),
    "an event too many": (replace(completed, told=told(*ENQUEUED, READY, claimed(1), COMPLETED)),
                          [Wrong.ILLEGAL_STEP]),
    "an event that is not ours": (
        replace(completed, told=told(*ENQUEUED, claimed(1), Entry("task.vanished"), COMPLETED)),
        [Wrong.UNKNOWN_EVENT]),
    "data that cannot be read": (
        replace(running, told=told(*ENQUEUED, Entry(EventType.CLAIMED, OWNER, "{"))),
        [Wrong.UNKNOWN_EVENT]),
    "no beginning": (replace(running, told=told(READY, claimed(1))), [Wrong.NO_BEGINNING]),
    "no history of a live one": (replace(ready, told=told()), [Wrong.NO_HISTORY]),
    "no history of a failed one": (replace(failed, told=told()), [Wrong.NO_HISTORY]),
    "another root": (replace(ready, root_id=OTHER), [Wrong.FOREIGN_ROOT]),
    # --- runs ---
    "two owners at once": (
        replace(running, worker_id=OBSERVER,
                told=told(*ENQUEUED, claimed(1), claimed(2, OBSERVER))),
        [Wrong.CLAIMED_TWICE]),
    "a run after the end": (
        replace(completed, told=told(*ENQUEUED, claimed(1), COMPLETED, claimed(2), COMPLETED)),
        [Wrong.UNEXPLAINED_RUN]),
    "a start without a claim": (
        replace(completed, told=told(*ENQUEUED, STARTED, COMPLETED)), [Wrong.UNEXPLAINED_RUN]),
    "a claim by nobody": (replace(running, told=told(*ENQUEUED, claimed(1, None))),
                          [Wrong.WORKER_UNNAMED]),
    "an end by nobody": (
        replace(completed, told=told(*ENQUEUED, claimed(1), by(EventType.COMPLETED, None))),
        [Wrong.WORKER_UNNAMED]),
    "an end by a worker that did not have it": (
        replace(completed, told=told(*ENQUEUED, claimed(1), by(EventType.COMPLETED, OBSERVER))),
        [Wrong.WRONG_WORKER]),
    "recovered from a worker that did not have it": (
        replace(crashed, told=told(*ENQUEUED, claimed(1, "worker-3"),
                                   by(EventType.STARTED, "worker-3"), RECOVERED)),
        [Wrong.WRONG_WORKER]),
    # --- counters ---
    "attempt": (replace(running, attempt=2), [Wrong.ATTEMPT_DIFFERS]),
    "attempt in a claim": (replace(running, attempt=5, told=told(*ENQUEUED, claimed(5))),
                           [Wrong.ATTEMPT_DIFFERS]),
    "attempt after a rerun": (
        replace(HEALTHY["rerun after retention took its history"], attempt=9),
        [Wrong.ATTEMPT_DIFFERS]),
    "retries": (replace(completed, retries=1), [Wrong.RETRIES_DIFFER]),
    "crashes": (replace(crashed, crashes=0), [Wrong.CRASHES_DIFFER]),
    "fence": (replace(running, fence=3), [Wrong.FENCE_DIFFERS]),
    "fence without the whole history": (
        replace(HEALTHY["rerun after retention took its history"], fence=14),
        [Wrong.FENCE_DIFFERS]),
    # --- columns that go with the state ---
    "running for nobody": (replace(running, worker_id=None), [Wrong.WORKER_MISSING]),
    "running for another": (replace(running, worker_id=OBSERVER), [Wrong.WRONG_WORKER]),
    "ready with a worker": (replace(ready, worker_id=OWNER), [Wrong.WORKER_LEFT]),
    "a sub-state without running": (replace(ready, sub_state="active"),
                                    [Wrong.SUB_STATE_DIFFERS]),
    "running without a sub-state": (replace(running, sub_state=None), [Wrong.SUB_STATE_DIFFERS]),
    "deferred without an event": (replace(running, sub_state="deferred"),
                                  [Wrong.SUB_STATE_DIFFERS]),
    "final and not finished": (replace(completed, finished=False), [Wrong.FINISHED_AT_DIFFERS]),
    "finished and not final": (replace(ready, finished=True), [Wrong.FINISHED_AT_DIFFERS]),
    "scheduled for never": (replace(scheduled, has_due_time=False), [Wrong.NEVER_DUE]),
    # --- outbox, keys, serials ---
    "ready and not in the outbox": (replace(ready, places=()), [Wrong.NOT_IN_OUTBOX]),
    "in the outbox and not ready": (replace(running, places=(PLACE,)), [Wrong.IN_OUTBOX]),
    "twice in the outbox": (replace(ready, places=(PLACE, PLACE)), [Wrong.TWICE_IN_OUTBOX]),
    "in the outbox of another queue": (replace(ready, places=(PLACE._replace(queue="press"),)),
                                       [Wrong.OUTBOX_DIFFERS]),
    "in the outbox with another priority": (replace(ready, places=(PLACE._replace(priority=0),)),
                                            [Wrong.OUTBOX_DIFFERS]),
    "in the outbox as another task": (replace(ready, places=(PLACE._replace(task="call"),)),
                                      [Wrong.OUTBOX_DIFFERS]),
    "in the outbox as a suspect": (replace(ready, places=(PLACE._replace(suspect=True),)),
                                   [Wrong.OUTBOX_DIFFERS]),
    "a key that two have": (replace(ready, twin=OTHER), [Wrong.KEY_TWICE]),
    "a serial that is stuck": (replace(behind, ahead=None), [Wrong.STUCK_SERIAL]),
    "a serial out of turn": (replace(ready, serial="line", ahead=OTHER), [Wrong.OUT_OF_TURN]),
    "a serial without its row": (replace(behind, serial_is_known=False), [Wrong.SERIAL_UNKNOWN]),
    "waiting for nothing": (replace(behind, serial=None), [Wrong.WAITS_FOR_NOTHING]),
    "suspended for nothing": (
        replace(HEALTHY["suspended until a signal comes"], awaits=None),
        [Wrong.WAITS_FOR_NOTHING]),
}  # fmt: skip


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_corruption_is_found_and_nothing_else_is_said(name: str) -> None:
    corrupted, expected = CORRUPTIONS[name]
    (finding,) = findings_in(examined(corrupted))
    assert [finding.code] == expected
    assert finding.execution_id == ID
    assert finding.wrong
    assert finding.remedy.endswith((".", "'"))  # a sentence, or a statement


def test_a_place_in_the_outbox_needs_an_execution() -> None:
    assert codes(examined(strays=(PLACE,))) == [Wrong.OUTBOX_ORPHAN]


@pytest.mark.parametrize("ending", [COMPLETED, by(EventType.CANCELLED)])
def test_the_history_of_what_retention_removed_is_no_finding(ending: Entry) -> None:
    assert codes(examined(remains={ID: told(*ENQUEUED, claimed(1), ending)})) == []


@pytest.mark.parametrize("ending", [STARTED, FAILED, RELEASED])
def test_the_history_of_what_retention_does_not_remove_is_one(ending: Entry) -> None:
    remains = {ID: told(*ENQUEUED, claimed(1), ending)}
    assert codes(examined(remains=remains)) == [Wrong.LOST_EXECUTION]


def test_a_removed_execution_still_has_to_have_had_a_possible_history() -> None:
    remains = {ID: told(*ENQUEUED, claimed(1), claimed(2), COMPLETED)}
    assert codes(examined(remains=remains)) == [Wrong.CLAIMED_TWICE]


def test_everything_that_can_be_wrong_has_a_remedy_and_is_planted_here_or_in_the_tables() -> None:
    assert set(REMEDIES) == set(Wrong)
    of_runs = {Wrong.STUCK_IN_RUN, Wrong.BEFORE_ITS_TURN, Wrong.AGAINST_ITS_RULE}
    of_runs |= {code for code in Wrong if code.startswith(("run-", "element-", "child-"))}
    planted = {code for _, expected in CORRUPTIONS.values() for code in expected}
    # Those that lie between rows are planted above, and below where rows are put together; those
    # of runs in a file of their own.
    assert set(Wrong) - planted - of_runs == {
        Wrong.OUTBOX_ORPHAN,
        Wrong.LOST_EXECUTION,
        Wrong.FOREIGN_EVENT,
    }


def test_a_history_may_be_long_without_a_trace_of_it_in_memory() -> None:
    retelling = told(*ENQUEUED, claimed(1))
    for _ in range(10_000):
        retelling.add(EventType.DEFERRED, OWNER)
        retelling.add(EventType.RESUMED, OWNER)
        retelling.add("task.unheard_of", OWNER)
    assert retelling.events == 30_003
    assert len(retelling.faults) == 1


@given(st.data())
def test_a_history_that_the_table_allows_has_no_fault(data: st.DataObject) -> None:
    retelling, state = Retelling(), None
    for _ in range(data.draw(st.integers(1, 30))):
        event = data.draw(st.sampled_from(sorted(possible_events(state))))
        after = next_state(state, event)
        worker_id = OWNER if State.RUNNING in {state, after} else None
        retelling.add(event, worker_id)
        state = after
    assert retelling.faults == {}
    assert retelling.state is state
    assert retelling.fence % 2 == (state is State.RUNNING)


@given(st.lists(st.sampled_from(sorted(EventType)), min_size=1, max_size=20))
def test_a_history_that_the_table_forbids_has_a_fault(events: list[EventType]) -> None:
    # Only a rerun may come first: retention has removed what was before it.
    state = State.COMPLETED if events[0] is EventType.RERUN else None
    retelling, possible = Retelling(), True
    for event in events:
        retelling.add(event, OWNER)
        possible = possible and event in possible_events(state)
        state = next_state(state, event) if possible else None
    assert retelling.counts == possible
