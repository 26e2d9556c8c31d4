"""Histories outlive their executions, and go when those have ended long ago."""

from datetime import timedelta

import pytest

from penstock.model.executions import Swept
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database, PostgresDatabase, count
from tests.contract.support import (
    claim,
    drain,
    enqueue,
    enqueue_many,
    finish,
    run_one,
    state_of,
    types,
    worker,
)

WEEK = timedelta(days=7)
EVENTS_OF_ONE = 4  # created, marked ready, claimed, completed


@pytest.mark.parametrize("ending", ["completed", "cancelled"])
@pytest.mark.parametrize("removed", [True, False], ids=["removed", "still there"])
def test_the_history_of_what_ended_well_goes(
    store: Store, clock: ManualClock, database: Database, ending: str, removed: bool
) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, ending)])
    clock.advance("8d")
    if removed:
        assert store.sweep(older_than=WEEK).removed == 1

    assert store.sweep_events(older_than=WEEK) == Swept(EVENTS_OF_ONE, None)

    assert store.history(claimed.lease.execution_id) == []
    assert count(database, "execution_events") == 0


def test_the_history_of_what_failed_stays(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, "failed")])
    history = store.history(claimed.lease.execution_id)
    clock.advance("3650d")

    assert store.sweep_events(older_than=WEEK) == Swept(0, None)

    assert store.history(claimed.lease.execution_id) == history


def test_the_history_of_what_lives_stays_however_old_it_is(
    store: Store, clock: ManualClock, database: Database
) -> None:
    run_one(store)
    enqueue(store)
    enqueue(store, delay=timedelta(days=4000))
    enqueue_many(store, 2, serial="line")
    store.settle([finish(run_one(store, priority=1), "retry")])
    events = count(database, "execution_events")
    clock.advance("3650d")

    assert store.sweep_events(older_than=WEEK) == Swept(0, None)

    assert count(database, "execution_events") == events


@pytest.mark.parametrize("removed", [True, False], ids=["removed", "still there"])
def test_age_counts_from_the_end_of_an_execution(
    store: Store, clock: ManualClock, removed: bool
) -> None:
    claimed = run_one(store)
    clock.advance("30d")
    store.settle([finish(claimed)])
    clock.advance("6d")
    if removed:
        assert store.sweep(older_than=timedelta(days=1)).removed == 1

    assert store.sweep_events(older_than=WEEK).removed == 0

    clock.advance("1d1s")
    assert store.sweep_events(older_than=WEEK).removed == EVENTS_OF_ONE


def test_a_rerun_saves_the_history(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed)])
    clock.advance("8d")
    store.rerun([claimed.lease.execution_id])

    assert store.sweep_events(older_than=WEEK).removed == 0
    assert len(store.history(claimed.lease.execution_id)) == EVENTS_OF_ONE + 2


def test_an_execution_without_its_history_can_be_rerun(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed)])
    clock.advance("8d")
    store.sweep_events(older_than=WEEK)

    assert store.rerun([claimed.lease.execution_id]) == ["rerun"]

    assert drain(store) == [claimed.lease.execution_id]
    assert types(store.history(claimed.lease.execution_id))[0] == "task.rerun"


def test_it_goes_in_batches_of_whole_histories_and_says_where_to_go_on(
    store: Store, clock: ManualClock, database: Database
) -> None:
    worker(store)
    enqueue_many(store, 7)
    drain(store)
    clock.advance("8d")

    removed, batch = [], store.sweep_events(older_than=WEEK, limit=6)
    while batch.next is not None:
        removed.append(batch.removed)
        batch = store.sweep_events(older_than=WEEK, after=batch.next, limit=6)
    removed.append(batch.removed)

    # The sixth event is the second one's: that history goes whole with the first.
    assert removed == [8, 8, 8, 4]
    assert count(database, "execution_events") == 0


def test_it_goes_on_behind_its_cursor(store: Store, clock: ManualClock) -> None:
    worker(store)
    first, second, third = sorted(enqueue_many(store, 3))
    drain(store)
    clock.advance("8d")

    assert store.sweep_events(older_than=WEEK, after=second).removed == EVENTS_OF_ONE

    assert [len(store.history(one)) for one in (first, second, third)] == [4, 4, 0]


def test_a_failed_one_among_many_does_not_stop_it(store: Store, clock: ManualClock) -> None:
    worker(store)
    enqueue_many(store, 5)
    batch = claim(store)
    store.settle([finish(one, "failed" if n == 1 else "completed") for n, one in enumerate(batch)])
    clock.advance("8d")
    store.sweep(older_than=WEEK)

    assert store.sweep_events(older_than=WEEK).removed == 4 * EVENTS_OF_ONE

    assert state_of(store, batch[1].lease.execution_id) is State.FAILED
    assert len(store.history(batch[1].lease.execution_id)) == EVENTS_OF_ONE


def test_a_dry_run_counts_and_removes_nothing(
    store: Store, clock: ManualClock, database: Database
) -> None:
    worker(store)
    enqueue_many(store, 3)
    drain(store)
    clock.advance("8d")

    assert store.sweep_events(older_than=WEEK, dry_run=True) == Swept(3 * EVENTS_OF_ONE, None)

    assert count(database, "execution_events") == 3 * EVENTS_OF_ONE


def test_a_history_whose_execution_vanished_before_it_ended_stays(
    store: Store, clock: ManualClock, database: Database
) -> None:
    """Whoever removed the execution by hand may want to know what it did."""
    execution_id = enqueue(store)
    claimed = run_one(store, priority=1)
    store.settle([finish(claimed, "failed")])
    database.query("DELETE FROM task_outbox")
    database.query("DELETE FROM task_executions")
    clock.advance("3650d")

    assert store.sweep_events(older_than=WEEK).removed == 0

    assert len(store.history(execution_id)) == 2
    database.query("DELETE FROM execution_events")


def test_a_rerun_that_is_under_way_keeps_the_history_and_is_not_waited_for(
    emptied_postgres: PostgresDatabase, clock: ManualClock
) -> None:
    store = emptied_postgres.open(clock)
    claimed = run_one(store)
    store.settle([finish(claimed)])
    clock.advance("8d")
    with emptied_postgres.connect() as connection:
        connection.execute("SELECT id FROM task_executions FOR NO KEY UPDATE")

        assert store.sweep_events(older_than=WEEK).removed == 0

    assert store.sweep_events(older_than=WEEK).removed == EVENTS_OF_ONE
    store.close()
