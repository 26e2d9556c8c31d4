"""What must be true of every execution at every moment, and what to do where it is not."""

from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from penstock.model.examinations import Examination, Examined, Place
from penstock.model.ids import run_of
from penstock.model.remedies import REMEDIES
from penstock.model.retelling import Wrong
from penstock.model.runs import RunState
from penstock.model.states import FINAL, State, SubState
from penstock.model.verifying_runs import REMOVABLE_RUNS, complaints_about_run, is_task_of

REMOVABLE = FINAL - {State.FAILED}
"""What retention takes away by itself; failed executions stay until someone decides."""


class Finding(msgspec.Struct, frozen=True):
    """One broken promise."""

    code: Wrong
    execution_id: str
    wrong: str  # what is not as it must be, as the rest of a sentence about the execution
    remedy: str  # what to do about it


def findings_in(examined: Examined) -> list[Finding]:
    """Return everything that is wrong in a stretch of the tables; an empty list is a clean one."""
    finding = partial(_finding, examined.schema)
    found: list[Finding] = []
    for one in examined.executions:
        found += [finding(code, one.id, wrong, one.run_id) for code, wrong in _complaints(one)]
    for run in examined.runs:
        found += [finding(*told, run.id) for told in complaints_about_run(run)]
    found += [
        finding(
            Wrong.OUTBOX_ORPHAN,
            place.execution_id,
            f"is in the outbox of {place.queue!r} and does not exist",
        )
        for place in examined.strays
    ]
    found += [finding(*told) for told in _complaints_about_lost_runs(examined)]
    found += [finding(*told) for told in _complaints_about_remains(examined)]
    return found


def _finding(
    schema: str, code: Wrong, execution_id: str, wrong: str, root_id: str | None = None
) -> Finding:
    remedy = REMEDIES[code].format(id=execution_id, root=root_id or execution_id, schema=schema)
    return Finding(code, execution_id, wrong, remedy)


Complaint = tuple[Wrong, str]
NamedComplaint = tuple[Wrong, str, str]  # with the execution in the middle


def _complaints(one: Examination) -> Iterator[Complaint]:
    yield from one.told.faults.items()
    for rule in _RULES:
        yield from rule(one)


# --- what is not there any more ---------------------------------------------------------


def _complaints_about_lost_runs(examined: Examined) -> Iterator[NamedComplaint]:
    left: dict[str, int] = {}
    for one in examined.executions:
        if one.run_id is None and one.root_id != one.id and one.root_id == run_of(one.id):
            left[one.root_id] = left.get(one.root_id, 0) + 1
    for run_id, count in left.items():
        tasks = "a task of it is" if count == 1 else f"{count} tasks of it are"
        yield Wrong.RUN_LOST, run_id, f"does not exist, but {tasks} still there"
    plain = {one.id for one in examined.executions}
    for run_id, told in examined.remains_of_runs.items():
        if run_id in plain:
            event = "has an event in its history that is about no task"
            yield Wrong.FOREIGN_EVENT, run_id, event
            continue
        for code, wrong in told.faults.items():
            yield code, run_id, wrong
        if told.state not in REMOVABLE_RUNS and run_id not in left:
            wrong = f"does not exist, but its history ends while {_shown(told.state)}"
            yield Wrong.LOST_EXECUTION, run_id, wrong


def _complaints_about_remains(examined: Examined) -> Iterator[NamedComplaint]:
    runs = {run.id: run for run in examined.runs}
    for execution_id, told in examined.remains.items():
        for code, wrong in told.faults.items():
            yield code, execution_id, wrong
        run_id = run_of(execution_id)
        if run_id in runs:
            # A task that is missing is the run's complaint.
            graph = runs[run_id].graph
            if graph is not None and not is_task_of(graph, execution_id):
                event = f"has an event about {execution_id}, which is no task of it"
                yield Wrong.FOREIGN_EVENT, run_id, event
            continue
        removable = REMOVABLE
        if run_id in examined.remains_of_runs:
            if examined.remains_of_runs[run_id].state not in REMOVABLE_RUNS:
                continue  # that the run is lost says it all
            removable = FINAL  # a failure that was forgiven goes with its run
        if told.state not in removable:
            wrong = f"does not exist, but its history ends while {_shown(told.state)}"
            yield Wrong.LOST_EXECUTION, execution_id, wrong


def _shown(state: State | RunState | None) -> str:
    return "nothing has begun" if state is None else state


# --- the row and its history ------------------------------------------------------------


def _state(one: Examination) -> Iterator[Complaint]:
    if one.told.events == 0:
        # Retention may take the events of a finished execution before it takes the execution.
        if one.run_id is None and one.state not in REMOVABLE:
            yield Wrong.NO_HISTORY, f"is {one.state} and has no history"
    elif one.state != one.told.state:
        yield Wrong.STATE_DIFFERS, f"is {one.state}, but by its history it is {one.told.state}"
    if one.root_id not in {one.run_id or one.id, run_of(one.id)}:
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
    waits = one.state == State.WAITING and not one.awaits
    if one.serial is None:
        if waits and one.run_id is None and one.root_id == one.id:
            yield Wrong.WAITS_FOR_NOTHING, "is waiting, and there is nothing that it waits for"
        return
    if not one.serial_is_known:
        yield Wrong.SERIAL_UNKNOWN, f"is in the serial {one.serial!r}, which nobody looks after"
    if waits and one.ahead is None and not one.will_be_released:
        yield (
            Wrong.STUCK_SERIAL,
            f"is waiting in the serial {one.serial!r}, though nothing is ahead of it",
        )
    if one.state != State.WAITING and one.ahead is not None:
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
