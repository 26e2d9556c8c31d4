"""What must be true of every execution at every moment, read from the tables themselves."""

from collections import defaultdict

from penstock.errors import IllegalTransition
from penstock.model.events import EventType
from penstock.model.states import FINAL, State, next_state
from tests.contract.databases import Database

REMOVED_BY_RETENTION = FINAL - {State.FAILED}


def complaints(database: Database) -> list[str]:
    """Return each broken promise in the database as a sentence; an empty list is a clean one."""
    found: list[str] = []
    histories: dict[str, list[EventType]] = defaultdict(list)
    for task_id, event in database.query(
        "SELECT task_execution_id, type FROM execution_events ORDER BY seq"
    ):
        histories[str(task_id)].append(EventType(event))
    outbox: dict[str, int] = defaultdict(int)
    for (task_id,) in database.query("SELECT task_execution_id FROM task_outbox"):
        outbox[str(task_id)] += 1

    executions = database.query(
        "SELECT id, state, sub_state, worker_id, finished_at FROM task_executions"
    )
    for task_id, stored, sub_state, worker_id, finished_at in executions:
        execution_id, state = str(task_id), State(stored)
        history = histories.pop(execution_id, [])
        told = _replayed(history)
        if told != state and not _may_be_forgotten(state, history):
            found.append(f"{execution_id} is {state}, but its history ends in {told}")
        if outbox.pop(execution_id, 0) != (state is State.READY):
            found.append(f"{execution_id} is {state}, which its place in the outbox denies")
        if (worker_id is not None) != (state is State.RUNNING):
            found.append(f"{execution_id} is {state} and belongs to worker {worker_id}")
        if (sub_state is not None) != (state is State.RUNNING):
            found.append(f"{execution_id} is {state} with the sub-state {sub_state}")
        if (finished_at is not None) != (state in FINAL):
            found.append(f"{execution_id} is {state} and finished at {finished_at}")
    found += [f"the outbox has {task_id}, which does not exist" for task_id in outbox]
    found += [
        f"{task_id} has the history of an execution that is {told}, and is not there"
        for task_id, history in histories.items()
        if (told := _replayed(history)) not in REMOVED_BY_RETENTION
    ]
    return found


def _may_be_forgotten(state: State, history: list[EventType]) -> bool:
    """Whether retention removed what is missing: all there was before it was rerun, or all."""
    if not history:
        return state in REMOVED_BY_RETENTION
    return history[0] is EventType.RERUN and _replayed(history, since=State.COMPLETED) == state


def _replayed(history: list[EventType], since: State | None = None) -> State | str | None:
    state = since
    try:
        for event in history:
            state = next_state(state, event)
    except IllegalTransition as error:
        return f"an impossible step ({error})"
    return state
