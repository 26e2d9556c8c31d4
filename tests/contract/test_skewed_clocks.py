"""Clocks differ between machines and jump on one; nothing but due times may depend on them."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database
from tests.contract.support import (
    OBSERVER,
    WORKER,
    beat_of,
    claim,
    enqueue,
    enqueue_many,
    finish,
    ids,
    run_one,
    state_of,
    types,
    worker,
)

HOUR = timedelta(hours=1)


@pytest.fixture(params=[-HOUR, HOUR], ids=["an hour behind", "an hour ahead"])
def skewed(
    request: pytest.FixtureRequest, database: Database, store: Store, clock: ManualClock
) -> Iterator[Store]:
    """The same database, seen by someone whose clock goes wrong."""
    skewed = database.open(ManualClock(clock.now() + request.param))
    yield skewed
    skewed.close()


def test_a_task_created_elsewhere_is_claimed_and_settled_at_once(
    store: Store, skewed: Store
) -> None:
    worker(store)
    task_id = enqueue(skewed)
    (claimed,) = claim(store)

    assert claimed.lease.execution_id == task_id
    assert skewed.settle([finish(claimed)]) == []
    assert state_of(store, task_id) is State.COMPLETED


def test_the_order_is_that_of_the_database_and_not_of_the_clocks(
    store: Store, skewed: Store
) -> None:
    worker(store)
    in_order = [enqueue(one) for one in (store, skewed, store, skewed)]

    assert ids(claim(store)) == in_order


def test_an_observer_whose_clock_goes_wrong_kills_nobody(store: Store, skewed: Store) -> None:
    running = run_one(store)
    worker(skewed, OBSERVER)
    seen = beat_of(skewed, WORKER)
    store.heartbeat(WORKER)

    assert skewed.recover(OBSERVER) == []
    assert skewed.recover(OBSERVER, dead=[seen]) == []

    assert store.start([running.lease]) == []


def test_a_clock_that_jumps_kills_nobody(store: Store, clock: ManualClock) -> None:
    running = run_one(store)
    worker(store, OBSERVER)
    clock.advance("30d")

    assert store.recover(OBSERVER) == []

    assert store.heartbeat(WORKER).alive
    assert store.settle([finish(running)]) == []


def test_a_history_keeps_its_order_when_the_clock_goes_back(
    store: Store, clock: ManualClock
) -> None:
    claimed = run_one(store)
    clock.set_to(clock.now() - HOUR)
    store.settle([finish(claimed)])

    assert types(store.history(claimed.lease.execution_id)) == [
        "task.created",
        "task.marked_ready",
        "task.claimed",
        "task.completed",
    ]


def test_work_goes_on_while_the_clock_goes_back(store: Store, clock: ManualClock) -> None:
    worker(store)
    first = enqueue_many(store, 3)
    clock.set_to(clock.now() - HOUR)
    second = enqueue_many(store, 3)

    assert ids(claim(store)) == first + second
