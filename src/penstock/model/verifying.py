"""What must be true of every execution at every moment, and what to do where it is not."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from penstock.model.examinations import Examination, Examined, Place
from penstock.model.retelling import Retelling, Wrong
from penstock.model.states import FINAL, State, SubState

REMOVABLE = FINAL - {State.FAILED}
"""What retention takes away by itself; failed executions stay until someone decides."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise."""

    code: Wrong
    execution_id: str
    wrong: str  # what is not as it must be, as the rest of a sentence about the execution
    remedy: str  # what to do about it


def findings_in(examined: Examined) -> list[Finding]:
    """Return everything that is wrong in a stretch of the tables; an empty list is a clean one."""
    found: list[Finding] = []
    for one in examined.executions:
        found += [_finding(code, one.id, wrong) for code, wrong in _complaints(one)]
    found += [
        _finding(
            Wrong.OUTBOX_ORPHAN,
            place.execution_id,
            f"is in the outbox of {place.queue!r} and does not exist",
        )
        for place in examined.strays
    ]
    for execution_id, told in examined.remains.items():
        found += [
            _finding(code, execution_id, wrong) for code, wrong in _complaints_about_remains(told)
        ]
    return found


def _finding(code: Wrong, execution_id: str, wrong: str) -> Finding:
    return Finding(code, execution_id, wrong, REMEDIES[code].format(id=execution_id))


Complaint = tuple[Wrong, str]


def _complaints(one: Examination) -> Iterator[Complaint]:
    yield from one.told.faults.items()
    for rule in _RULES:
        yield from rule(one)


def _complaints_about_remains(told: Retelling) -> Iterator[Complaint]:
    yield from told.faults.items()
    if told.state not in REMOVABLE:
        yield Wrong.LOST_EXECUTION, f"does not exist, but its history ends while {told.state}"


# --- the row and its history ------------------------------------------------------------


def _state(one: Examination) -> Iterator[Complaint]:
    if one.told.events == 0:
        # Retention may take the events of a finished execution before it takes the execution.
        if one.state not in REMOVABLE:
            yield Wrong.NO_HISTORY, f"is {one.state} and has no history"
    elif one.state != one.told.state:
        yield Wrong.STATE_DIFFERS, f"is {one.state}, but by its history it is {one.told.state}"
    if one.root_id != one.id:
        yield Wrong.FOREIGN_ROOT, f"keeps its history under {one.root_id}"


def _sub_state(one: Examination) -> Iterator[Complaint]:
    if one.state != State.RUNNING:
        if one.sub_state is not None:
            yield Wrong.SUB_STATE_DIFFERS, f"is {one.state} and has the sub-state {one.sub_state}"
        return
    expected = SubState.DEFERRED if one.told.deferred else SubState.ACTIVE
    if one.sub_state != expected:
        yield (
            Wrong.SUB_STATE_DIFFERS,
            f"has the sub-state {one.sub_state}, but by its history it is {expected}",
        )


def _finished_at(one: Examination) -> Iterator[Complaint]:
    if one.finished and one.state not in FINAL:
        yield Wrong.FINISHED_AT_DIFFERS, f"is {one.state} and has a time at which it finished"
    if not one.finished and one.state in FINAL:
        yield Wrong.FINISHED_AT_DIFFERS, f"is {one.state} and has no time at which it finished"


def _counters(one: Examination) -> Iterator[Complaint]:
    told = one.told
    if told.events == 0 or not told.counts:
        return
    knows_attempts = told.whole or told.owner is not None
    if knows_attempts and not told.fewest_attempts <= one.attempt <= told.most_attempts:
        yield (
            Wrong.ATTEMPT_DIFFERS,
            f"says attempt {one.attempt}; by its history it is {told.most_attempts}",
        )
    if one.retries != told.retries:
        yield Wrong.RETRIES_DIFFER, f"says {one.retries} retries, its history {told.retries}"
    if one.crashes != told.crashes:
        yield Wrong.CRASHES_DIFFER, f"says {one.crashes} crashes, its history {told.crashes}"
    # It changes on entering and on leaving `running`, so without the whole history it is still
    # odd exactly while running.
    unlike = one.fence != told.fence if told.whole else one.fence % 2 != told.fence % 2
    if unlike:
        yield Wrong.FENCE_DIFFERS, f"has the fence {one.fence}; by its history it is {told.fence}"


