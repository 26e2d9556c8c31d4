"""Marks of where the last scan found work save time; they cost neither work nor much order."""

import pytest

from penstock.store import low_water
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database
from tests.contract.support import (
    OBSERVER,
    OTHER_TASK,
    TASK,
    WORKER,
    claim,
    declare_dead,
    drain,
    enqueue,
    enqueue_many,
    finish,
    ids,
    worker,
)


@pytest.fixture(autouse=True)
def marks_last(every_scan_is_thorough: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_water, "RESCAN_EVERY", 3600)


def test_work_below_the_mark_is_found_when_nothing_else_is_left(store: Store) -> None:
    worker(store)
    first, *others = enqueue_many(store, 4)
    (released,) = claim(store, limit=1)
    claim(store, limit=1)
    store.settle([finish(released, "released")])

    assert sorted([*ids(claim(store, limit=10)), *ids(claim(store, limit=10))]) == sorted(
        [first, *others[1:]]
    )


def test_recovered_work_is_found_although_its_lane_is_new(store: Store) -> None:
    worker(store)
    lost, kept = enqueue_many(store, 2)
    claim(store, limit=1)
    declare_dead(store, WORKER)

    assert sorted(drain(store, OBSERVER)) == sorted([lost, kept])


def test_a_queue_that_was_empty_is_found_when_it_is_not(store: Store) -> None:
    worker(store)
    for queue in ("a", "b"):
        assert claim(store, queues=["a", "b"]) == []
        task_id = enqueue(store, queue=queue)
        assert ids(claim(store, queues=["a", "b"])) == [task_id]


def test_a_lower_sequence_that_commits_late_is_found(
    store: Store, database: Database, clock: ManualClock
) -> None:
    worker(store)
    enqueue_many(store, 5)
    for _ in range(4):
        claim(store, limit=1)
    elsewhere = database.open(clock)
    try:
        slow = enqueue(elsewhere, priority=0)
        # A transaction that took its number first and committed last looks like this.
        database.query("UPDATE task_outbox SET seq = 0 WHERE task_execution_id = :id", {"id": slow})
    finally:
        elsewhere.close()

    assert slow in drain(store)


def test_marks_of_one_set_of_tasks_do_not_hide_work_from_another(store: Store) -> None:
    worker(store)
    strangers = enqueue_many(store, 3, OTHER_TASK)
    known = enqueue_many(store, 3, TASK)

    assert ids(claim(store, tasks=[TASK], limit=1)) == known[:1]
    assert ids(claim(store, tasks=[OTHER_TASK, TASK], limit=1)) == strangers[:1]
    assert ids(claim(store, tasks=[OTHER_TASK], limit=10)) == strangers[1:]


def test_a_long_enough_time_brings_the_order_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker(store)
    enqueue_many(store, 3)
    (first,) = claim(store, limit=1)
    claim(store, limit=1)
    store.settle([finish(first, "released")])
    urgent = enqueue(store, priority=5)
    monkeypatch.setattr(low_water.LowWater, "thorough_scan_is_due", True)

    assert ids(claim(store, limit=2)) == [urgent, first.lease.execution_id]
