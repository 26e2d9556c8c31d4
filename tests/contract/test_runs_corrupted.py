"""`verify` on corrupted runs of workflows: each is found, and nothing else is said."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from penstock.model.ids import element_id, last_id_of
from penstock.model.retelling import Wrong
from penstock.model.rules import ContextValue, Dependencies
from penstock.model.runs import RunState
from penstock.store.contract import Store
from tests.contract.databases import Database
from tests.contract.flows import (
    chain,
    claim_all,
    completed,
    failing,
    graph,
    live_through,
    node,
    start,
    task_at,
)
from tests.contract.planting import (
    end_by_hand,
    found,
    let_go_by_hand,
    listed,
    skip_by_hand,
    tell,
)
from tests.contract.support import enqueue, finish, run_one, worker


@pytest.fixture
def planted(database: Database) -> Iterator[Database]:
    """A database for corruptions: emptied before anybody looks whether it is consistent."""
    yield database
    database.empty()


def running(store: Store) -> str:
    """A chain of three whose first task has completed; the others are ready and waiting."""
    worker(store)
    run_id = start(store, chain(3))
    (first,) = claim_all(store)
    store.settle([completed(first)])
    return run_id


def ended(store: Store) -> str:
    worker(store)
    run_id = start(store, chain(2))
    live_through(store)
    return run_id


Plant = Callable[[Database, str], object]


def _query(statement: str) -> Plant:
    def plant(database: Database, run_id: str) -> None:
        names = {
            "run": run_id, "last": last_id_of(run_id),
            "t0": task_at(run_id, 0), "t1": task_at(run_id, 1), "t2": task_at(run_id, 2),
        }  # fmt: skip
        for one in statement.split(";"):
            used = {name: value for name, value in names.items() if f":{name}" in one}
            database.query(one, used)

    return plant


def _let_go_too_early(database: Database, run_id: str) -> None:
    let_go_by_hand(database, task_at(run_id, 2))
    tell(database, run_id, "task.marked_ready", task_at(run_id, 2))


LIVE: Mapping[str, tuple[Plant, Wrong, int | None]] = {
    "a state changed by hand": (
        _query("UPDATE workflow_executions SET state = 'paused'"),
        Wrong.RUN_STATE_DIFFERS, None),
    "a time at which it finished": (
        _query("UPDATE workflow_executions SET finished_at = created_at"),
        Wrong.RUN_FINISHED_AT_DIFFERS, None),
    "a graph that cannot be read": (
        _query("UPDATE workflow_executions SET graph = '{'"),
        Wrong.RUN_GRAPH_UNREADABLE, None),
    "a graph that means nothing": (
        _query("UPDATE workflow_executions SET graph = replace(graph, '\"after\":[1]', "
               "'\"after\":[7]')"),
        Wrong.RUN_GRAPH_UNREADABLE, None),
    "no tasks": (
        _query("DELETE FROM task_outbox WHERE task_execution_id = :t1; "
               "DELETE FROM task_executions WHERE root_id = :run"),
        Wrong.RUN_TASKS_DIFFER, None),
    "a task too few": (
        _query("DELETE FROM task_executions WHERE id = :t2"),
        Wrong.RUN_TASKS_DIFFER, None),
    "another task": (
        _query("UPDATE task_executions SET task = 'resize_image' WHERE id = :t2"),
        Wrong.RUN_TASKS_DIFFER, None),
    "no run": (_query("DELETE FROM workflow_executions"), Wrong.RUN_LOST, None),
    "no run and no task": (
        _query("DELETE FROM task_outbox WHERE task_execution_id = :t1; "
               "DELETE FROM task_executions WHERE root_id = :run; "
               "DELETE FROM workflow_executions"),
        Wrong.LOST_EXECUTION, None),
    "an end while tasks live": (
        lambda database, run_id: end_by_hand(database, run_id, RunState.CANCELLED),
        Wrong.RUN_ENDED_EARLY, None),
    "a step that cannot be": (
        lambda database, run_id: tell(database, run_id, "workflow.resumed"),
        Wrong.ILLEGAL_STEP, None),
    "an event that is not ours": (
        lambda database, run_id: tell(database, run_id, "workflow.vanished"),
        Wrong.UNKNOWN_EVENT, None),
    "an event about a task that is not in the graph": (
        lambda database, run_id: tell(database, run_id, "task.created", task_at(run_id, 3)),
        Wrong.FOREIGN_EVENT, None),
    "no history of its own": (
        _query("DELETE FROM execution_events WHERE root_id = :run AND task_execution_id IS NULL"),
        Wrong.NO_HISTORY, None),
    "no history of a task": (
        _query("DELETE FROM execution_events WHERE root_id = :run AND task_execution_id = :t0"),
        Wrong.NO_HISTORY, 0),
    "a task that waits for nothing": (
        _query("DELETE FROM task_outbox WHERE task_execution_id = :t1; "
               "UPDATE task_executions SET state = 'waiting' WHERE id = :t1; "
               "DELETE FROM execution_events "
               "WHERE task_execution_id = :t1 AND type = 'task.marked_ready'"),
        Wrong.STUCK_IN_RUN, 1),
    "a task before its turn": (_let_go_too_early, Wrong.BEFORE_ITS_TURN, 2),
    "a task that keeps its history elsewhere": (
        _query("UPDATE task_executions SET root_id = id WHERE id = :t1"),
        Wrong.FOREIGN_ROOT, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", LIVE)
def test_a_corruption_of_a_live_run_is_found_and_nothing_else_is_said(
    store: Store, planted: Database, name: str
) -> None:
    plant, code, at = LIVE[name]
    enqueue(store, queue="elsewhere")
    run_id = running(store)
    assert found(store) == []
    plant(planted, run_id)
    assert found(store) == [(code, run_id if at is None else task_at(run_id, at))]


ENDED: Mapping[str, tuple[Plant, Wrong, int | None]] = {
    "no end": (
        _query("UPDATE workflow_executions SET state = 'running', finished_at = NULL; "
               "DELETE FROM execution_events WHERE type = 'workflow.completed'"),
        Wrong.RUN_NOT_ENDED, None),
    "no time at which it finished": (
        _query("UPDATE workflow_executions SET finished_at = NULL"),
        Wrong.RUN_FINISHED_AT_DIFFERS, None),
    "another end than its tasks": (
        _query("UPDATE workflow_executions SET state = 'failed'; UPDATE execution_events "
               "SET type = 'workflow.failed' WHERE type = 'workflow.completed'"),
        Wrong.RUN_END_DIFFERS, None),
    "no beginning": (
        _query("DELETE FROM execution_events WHERE type = 'workflow.started'"),
        Wrong.NO_BEGINNING, None),
    "no run": (_query("DELETE FROM workflow_executions"), Wrong.RUN_LOST, None),
    "no history but that of its tasks": (
        _query("DELETE FROM execution_events WHERE task_execution_id IS NULL"),
        Wrong.NO_HISTORY, None),
    "no history of a task": (
        _query("DELETE FROM execution_events WHERE task_execution_id = :t0"),
        Wrong.NO_HISTORY, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDED)
def test_a_corruption_of_an_ended_run_is_found_and_nothing_else_is_said(
    store: Store, planted: Database, name: str
) -> None:
    plant, code, at = ENDED[name]
    run_id = ended(store)
    assert found(store) == []
    plant(planted, run_id)
    assert found(store) == [(code, run_id if at is None else task_at(run_id, at))]


@pytest.mark.parametrize(
    "rule", [Dependencies("all_succeeded"), ContextValue("size", "==", 10)], ids=["ends", "values"]
)
def test_a_task_skipped_against_its_rule_is_found(
    store: Store, planted: Database, rule: Dependencies | ContextValue
) -> None:
    worker(store)
    aside = node("aside", queue="elsewhere")
    run_id = start(store, graph(node("a"), aside, node("b", 0, rule=rule)))
    (first,) = claim_all(store)
    store.settle([completed(first, writes='{"size":10}')])
    assert found(store) == []
    skip_by_hand(planted, task_at(run_id, 2))
    assert found(store) == [(Wrong.AGAINST_ITS_RULE, task_at(run_id, 2))]


def test_a_task_let_go_against_its_rule_is_found(store: Store, planted: Database) -> None:
    worker(store)
    rule = Dependencies("any_failed")
    aside = node("aside", queue="elsewhere")
    run_id = start(store, graph(node("a"), aside, node("b", 0, rule=rule)))
    live_through(store)
    assert found(store) == []
    let_go_by_hand(planted, task_at(run_id, 2))
    planted.query(
        "UPDATE execution_events SET type = 'task.marked_ready' WHERE type = 'task.skipped'"
    )
    assert found(store) == [(Wrong.AGAINST_ITS_RULE, task_at(run_id, 2))]


def test_a_failure_that_is_not_a_runs_end_is_found(store: Store, planted: Database) -> None:
    worker(store)
    run_id = start(store, chain(2))
    live_through(store, failing(0))
    planted.query("UPDATE workflow_executions SET state = 'completed'")
    planted.query(
        "UPDATE execution_events SET type = 'workflow.completed' WHERE type = 'workflow.failed'"
    )
    assert found(store) == [(Wrong.RUN_END_DIFFERS, run_id)]


def test_another_root_of_a_task_that_is_no_part_of_a_run_is_found(
    store: Store, planted: Database
) -> None:
    run_id = start(store, chain(1))
    task_id = enqueue(store)
    planted.query(
        "UPDATE task_executions SET root_id = :run WHERE id = :task",
        {"run": run_id, "task": task_id},
    )
    assert found(store) == [(Wrong.FOREIGN_ROOT, task_id)]


def test_events_in_the_wrong_history_are_found(store: Store, planted: Database) -> None:
    run_id = start(store, chain(1))
    task_id = enqueue(store)
    tell(planted, run_id, "task.marked_ready", task_id)
    tell(planted, task_id, "workflow.paused")
    assert found(store) == [(Wrong.FOREIGN_EVENT, run_id), (Wrong.FOREIGN_EVENT, task_id)]


def test_a_child_that_lives_after_its_parent_was_cancelled_is_found(
    store: Store, planted: Database
) -> None:
    parent = run_one(store)
    store.cancel([parent.lease.execution_id])
    store.settle([finish(parent, "cancelled")])
    child = start(store, chain(2))
    assert found(store) == []
    planted.query(
        "UPDATE workflow_executions SET parent_id = :parent",
        {"parent": parent.lease.execution_id},
    )
    assert found(store) == [(Wrong.CHILD_LEFT, child)]
    store.cancel_run(child)  # as the finding says
    assert found(store) == []


# --- elements of a list -------------------------------------------------------------------


def _end_elements(database: Database, run_id: str) -> None:
    """As if the last two had been cancelled, and nobody had told their task."""
    database.query("DELETE FROM task_outbox")
    for index in (1, 2):
        id_ = element_id(run_id, 1, index)
        database.query(
            "UPDATE task_executions SET state = 'cancelled', finished_at = created_at "
            "WHERE id = :id",
            {"id": id_},
        )
        tell(database, run_id, "task.cancelled", id_)


def _end_their_task(database: Database, run_id: str) -> None:
    database.query(
        "UPDATE task_executions SET state = 'completed', awaits = NULL, finished_at = created_at "
        "WHERE id = :id",
        {"id": task_at(run_id, 1)},
    )
    tell(database, run_id, "task.completed", task_at(run_id, 1))


def _hold_the_last(database: Database, run_id: str) -> None:
    last = {"id": element_id(run_id, 1, 2)}
    database.query("DELETE FROM task_outbox WHERE task_execution_id = :id", last)
    database.query("UPDATE task_executions SET state = 'waiting' WHERE id = :id", last)
    tell(database, run_id, "task.paused", last["id"])


def _lose_the_first(database: Database, run_id: str) -> None:
    first = {"id": element_id(run_id, 1, 0)}
    database.query("DELETE FROM task_executions WHERE id = :id", first)


def test_elements_that_ended_without_their_task_are_found(store: Store, planted: Database) -> None:
    run_id = listed(store)
    _end_elements(planted, run_id)
    assert found(store) == [(Wrong.STUCK_IN_RUN, task_at(run_id, 1))]


def test_elements_that_live_after_their_task_are_found(store: Store, planted: Database) -> None:
    run_id = listed(store)
    _end_their_task(planted, run_id)
    left = [(Wrong.ELEMENT_LEFT, element_id(run_id, 1, index)) for index in (1, 2)]
    assert found(store) == [(Wrong.RUN_NOT_ENDED, run_id), *left]


def test_an_element_that_is_held_in_a_running_run_is_found(store: Store, planted: Database) -> None:
    run_id = listed(store)
    _hold_the_last(planted, run_id)
    assert found(store) == [(Wrong.STUCK_IN_RUN, element_id(run_id, 1, 2))]


def test_an_element_that_is_missing_is_found(store: Store, planted: Database) -> None:
    run_id = listed(store)
    _lose_the_first(planted, run_id)
    assert found(store) == [(Wrong.RUN_TASKS_DIFFER, run_id)]