def _worker(one: Examination) -> Iterator[Complaint]:
    if one.state != State.RUNNING:
        if one.worker_id is not None:
            yield Wrong.WORKER_LEFT, f"is {one.state} and belongs to worker {one.worker_id}"
    elif one.worker_id is None:
        yield Wrong.WORKER_MISSING, "is running and belongs to no worker: nobody would recover it"
    elif one.told.owner not in {None, one.worker_id}:
        # A worker that is not there any more is no fault: it died, and others recover its tasks.
        yield (
            Wrong.WRONG_WORKER,
            f"belongs to worker {one.worker_id}, but {one.told.owner} had claimed it",
        )


def _due_time(one: Examination) -> Iterator[Complaint]:
    if one.state == State.SCHEDULED and not one.has_due_time:
        yield Wrong.NEVER_DUE, "is scheduled for no time, so it never becomes due"


# --- the outbox, keys and serials -------------------------------------------------------


def _outbox(one: Examination) -> Iterator[Complaint]:
    if one.state != State.READY:
        if one.places:
            yield Wrong.IN_OUTBOX, f"is {one.state} and in the outbox"
        return
    if not one.places:
        yield Wrong.NOT_IN_OUTBOX, "is ready and not in the outbox: no worker can find it"
    if len(one.places) > 1:
        yield Wrong.TWICE_IN_OUTBOX, f"is in the outbox {len(one.places)} times"
    expected = Place(one.id, one.queue, one.priority, one.suspect, one.task)
    for place in one.places:
        differences = [
            f"{name} {shown!r} instead of {meant!r}"
            for name, shown, meant in zip(Place._fields, place, expected, strict=True)
            if shown != meant
        ]
        if differences:
            yield Wrong.OUTBOX_DIFFERS, f"is in the outbox with {', '.join(differences)}"


def _key(one: Examination) -> Iterator[Complaint]:
    if one.twin is not None:
        yield Wrong.KEY_TWICE, f"shares its key with {one.twin}, and both are live"


def _serial(one: Examination) -> Iterator[Complaint]:
    if one.state in FINAL:
        return
    waits = one.state == State.WAITING
    if one.serial is None:
        if waits and one.root_id == one.id:
            yield Wrong.WAITS_FOR_NOTHING, "is waiting, and there is nothing that it waits for"
        return
    if not one.serial_is_known:
        yield Wrong.SERIAL_UNKNOWN, f"is in the serial {one.serial!r}, which nobody looks after"
    if waits and one.ahead is None and not one.will_be_released:
        yield (
            Wrong.STUCK_SERIAL,
            f"is waiting in the serial {one.serial!r}, though nothing is ahead of it",
        )
    if not waits and one.ahead is not None:
        yield (
            Wrong.OUT_OF_TURN,
            f"is {one.state}, though {one.ahead} is ahead of it in the serial {one.serial!r}",
        )


_RULES: tuple[Callable[[Examination], Iterator[Complaint]], ...] = (
    _state,
    _sub_state,
    _finished_at,
    _counters,
    _worker,
    _due_time,
    _outbox,
    _key,
    _serial,
)


# --- what to do -------------------------------------------------------------------------

_BY_HAND = (
    "No operation of Penstock leaves this behind: find out who wrote to the tables, and keep a copy"
)
_HISTORY_COUNTS = "Its history was written with every change: correct the row by what it says"
_BOTH_MAY_HAVE_RUN = (
    "Look at what it did outside the database, for two workers may have done it, and keep a copy"
)

