"""Runs of workflows that are corrupted by hand, as an operation would never leave them."""

from msgspec import structs

from penstock.model.graph import ForEach
from penstock.model.retelling import Wrong
from penstock.model.runs import RunState
from penstock.model.verifying import findings_in
from penstock.store.contract import Store
from tests.contract.databases import Database
from tests.contract.flows import claim_all, completed, graph, node, start
from tests.contract.support import worker

Found = list[tuple[Wrong, str]]


def found(store: Store) -> Found:
    return [(one.code, one.execution_id) for one in findings_in(store.examine())]


def listed(store: Store) -> str:
    """A run with a list of three elements, of which the first has completed."""
    worker(store)
    each = structs.replace(node("each", 0), for_each=ForEach("item", 0))
    run_id = start(store, graph(node("list"), each))
    (first,) = claim_all(store)
    store.settle([completed(first, "[1,2,3]")])
    (element,) = claim_all(store, limit=1)
    store.settle([completed(element)])
    return run_id


def tell(database: Database, root_id: str, type_: str, task_id: str | None = None) -> None:
    """Add an event by hand, at the time of the last."""
    database.query(
        "INSERT INTO execution_events (root_id, task_execution_id, type, at) "
        "SELECT :root_id, :task_id, :type, max(at) FROM execution_events".replace(
            ":task_id", "NULL" if task_id is None else f"'{task_id}'"
        ).replace(":root_id", f"'{root_id}'"),
        {"type": type_},
    )


def end_by_hand(database: Database, run_id: str, state: RunState) -> None:
    """As an operation would end it: the row and the event."""
    database.query(
        "UPDATE workflow_executions SET state = :state, finished_at = created_at WHERE id = :id",
        {"state": state.value, "id": run_id},
    )
    tell(database, run_id, f"workflow.{state}")


def let_go_by_hand(database: Database, task_id: str) -> None:
    database.query(
        "UPDATE task_executions SET state = 'ready', finished_at = NULL WHERE id = :id",
        {"id": task_id},
    )
    database.query(
        "INSERT INTO task_outbox (task_execution_id, queue, priority, task) "
        "SELECT id, queue, priority, task FROM task_executions WHERE id = :id",
        {"id": task_id},
    )


def skip_by_hand(database: Database, task_id: str) -> None:
    """Of a task that is ready, as if it had been skipped instead."""
    database.query("DELETE FROM task_outbox WHERE task_execution_id = :id", {"id": task_id})
    database.query(
        "UPDATE task_executions SET state = 'skipped', finished_at = created_at WHERE id = :id",
        {"id": task_id},
    )
    database.query(
        "UPDATE execution_events SET type = 'task.skipped' "
        "WHERE task_execution_id = :id AND type = 'task.marked_ready'",
        {"id": task_id},
    )
