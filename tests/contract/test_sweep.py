from datetime import timedelta

import pytest

from penstock.model.executions import Swept
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database, count
from tests.contract.support import (
    MINUTE,
    claim,
    drain,
    enqueue,
    enqueue_many,
    finish,
    run_one,
    state_of,
    worker,
)

WEEK = timedelta(days=7)


@pytest.mark.parametrize("ending", ["completed", "cancelled"])
def test_what_ended_well_is_removed_and_leaves_its_history(
    store: Store, clock: ManualClock, ending: str
) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, ending)])
    history = store.history(claimed.lease.execution_id)
    clock.advance("8d")

    assert store.sweep(older_than=WEEK) == Swept(removed=1, next=None)

    assert store.get([claimed.lease.execution_id]) == []
    assert store.history(claimed.lease.execution_id) == history


def test_a_dry_run_counts_and_removes_nothing(store: Store, clock: ManualClock) -> None:
    worker(store)
    enqueue_many(store, 5)
    drain(store)
    clock.advance("8d")

    first = store.sweep(older_than=WEEK, limit=3, dry_run=True)
    second = store.sweep(older_than=WEEK, limit=3, after=first.next, dry_run=True)

    assert (first.removed, second) == (3, Swept(2, None))
    assert store.counts()[State.COMPLETED] == 5
    assert store.sweep(older_than=WEEK).removed == 5


def test_an_age_beyond_all_time_finds_nothing(store: Store, clock: ManualClock) -> None:
    store.settle([finish(run_one(store))])
    clock.advance("8d")

    assert store.sweep(older_than=timedelta(days=36_525)) == Swept(0, None)
    assert store.sweep_events(older_than=timedelta(days=36_525)) == Swept(0, None)


def test_what_an_execution_did_once_is_forgotten_with_it(
    store: Store, clock: ManualClock, database: Database
) -> None:
    claimed = run_one(store)
    database.query(
        "INSERT INTO once_ledger (task_execution_id, name, at) "
        f"SELECT id, 'charge', created_at FROM task_executions "
        f"WHERE id = '{claimed.lease.execution_id}'"
    )
    store.settle([finish(claimed)])
    clock.advance("8d")

    store.sweep(older_than=WEEK)

    assert count(database, "once_ledger") == 0


def test_what_failed_stays_with_its_events(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, "failed")])
    history = store.history(claimed.lease.execution_id)
    clock.advance("3650d")

    assert store.sweep(older_than=WEEK) == Swept(0, None)

    assert state_of(store, claimed.lease.execution_id) is State.FAILED
    assert store.history(claimed.lease.execution_id) == history


def test_what_lives_stays_with_its_events_however_old_it_is(
    store: Store, clock: ManualClock, database: Database
) -> None:
    run_one(store)
    enqueue(store)
    enqueue(store, delay=timedelta(days=4000))
    enqueue_many(store, 2, serial="line")
    events = count(database, "execution_events")
    clock.advance("3650d")

    assert store.sweep(older_than=WEEK) == Swept(0, None)

    assert count(database, "task_executions") == 5
    assert count(database, "execution_events") == events


def test_what_has_just_finished_stays(store: Store, clock: ManualClock) -> None:
    old = run_one(store)
    young = run_one(store)
    store.settle([finish(old)])
    clock.advance("7d")
    store.settle([finish(young)])
    clock.advance(MINUTE)

    assert store.sweep(older_than=WEEK).removed == 1

    assert state_of(store, young.lease.execution_id) is State.COMPLETED


def test_age_counts_from_the_end_of_an_execution(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    clock.advance("30d")
    store.settle([finish(claimed)])
    clock.advance("6d")

    assert store.sweep(older_than=WEEK).removed == 0

    clock.advance("1d1s")
    assert store.sweep(older_than=WEEK).removed == 1


def test_a_sweep_goes_in_batches_and_says_where_to_go_on(store: Store, clock: ManualClock) -> None:
    worker(store)
    enqueue_many(store, 7)
    drain(store)
    clock.advance("8d")

    first = store.sweep(older_than=WEEK, limit=3)
    second = store.sweep(older_than=WEEK, after=first.next, limit=3)
    third = store.sweep(older_than=WEEK, after=second.next, limit=3)

    assert [first.removed, second.removed, third.removed] == [3, 3, 1]
    assert third.next is None
    assert store.find() == []


def test_a_sweep_goes_on_behind_its_cursor(store: Store, clock: ManualClock) -> None:
    worker(store)
    first, second, third = sorted(enqueue_many(store, 3))
    drain(store)
    clock.advance("8d")

    assert store.sweep(older_than=WEEK, after=second).removed == 1

    assert [one.id for one in store.get([first, second, third])] == [first, second]


def test_a_failed_one_among_many_does_not_stop_the_sweep(store: Store, clock: ManualClock) -> None:
    worker(store)
    enqueue_many(store, 5)
    batch = claim(store)
    store.settle([finish(one, "failed" if n == 1 else "completed") for n, one in enumerate(batch)])
    clock.advance("8d")

    assert store.sweep(older_than=WEEK, limit=1000).removed == 4

    assert [one.state for one in store.find()] == [State.FAILED]


def test_a_rerun_saves_an_execution_from_the_sweep(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed)])
    clock.advance("8d")
    store.rerun([claimed.lease.execution_id])

    assert store.sweep(older_than=WEEK).removed == 0
    assert len(store.history(claimed.lease.execution_id)) == 6


def test_a_swept_execution_is_unknown_to_everything(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed)])
    clock.advance("8d")
    store.sweep(older_than=WEEK)

    assert store.rerun([claimed.lease.execution_id]) == ["unknown"]
    assert store.cancel([claimed.lease.execution_id]) == ["unknown"]
    assert store.explain_waiting(claimed.lease.execution_id) is None
