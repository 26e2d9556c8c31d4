"""Retention takes a run whole, with its tasks and their histories, or leaves all of it."""

from datetime import timedelta

import pytest

from penstock.model.executions import Swept
from penstock.model.rules import Dependencies
from penstock.model.runs import RunState
from penstock.model.verifying import findings_in
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database, PostgresDatabase, count
from tests.contract.flows import (
    chain,
    claim_all,
    completed,
    diamond,
    failing,
    graph,
    live_through,
    node,
    run_of,
    start,
    states,
    task_at,
)
from tests.contract.support import MINUTE, drain, enqueue_many, types, worker

WEEK = timedelta(days=7)
OF_A_CHAIN_OF_TWO = 10  # started, completed; per task: created, ready, claimed, completed


def lived(store: Store, length: int = 2) -> str:
    worker(store)
    run_id = start(store, chain(length))
    live_through(store)
    return run_id


def test_a_run_that_completed_goes_with_all_of_its_tasks_and_leaves_its_history(
    store: Store, clock: ManualClock, database: Database
) -> None:
    worker(store)
    run_id = start(store, diamond())
    database.query(
        "INSERT INTO once_ledger (task_execution_id, name, at) "
        "SELECT id, 'charge', created_at FROM task_executions"
    )
    for table, kept in (("step_results", "result"), ("signals", "data")):
        database.query(
            f"INSERT INTO {table} (task_execution_id, name, {kept}, at) "
            "SELECT id, 'charge', 'null', created_at FROM task_executions"
        )
    live_through(store)
    history = store.history(run_id)
    clock.advance("8d")

    assert store.sweep(older_than=WEEK) == Swept(removed=5, next=None)

    assert store.runs([run_id]) == []
    assert store.tasks_of(run_id) == []
    for table in ("once_ledger", "step_results", "signals"):
        assert count(database, table) == 0
    assert store.history(run_id) == history
    assert findings_in(store.examine()) == []


def test_a_run_that_was_cancelled_goes(store: Store, clock: ManualClock) -> None:
    run_id = start(store, chain(3))
    store.cancel_run(run_id)
    clock.advance("8d")

    assert store.sweep(older_than=WEEK).removed == 4


def test_a_failure_that_was_forgiven_goes_with_its_run(store: Store, clock: ManualClock) -> None:
    worker(store)
    rescue = graph(node("try"), node("fallback", 0, rule=Dependencies("any_failed")))
    run_id = start(store, rescue)
    live_through(store, failing(0))
    assert run_of(store, run_id).state is RunState.COMPLETED
    clock.advance("8d")

    assert store.sweep(older_than=WEEK).removed == 3

    assert findings_in(store.examine()) == []
    assert store.sweep_events(older_than=WEEK).removed > 0
    assert store.history(run_id) == []


def test_a_run_that_failed_stays_with_all_of_its_tasks(
    store: Store, clock: ManualClock, database: Database
) -> None:
    worker(store)
    run_id = start(store, chain(3))
    live_through(store, failing(1))
    events = count(database, "execution_events")
    clock.advance("3650d")

    assert store.sweep(older_than=WEEK) == Swept(0, None)
    assert store.sweep_events(older_than=WEEK) == Swept(0, None)

    assert len(states(store, run_id)) == 3
    assert count(database, "execution_events") == events


@pytest.mark.parametrize("paused", [True, False])
def test_a_run_that_lives_stays_with_its_ended_tasks_however_old_these_are(
    store: Store, clock: ManualClock, database: Database, paused: bool
) -> None:
    worker(store)
    run_id = start(store, chain(3))
    (first,) = claim_all(store)
    store.settle([completed(first)])
    if paused:
        store.pause_run(run_id)
    events = count(database, "execution_events")
    clock.advance("3650d")

    assert store.sweep(older_than=WEEK) == Swept(0, None)
    assert store.sweep_events(older_than=WEEK) == Swept(0, None)

    assert len(states(store, run_id)) == 3
    assert count(database, "execution_events") == events


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "still there"])
def test_age_counts_from_the_end_of_the_run(
    store: Store, clock: ManualClock, removed: bool
) -> None:
    worker(store)
    start(store, chain(2))
    (first,) = claim_all(store)
    store.settle([completed(first)])
    clock.advance("30d")
    live_through(store)
    clock.advance("6d")

    assert store.sweep(older_than=WEEK).removed == 0
    if removed:
        assert store.sweep(older_than=timedelta(days=1)).removed == 3
    assert store.sweep_events(older_than=WEEK).removed == 0

    clock.advance("1d1s")
    assert store.sweep(older_than=WEEK).removed == (0 if removed else 3)
    assert store.sweep_events(older_than=WEEK).removed == OF_A_CHAIN_OF_TWO


