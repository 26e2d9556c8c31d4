"""What must be true of every execution at every moment, read from the tables themselves."""

from collections import defaultdict
from collections.abc import Iterator

from penstock.errors import IllegalTransition
from penstock.model.events import EventType, RunEvent
from penstock.model.graph import Graph, decide, decode_graph, end_of, task_ids
from penstock.model.ids import index_of
from penstock.model.rules import ALL_SUCCEEDED
from penstock.model.runs import FINAL_RUN, RUN_TRANSITIONS, RunState
from penstock.model.states import FINAL, State, next_state
from tests.contract.databases import Database

REMOVED_BY_RETENTION = FINAL - {State.FAILED}
REMOVED_RUNS = FINAL_RUN - {RunState.FAILED}


def _damage(database: Database) -> Iterator[str]:
    """SQLite's own findings: among them what breaks a CHECK constraint, which our writer skips."""
    if database.dialect == "sqlite":
        found = [told for (told,) in database.query("PRAGMA integrity_check")]
        yield from (told for told in found if told != "ok")


def complaints(database: Database) -> list[str]:
    """Return each broken promise in the database as a sentence; an empty list is a clean one."""
    found = list(_damage(database))
    histories: dict[str, list[EventType]] = defaultdict(list)
    of_runs: dict[str, list[RunEvent]] = defaultdict(list)
    for root_id, task_id, event in database.query(
        "SELECT root_id, task_execution_id, type FROM execution_events ORDER BY seq"
    ):
        if task_id is None:
            of_runs[str(root_id)].append(RunEvent(event))
        else:
            histories[str(task_id)].append(EventType(event))
    found += _complaints_about_runs(database, of_runs)
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


def _complaints_about_runs(
    database: Database, histories: dict[str, list[RunEvent]]
) -> Iterator[str]:
    tasks: dict[str, list[tuple[str, State]]] = defaultdict(list)
    for root_id, task_id, state in database.query(
        "SELECT root_id, id, CASE WHEN awaits IS NULL THEN state ELSE 'running' END"
        " FROM task_executions WHERE root_id <> id ORDER BY id"
    ):
        if index_of(str(task_id)) is None:
            tasks[str(root_id)].append((str(task_id), State(state)))
    runs = database.query(
        "SELECT id, state, graph, cancel_requested, error, finished_at FROM workflow_executions"
    )
    for run_id, stored, text, cancel_requested, error, finished_at in runs:
        id_, state, graph = str(run_id), RunState(stored), decode_graph(text)
        yield from _untold(id_, state, histories.pop(id_, []))
        if (finished_at is not None) != (state in FINAL_RUN):
            yield f"run {id_} is {state} and finished at {finished_at}"
        mine = tasks.pop(id_, [])
        if [task_id for task_id, _ in mine] != task_ids(id_, len(graph.nodes)):
            yield f"run {id_} has other tasks than its graph"
            continue
        states = [one for _, one in mine]
        end = end_of(graph, states, cancel_requested=bool(cancel_requested))
        if end is not None and error is not None:
            end = RunState.FAILED
        yield from _differing(id_, state, end)
        if state is RunState.RUNNING:
            yield from _stuck(id_, graph, states)
    for run_id in tasks:
        yield f"tasks of run {run_id} are there without it"


def _untold(run_id: str, state: RunState, history: list[RunEvent]) -> Iterator[str]:
    # Retention may have removed all of it, or all there was before it was rerun.
    rerun = bool(history) and history[0] is RunEvent.RERUN
    told: RunState | None = RunState.COMPLETED if rerun else None
    for event in history:
        told = RUN_TRANSITIONS[told, event]
    if told != state and (history or state not in REMOVED_RUNS):
        yield f"run {run_id} is {state}, but its history ends in {told}"


def _differing(run_id: str, state: RunState, end: RunState | None) -> Iterator[str]:
    if (state if state in FINAL_RUN else None) != end:
        yield f"run {run_id} is {state}, but its tasks say {end}"


def _stuck(run_id: str, graph: Graph, states: list[State]) -> Iterator[str]:
    if all(node.rule == ALL_SUCCEEDED and node.for_each is None for node in graph.nodes):
        decision = decide(graph, states, context_of=lambda _: {})
        if decision.ready or decision.skipped:
            yield f"run {run_id} has tasks that wait for nothing: {decision}"


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
