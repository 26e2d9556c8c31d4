"""From facts to reasons: the same facts, the same sentences."""

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from penstock.engine.reasons import Code, Reason
from penstock.engine.why import explain, in_state_since
from penstock.model.events import Event, EventType
from penstock.model.executions import Snapshot
from penstock.model.states import State, SubState
from penstock.model.waiting import Load, Standing, Waiting
from penstock.model.workers import Peer, WorkerInfo

NOW = datetime(2030, 1, 31, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LEASE = timedelta(seconds=15)
BOOM = {"type": "ValueError", "message": "boom"}

ABSENT: Any = {one.name: None for one in structs.fields(Snapshot) if "None" in str(one.type)}
SNAPSHOT = Snapshot(
    id="e1",
    root_id="e1",
    task="send",
    args="{}",
    queue="mail",
    priority=0,
    state=State.READY,
    attempt=0,
    retries=0,
    crashes=0,
    max_crashes=3,
    suspect=False,
    cancel_requested=False,
    fence=0,
    created_at=NOW - MINUTE,
    **ABSENT,
)
FACTS = Waiting(
    at=NOW,
    snapshot=SNAPSHOT,
    history=(),
    due_in=None,
    head=None,
    predecessor=None,
    ahead_in_serial=0,
    paused_at=None,
    ahead={},
    workers=(),
    loads=(),
)


def facts(state: State = State.READY, **changes: object) -> Waiting:
    """The facts of an execution in this state; what the snapshot has goes there."""
    of_snapshot = {name: value for name, value in changes.items() if hasattr(SNAPSHOT, name)}
    rest = {name: value for name, value in changes.items() if name not in of_snapshot}
    snapshot = structs.replace(SNAPSHOT, state=state, **of_snapshot)
    return replace(FACTS, snapshot=snapshot, **rest)


def peer(
    name: str = "host:1",
    *,
    queues: Sequence[str] = ("mail",),
    tasks: Sequence[str] = ("send",),
    slots: int = 2,
    silent: timedelta = timedelta(seconds=1),
    max_running: dict[str, int] | None = None,
) -> Peer:
    info = WorkerInfo(
        id=name, name=name, queues=queues, tasks=tasks, slots=slots, max_running=max_running or {}
    )
    return Peer(info=info, beat=1, beat_at=NOW - silent, started_at=NOW - MINUTE)


def load(running: int, *, task: str = "send", worker: str = "host:1") -> Load:
    return Load(worker, task, running, running, "busy", NOW - 3 * MINUTE)


def event(kind: EventType, *, worker_id: str | None = None, **data: object) -> Event:
    return Event(seq=1, type=kind, at=NOW - MINUTE, worker_id=worker_id, data=data)


def reasons(known: Waiting) -> dict[Code, Reason]:
    found = explain(known, lease=LEASE)
    assert all(reason.sentence.endswith((".", "?")) for reason in found)
    assert all(reason.next_step.endswith(".") for reason in found)
    return {reason.code: reason for reason in found}


def only(known: Waiting) -> Reason:
    (reason,) = explain(known, lease=LEASE)
    return reason


# --- before it is ready -----------------------------------------------------------------


def test_what_is_not_due_says_when_it_will_be() -> None:
    reason = only(
        facts(
            State.SCHEDULED,
            run_at=NOW + timedelta(hours=3),
            due_in=timedelta(hours=3),
            workers=(peer(),),
        )
    )
    assert reason.code == Code.NOT_DUE
    assert "in 3h." in reason.sentence
    assert "enqueued to run later" in reason.sentence


def test_a_retry_says_after_which_error() -> None:
    reason = only(
        facts(
            State.SCHEDULED,
            attempt=2,
            due_in=MINUTE,
            workers=(peer(),),
            history=(event(EventType.RETRY_SCHEDULED, error=BOOM, delay=60.0),),
        )
    )
    assert reason.code == Code.NOT_DUE
    assert "Attempt 2 ended with ValueError: boom; it is to be retried" in reason.sentence


def test_a_retry_that_was_paused_with_its_run_is_still_a_retry() -> None:
    history = (
        event(EventType.CREATED),
        event(EventType.RETRY_SCHEDULED, error=BOOM, delay=60.0),
        event(EventType.PAUSED),
        event(EventType.SCHEDULED, run_at="2030-01-31T08:01:00Z"),
    )
    reason = only(
        facts(State.SCHEDULED, attempt=1, due_in=MINUTE, workers=(peer(),), history=history)
    )
    assert "Attempt 1 ended with ValueError: boom; it is to be retried" in reason.sentence


def test_a_task_that_deferred_itself_says_what_for() -> None:
    reason = only(
        facts(
            State.SCHEDULED,
            due_in=MINUTE,
            workers=(peer(),),
            history=(event(EventType.SCHEDULED, deferred=True, reason="no file yet"),),
        )
    )
    assert "deferred itself (no file yet)" in reason.sentence


def test_what_is_overdue_without_a_worker_says_both() -> None:
    found = reasons(facts(State.SCHEDULED, due_in=-3 * MINUTE))
    assert list(found) == [Code.DUE, Code.NO_WORKER]
    assert "due for 3m" in found[Code.DUE].sentence


def test_a_serial_names_who_is_ahead() -> None:
    ahead = Standing("e0", "ship", State.RUNNING, NOW - MINUTE)
    reason = only(
        facts(
            State.WAITING,
            serial="order-42",
            head=ahead,
            predecessor=ahead,
            ahead_in_serial=1,
            workers=(peer(),),
        )
    )
    assert reason.code == Code.BEHIND
    assert "'order-42': ship e0 (running for 1m) is ahead of it" in reason.sentence
    assert "penstock why e0" in reason.next_step


def test_a_long_serial_names_its_first_and_its_last() -> None:
    reason = only(
        facts(
            State.WAITING,
            serial="s",
            head=Standing("first", "ship", State.SCHEDULED, None),
            predecessor=Standing("last", "ship", State.WAITING, NOW - MINUTE),
            ahead_in_serial=40,
            workers=(peer(),),
        )
    )
    assert "40 executions are ahead" in reason.sentence
    assert "ship first (scheduled)" in reason.sentence
    assert "ship last (waiting for 1m)" in reason.sentence
    assert "penstock why first" in reason.next_step


def test_what_waits_for_nothing_is_about_to_be_released() -> None:
    assert only(facts(State.WAITING, workers=(peer(),))).code == Code.TO_BE_RELEASED


# --- ready ------------------------------------------------------------------------------


def test_a_paused_queue_says_since_when_and_how_to_go_on() -> None:
    reason = only(
        facts(queue="my mail", paused_at=NOW - MINUTE, workers=(peer(queues=["my mail"]),))
    )
    assert reason.code == Code.QUEUE_PAUSED
    assert "for 1m" in reason.sentence
    assert "penstock resume 'my mail'" in reason.next_step


def test_a_worker_that_has_been_silent_for_a_lease_is_not_taken_for_alive() -> None:
    reason = only(facts(workers=(peer(silent=LEASE + MINUTE),)))
    assert reason.code == Code.WORKERS_SILENT
    assert "host:1, has been silent for 1m15s" in reason.sentence
    assert only(facts(workers=(peer(silent=LEASE),))).code == Code.NEXT


def test_a_task_that_nobody_knows_says_what_looks_like_it() -> None:
    reason = only(facts(workers=(peer(tasks=["sent", "print"]), peer("host:2", tasks=["print"]))))
    assert reason.code == Code.TASK_UNKNOWN
    assert "Of 2 workers no live worker knows the task 'send'" in reason.sentence
    assert "'sent'" in reason.sentence


def test_a_queue_that_nobody_serves_says_what_is_served() -> None:
    reason = only(facts(workers=(peer(queues=["a", "b", "c", "d", "e"]),)))
    assert reason.code == Code.QUEUE_UNSERVED
    assert "does not serve queue 'mail', only 'a', 'b', 'c' and 2 more" in reason.sentence
    assert "--queue mail" in reason.next_step


def test_knowing_the_task_and_serving_the_queue_must_be_one_worker() -> None:
    apart = (peer(queues=["other"]), peer("host:2", tasks=["other"]))
    assert only(facts(workers=apart)).code == Code.QUEUE_UNSERVED


def test_full_slots_say_by_what_and_for_how_long() -> None:
    reason = only(facts(workers=(peer(),), loads=(load(1), load(1, task="print"))))
    assert reason.code == Code.SLOTS_FULL
    assert "All 2 slots of host:1 are taken" in reason.sentence
    assert "busy, for 3m, on host:1" in reason.sentence


def test_slots_of_workers_that_could_not_take_it_do_not_count() -> None:
    others = (peer(slots=1), peer("host:2", tasks=["print"], slots=9))
    assert only(facts(workers=others, loads=(load(1),))).code == Code.SLOTS_FULL


def test_max_running_is_told_where_there_are_free_slots() -> None:
    limited = peer(slots=9, max_running={"send": 2})
    reason = only(facts(workers=(limited,), loads=(load(2), load(3, task="print"))))
    assert reason.code == Code.MAX_RUNNING
    assert "2 of 2 run on host:1; the longest by send busy, for 3m" in reason.sentence
    assert only(facts(workers=(limited,), loads=(load(1),))).code == Code.NEXT


def test_a_worker_that_has_not_stored_its_max_running_leaves_a_doubt() -> None:
    untold = replace(peer(slots=9), info=replace(peer(slots=9).info, max_running=None))
    reason = only(facts(workers=(untold,), loads=(load(2),)))
    assert reason.code == Code.NEXT
    assert "`max_running` keeps it waiting is not known" in reason.sentence
    assert "max_running" not in only(facts(workers=(untold,))).sentence


def test_what_is_ahead_counts_only_if_the_workers_know_it() -> None:
    busy = {"workers": (peer(slots=1),), "loads": (load(1),)}
    found = reasons(facts(State.READY, ahead={"send": 4, "print": 7}, **busy))
    assert list(found) == [Code.SLOTS_FULL, Code.AHEAD]
    assert "4 ready executions come first in queue 'mail'" in found[Code.AHEAD].sentence
    assert "7 more are of tasks that these workers do not know" in found[Code.AHEAD].sentence
    assert Code.AHEAD not in reasons(facts(State.READY, ahead={"print": 7}, **busy))


def test_what_is_next_is_held_back_by_nothing() -> None:
    reason = only(facts(workers=(peer(slots=3),), loads=(load(1),)))
    assert reason.code == Code.NEXT
    assert "host:1 has 2 free slots" in reason.sentence


@pytest.mark.parametrize(
    ("crashes", "told"), [(1, "one suspect at a time"), (2, "no other suspect may run beside it")]
)
def test_a_suspect_says_how_it_is_handed_out(crashes: int, told: str) -> None:
    found = reasons(facts(suspect=True, crashes=crashes, workers=(peer(),)))
    assert list(found) == [Code.NEXT, Code.SUSPECT]
    assert told in found[Code.SUSPECT].sentence


# --- running ----------------------------------------------------------------------------

RUNNING = {
    "attempt": 2,
    "worker_id": "host:1",
    "sub_state": SubState.ACTIVE,
    "claimed_at": NOW - MINUTE,
    "started_at": NOW - MINUTE,
}


def test_what_runs_says_since_when_where_and_how_far() -> None:
    progress = '{"fraction":0.5,"note":"half way"}'
    reason = only(facts(State.RUNNING, **RUNNING, progress=progress, workers=(peer(),)))
    assert reason.code == Code.RUNNING
    assert "Attempt 2 has been running since" in reason.sentence
    assert "for 1m, 50% done (half way), on host:1" in reason.sentence
    assert "heartbeat was 1.0s ago" in reason.sentence


def test_what_was_claimed_and_has_not_begun_says_so() -> None:
    known = facts(State.RUNNING, **RUNNING | {"started_at": None}, workers=(peer(),))
    assert only(known).code == Code.CLAIMED


@pytest.mark.parametrize(("reason", "told"), [("the file", "the file"), (None, "did not give")])
def test_a_deferred_one_says_what_for(reason: str | None, told: str) -> None:
    data = {} if reason is None else {"reason": reason}
    found = only(
        facts(
            State.RUNNING,
            **RUNNING | {"sub_state": SubState.DEFERRED},
            workers=(peer(),),
            history=(event(EventType.DEFERRED, **data),),
        )
    )
    assert found.code == Code.DEFERRED
    assert "deferred for 1m, without a slot" in found.sentence
    assert told in found.sentence


def test_a_cancel_request_comes_before_what_it_is_for() -> None:
    found = reasons(facts(State.RUNNING, **RUNNING, cancel_requested=True, workers=(peer(),)))
    assert list(found) == [Code.CANCEL_REQUESTED, Code.RUNNING]


def test_a_silent_worker_is_recovered_by_a_live_one_if_there_is_one() -> None:
    silent = peer(silent=4 * MINUTE)
    alone = reasons(facts(State.RUNNING, **RUNNING, workers=(silent,)))
    assert list(alone) == [Code.WORKER_SILENT, Code.RUNNING]
    assert "Start a worker" in alone[Code.WORKER_SILENT].next_step
    with_another = reasons(facts(State.RUNNING, **RUNNING, workers=(silent, peer("host:2"))))
    assert "by itself" in with_another[Code.WORKER_SILENT].next_step


def test_a_worker_that_is_gone_leaves_it_to_be_recovered() -> None:
    reason = only(facts(State.RUNNING, **RUNNING, workers=(peer("host:2"),)))
    assert reason.code == Code.WORKER_GONE
    assert "Another live worker recovers it" in reason.next_step


def test_a_running_suspect_says_what_its_next_crash_would_mean() -> None:
    found = reasons(facts(State.RUNNING, **RUNNING, suspect=True, crashes=1, workers=(peer(),)))
    assert "crash 2 of 3" in found[Code.SUSPECT].sentence


# --- ended ------------------------------------------------------------------------------


def test_a_failed_one_says_of_what_and_how_to_run_it_again() -> None:
    error = '{"type":"ValueError","message":"boom."}'
    reason = only(facts(State.FAILED, attempt=3, error=error, finished_at=NOW))
    assert reason.code == Code.FAILED
    assert reason.sentence.endswith("in attempt 3: ValueError: boom.")
    assert "penstock rerun e1" in reason.next_step


def test_an_abandoned_one_is_told_apart_from_a_failed_one() -> None:
    lost = event(EventType.ABANDONED, lost_worker="w", started=True, crashes=3)
    reason = only(facts(State.FAILED, crashes=3, history=(lost,), finished_at=NOW))
    assert reason.code == Code.ABANDONED
    assert "3 workers died while running it" in reason.sentence


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (event(EventType.CANCELLED, reason="a mistake"), "before it began, with this reason: a m"),
        (event(EventType.CANCELLED, worker_id="w"), "while it ran on worker w, and it stopped"),
        (event(EventType.CANCELLED, worker_id="w", lost_worker="v"), "its worker v died"),
    ],
)
def test_a_cancelled_one_says_how(last: Event, told: str) -> None:
    reason = only(facts(State.CANCELLED, history=(last,), finished_at=NOW))
    assert reason.code == Code.CANCELLED
    assert told in reason.sentence
    assert "Who it was is not recorded" in reason.sentence


def test_completed_and_skipped_ones_need_nothing() -> None:
    done = event(EventType.COMPLETED, worker_id="w")
    completed = only(facts(State.COMPLETED, attempt=1, history=(done,), finished_at=NOW))
    assert completed.code == Code.COMPLETED
    assert "in attempt 1 on worker w" in completed.sentence
    skipped = only(facts(State.SKIPPED, finished_at=NOW))
    assert skipped.code == Code.SKIPPED


# --- what holds for all -----------------------------------------------------------------


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_reason(state: State) -> None:
    assert explain(facts(state), lease=LEASE)


def test_a_state_begins_with_the_event_that_led_to_it() -> None:
    claimed = dataclasses.replace(event(EventType.CLAIMED), at=NOW - 2 * MINUTE)
    within = event(EventType.STARTED), event(EventType.CANCEL_REQUESTED)
    known = facts(State.RUNNING, history=(claimed, *within))
    assert in_state_since(known) == NOW - 2 * MINUTE
    assert in_state_since(facts()) == SNAPSHOT.created_at
    assert in_state_since(facts(State.FAILED, finished_at=NOW)) == NOW