@pytest.mark.parametrize("dry_run", [True, False])
def test_batches_count_tasks_and_take_the_last_run_whole(
    store: Store, clock: ManualClock, dry_run: bool
) -> None:
    plain = enqueue_many(store, 2)
    for _ in range(3):
        lived(store, 3)
    plain += enqueue_many(store, 1)
    drain(store)
    clock.advance("8d")

    removed, after = [], None
    while True:
        batch = store.sweep(older_than=WEEK, after=after, limit=4, dry_run=dry_run)
        removed.append(batch.removed)
        after = batch.next
        if after is None:
            break

    # Two plain ones and two tasks make four, and the whole run makes six; then a run and a
    # task of the next; then what is left.
    assert removed == [6, 8, 1]
    assert len(store.get(plain)) == (3 if dry_run else 0)
    assert len(store.find_runs()) == (3 if dry_run else 0)


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "still there"])
@pytest.mark.parametrize("ending", ["completed", "cancelled"])
def test_the_history_of_a_run_that_ended_well_goes_whole(
    store: Store, clock: ManualClock, database: Database, removed: bool, ending: str
) -> None:
    worker(store)
    run_id = start(store, chain(2))
    if ending == "cancelled":
        store.cancel_run(run_id)
    live_through(store)
    events = count(database, "execution_events")
    clock.advance("8d")
    if removed:
        assert store.sweep(older_than=WEEK).removed == 3

    assert store.sweep_events(older_than=WEEK, dry_run=True) == Swept(events, None)
    assert store.sweep_events(older_than=WEEK) == Swept(events, None)

    assert store.history(run_id) == store.history(task_at(run_id, 0)) == []
    assert count(database, "execution_events") == 0
    assert findings_in(store.examine()) == []


def test_histories_go_in_batches_of_whole_runs(
    store: Store, clock: ManualClock, database: Database
) -> None:
    for _ in range(3):
        lived(store)
    clock.advance("8d")

    removed, batch = [], store.sweep_events(older_than=WEEK, limit=6)
    while batch.next is not None:
        removed.append(batch.removed)
        batch = store.sweep_events(older_than=WEEK, after=batch.next, limit=6)
    removed.append(batch.removed)

    assert [one for one in removed if one] == [OF_A_CHAIN_OF_TWO] * 3
    assert count(database, "execution_events") == 0


def test_the_history_of_a_run_that_vanished_before_its_end_stays(
    store: Store, clock: ManualClock, database: Database
) -> None:
    """Its last event says that a task completed, which is not the end of the run."""
    worker(store)
    run_id = start(store, graph(node("a"), node("b")))
    first, _ = claim_all(store)
    store.settle([completed(first)])
    assert types(store.history(run_id))[-1] == "task.completed"
    for table in ("task_executions", "workflow_executions"):
        database.query(f"DELETE FROM {table}")
    clock.advance("3650d")

    assert store.sweep_events(older_than=WEEK).removed == 0
    database.empty()


def test_a_rerun_saves_a_run_and_its_history(store: Store, clock: ManualClock) -> None:
    run_id = lived(store)
    clock.advance("8d")
    store.rerun([task_at(run_id, 1)])

    assert store.sweep(older_than=WEEK) == Swept(0, None)
    assert store.sweep_events(older_than=WEEK) == Swept(0, None)
    assert findings_in(store.examine()) == []


def test_a_run_without_its_history_can_be_rerun(store: Store, clock: ManualClock) -> None:
    run_id = lived(store)
    clock.advance("8d")
    assert store.sweep_events(older_than=WEEK).removed == OF_A_CHAIN_OF_TWO
    store.rerun([task_at(run_id, 1)])

    assert types(store.history(run_id))[0] in {"workflow.rerun", "task.rerun"}
    assert findings_in(store.examine()) == []
    live_through(store)
    assert findings_in(store.examine()) == []
    clock.advance(MINUTE)
    assert run_of(store, run_id).state is RunState.COMPLETED


def test_a_run_that_somebody_holds_stays_and_is_not_waited_for(
    emptied_postgres: PostgresDatabase, clock: ManualClock
) -> None:
    store = emptied_postgres.open(clock)
    lived(store)
    clock.advance("8d")
    with emptied_postgres.connect() as connection:
        connection.execute("SELECT id FROM workflow_executions FOR NO KEY UPDATE")

        assert store.sweep(older_than=WEEK) == Swept(0, None)
        assert store.sweep_events(older_than=WEEK) == Swept(0, None)

    assert store.sweep(older_than=WEEK).removed == 3
    assert store.sweep_events(older_than=WEEK).removed == OF_A_CHAIN_OF_TWO
    store.close()
