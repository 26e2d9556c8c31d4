"""What monitoring watches: `gauges` counts the same as reading everything would."""

from datetime import timedelta

from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database
from tests.contract.support import (
    MINUTE,
    OBSERVER,
    QUEUE,
    TASKS,
    WORKER,
    enqueue,
    enqueue_many,
    finish,
    worker,
)

LEASE = timedelta(seconds=15)


def test_an_empty_database_has_nothing_to_watch(store: Store) -> None:
    gauges = store.gauges()

    assert gauges.queues == ()
    assert (gauges.scheduled, gauges.running, gauges.deferred, gauges.failed) == (0, 0, 0, 0)
    assert (gauges.workers, gauges.silent_workers) == (0, 0)


def test_gauges_count_live_and_failed_work_and_nothing_that_has_ended_well(
    store: Store, clock: ManualClock
) -> None:
    worker(store)
    enqueue_many(store, 7)
    one, two, three, deferred, _ = store.claim(WORKER, queues=[QUEUE], tasks=TASKS, limit=5)
    store.settle([finish(one, "completed"), finish(two, "failed"), finish(three, "cancelled")])
    store.defer([deferred.lease], reason=None)
    enqueue(store, delay=MINUTE)
    store.pause("press")
    clock.advance("10s")

    gauges = store.gauges()

    assert [(depth.queue, depth.ready, depth.oldest_age) for depth in gauges.queues] == [
        (QUEUE, 2, timedelta(seconds=10))
    ]
    assert gauges.paused == ("press",)
    assert (gauges.scheduled, gauges.running, gauges.deferred, gauges.failed) == (1, 1, 1, 1)
    counts = store.counts()
    assert gauges.scheduled == counts[State.SCHEDULED]
    assert gauges.running + gauges.deferred == counts[State.RUNNING]
    assert gauges.failed == counts[State.FAILED]
    assert sum(depth.ready for depth in gauges.queues) == counts[State.READY]


def test_a_worker_that_has_been_silent_for_two_leases_is_told_apart(
    store: Store, clock: ManualClock
) -> None:
    worker(store)
    clock.advance(2 * LEASE + timedelta(seconds=1))
    worker(store, OBSERVER)

    gauges = store.gauges(lease=LEASE)

    assert (gauges.workers, gauges.silent_workers) == (1, 1)


def test_a_claim_says_since_when_a_task_was_due(store: Store, clock: ManualClock) -> None:
    worker(store)
    begun = clock.now()
    enqueue(store)
    enqueue(store, delay=MINUTE)
    clock.advance("2m")
    store.promote()

    at_once, later = store.claim(WORKER, queues=[QUEUE], tasks=TASKS, limit=2)

    assert at_once.due_at == begun
    assert later.due_at == begun + MINUTE


def test_nobody_knows_since_when_a_rerun_was_due(store: Store, clock: ManualClock) -> None:
    worker(store)
    execution = enqueue(store)
    (claimed,) = store.claim(WORKER, queues=[QUEUE], tasks=TASKS, limit=1)
    store.settle([finish(claimed, "failed")])
    clock.advance("7d")
    store.rerun([execution])

    (again,) = store.claim(WORKER, queues=[QUEUE], tasks=TASKS, limit=1)

    assert again.due_at is None


def test_a_retry_was_due_when_its_delay_was_over(store: Store, clock: ManualClock) -> None:
    worker(store)
    enqueue(store)
    (claimed,) = store.claim(WORKER, queues=[QUEUE], tasks=TASKS, limit=1)
    store.settle([finish(claimed, "retry")])
    due = clock.now() + MINUTE
    clock.advance("90s")
    store.promote()

    (again,) = store.claim(WORKER, queues=[QUEUE], tasks=TASKS, limit=1)

    assert again.due_at == due


def test_postgres_tells_the_age_of_the_oldest_transaction_and_sqlite_has_none_to_tell(
    store: Store, database: Database
) -> None:
    oldest = store.gauges().oldest_transaction

    assert (oldest is None) == (database.dialect == "sqlite")