REMEDIES: Mapping[Wrong, str] = {
    Wrong.ILLEGAL_STEP: f"{_BY_HAND} of what `penstock history {{id}}` shows.",
    Wrong.CLAIMED_TWICE: f"{_BOTH_MAY_HAVE_RUN} of what `penstock history {{id}}` shows.",
    Wrong.UNEXPLAINED_RUN: f"{_BOTH_MAY_HAVE_RUN} of what `penstock history {{id}}` shows.",
    Wrong.UNKNOWN_EVENT: (
        "A newer version of Penstock may have written it: verify with that one. Otherwise "
        "somebody wrote to execution_events by hand."
    ),
    Wrong.FOREIGN_EVENT: f"{_BY_HAND} of the events with the root_id {{id}}.",
    Wrong.NO_BEGINNING: (
        "Retention removes whole histories only: somebody removed events by hand. What they "
        "said is lost; the execution itself goes on."
    ),
    Wrong.NO_HISTORY: (
        "Retention keeps the events of live and failed executions: somebody removed them by hand. "
        "What they said is lost; the execution itself goes on."
    ),
    Wrong.LOST_EXECUTION: (
        "Retention removes finished executions only, and no failed ones: restore it from a "
        "backup, or enqueue it again. `penstock history {id}` still tells what happened."
    ),
    Wrong.WORKER_UNNAMED: f"{_BY_HAND} of what `penstock history {{id}}` shows.",
    Wrong.WRONG_WORKER: f"{_BOTH_MAY_HAVE_RUN} of what `penstock history {{id}}` shows.",
    Wrong.STATE_DIFFERS: f"{_HISTORY_COUNTS}, or end it and `penstock rerun {{id}}`.",
    Wrong.SUB_STATE_DIFFERS: f"{_HISTORY_COUNTS}; no task is lost by it.",
    Wrong.FINISHED_AT_DIFFERS: (
        f"{_HISTORY_COUNTS}: retention, keys and serials go by finished_at."
    ),
    Wrong.ATTEMPT_DIFFERS: f"{_HISTORY_COUNTS}; no task is lost by it.",
    Wrong.RETRIES_DIFFER: f"{_HISTORY_COUNTS}, or it is retried too often or too seldom.",
    Wrong.CRASHES_DIFFER: f"{_HISTORY_COUNTS}, or it is abandoned too early or too late.",
    Wrong.FENCE_DIFFERS: (
        "Stop its worker before you correct the row: with another fence it cannot settle, and the "
        "task is recovered once the worker is gone."
    ),
    Wrong.NEVER_DUE: (
        "Give it a time: UPDATE task_executions SET run_at = created_at WHERE id = '{id}'"
    ),
    Wrong.WORKER_MISSING: (
        "Give it back to the worker that claimed it; if that one is dead, others recover it: "
        "UPDATE task_executions SET worker_id = (SELECT worker_id FROM execution_events "
        "WHERE root_id = '{id}' AND type = 'task.claimed' ORDER BY seq DESC LIMIT 1) "
        "WHERE id = '{id}'"
    ),
    Wrong.WORKER_LEFT: (
        "Workers will take it for a lost one and recover it: "
        "UPDATE task_executions SET worker_id = NULL WHERE id = '{id}'"
    ),
    Wrong.NOT_IN_OUTBOX: (
        "Give it a place: INSERT INTO task_outbox (task_execution_id, queue, priority, suspect, "
        "task) SELECT id, queue, priority, suspect, task FROM task_executions WHERE id = '{id}'"
    ),
    Wrong.IN_OUTBOX: (
        "Nobody will run it, for a claim looks at the state as well: "
        "DELETE FROM task_outbox WHERE task_execution_id = '{id}'"
    ),
    Wrong.TWICE_IN_OUTBOX: (
        "The unique index of task_outbox is missing or broken: remove one of the rows, and make "
        "the index again."
    ),
    Wrong.OUTBOX_DIFFERS: (
        "A claim goes by the outbox: remove its row there, and verify again for how to put it "
        "back: DELETE FROM task_outbox WHERE task_execution_id = '{id}'"
    ),
    Wrong.OUTBOX_ORPHAN: (
        "If the execution was removed on purpose: "
        "DELETE FROM task_outbox WHERE task_execution_id = '{id}'"
    ),
    Wrong.STUCK_SERIAL: (
        "Nothing would release it: `penstock cancel {id}` and then `penstock rerun {id}` puts it "
        "at the end of its serial, which goes on."
    ),
    Wrong.OUT_OF_TURN: f"{_BY_HAND} of both executions.",
    Wrong.SERIAL_UNKNOWN: (
        "Its successors would wait for ever: INSERT INTO serials (serial) "
        "SELECT serial FROM task_executions WHERE id = '{id}'"
    ),
    Wrong.WAITS_FOR_NOTHING: (
        "Nothing would release it: `penstock cancel {id}` and then `penstock rerun {id}`."
    ),
    Wrong.KEY_TWICE: (
        "The unique index task_executions_live_key is missing or broken: `penstock cancel {id}`, "
        "or cancel the other one, and make the index again."
    ),
    Wrong.FOREIGN_ROOT: (
        "It is no part of a workflow, so its history is its own: "
        "UPDATE task_executions SET root_id = id WHERE id = '{id}'"
    ),
}
