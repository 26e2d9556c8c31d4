from datetime import timedelta

from penstock.model.executions import Promoted
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.support import (
    MINUTE,
    claim,
    enqueue,
    enqueue_many,
    finish,
    ids,
    last_event,
    run_one,
    state_of,
    types,
    worker,
)

MICROSECOND = timedelta(microseconds=1)


def test_a_task_is_due_at_its_very_moment_and_not_before(store: Store, clock: ManualClock) -> None:
    task_id = enqueue(store, run_at=clock.now() + MINUTE)

    clock.advance(MINUTE - MICROSECOND)
    assert store.promote() == Promoted(0, MICROSECOND)
    assert state_of(store, task_id) is State.SCHEDULED

    clock.advance(MICROSECOND)
    assert store.promote() == Promoted(1, None)
    assert state_of(store, task_id) is State.READY
    told = last_event(store, task_id)
    assert (told.type, told.at) == ("task.marked_ready", clock.now())


def test_nothing_scheduled_is_nothing_to_wait_for(store: Store) -> None:
    enqueue(store)

    assert store.promote() == Promoted(0, None)


def test_the_longest_due_goes_first(store: Store, clock: ManualClock) -> None:
    worker(store)
    late = enqueue(store, delay=timedelta(seconds=30))
    early = enqueue(store, delay=timedelta(seconds=10))
    middle = enqueue(store, delay=timedelta(seconds=20))
    clock.advance(MINUTE)

    assert store.promote().promoted == 3

    assert ids(claim(store)) == [early, middle, late]


def test_a_batch_takes_the_longest_due(store: Store, clock: ManualClock) -> None:
    worker(store)
    later = [enqueue(store, delay=timedelta(seconds=seconds)) for seconds in (40, 30, 20, 10)]
    clock.advance(MINUTE)

    assert store.promote(limit=3).promoted == 3
    assert ids(claim(store)) == later[:0:-1]
    assert store.promote(limit=3).promoted == 1
    assert ids(claim(store)) == later[:1]


def test_the_next_due_time_is_the_nearest_one(store: Store, clock: ManualClock) -> None:
    enqueue(store, delay=timedelta(hours=2))
    enqueue(store, delay=timedelta(hours=1))
    enqueue(store, delay=timedelta(seconds=1))
    clock.advance(MINUTE)

    assert store.promote() == Promoted(1, timedelta(minutes=59))


def test_promoted_work_comes_after_what_is_ready_already(store: Store, clock: ManualClock) -> None:
    worker(store)
    scheduled = enqueue(store, delay=MINUTE)
    ready = enqueue(store)
    clock.advance(MINUTE)
    store.promote()

    assert ids(claim(store)) == [ready, scheduled]


def test_promoted_work_keeps_its_queue_and_priority(store: Store, clock: ManualClock) -> None:
    worker(store)
    enqueue(store, queue="mail")
    urgent = enqueue(store, queue="mail", priority=7, delay=MINUTE)
    clock.advance(MINUTE)
    store.promote()

    (first, _) = claim(store, queues=["mail"])

    assert (first.lease.execution_id, first.priority) == (urgent, 7)


def test_promoting_twice_hands_out_once(store: Store, clock: ManualClock) -> None:
    worker(store)
    enqueue_many(store, 3, delay=MINUTE)
    clock.advance(MINUTE)

    assert (store.promote().promoted, store.promote().promoted) == (3, 0)
    assert len(claim(store)) == 3


def test_a_retry_that_is_due_runs_again(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, "retry")])
    assert store.promote() == Promoted(0, MINUTE)
    clock.advance(MINUTE)
    store.promote()

    assert ids(claim(store)) == [claimed.lease.execution_id]
    assert types(store.history(claimed.lease.execution_id)) == [
        "task.created", "task.marked_ready", "task.claimed", "task.retry_scheduled",
        "task.marked_ready", "task.claimed",
    ]  # fmt: skip


def test_a_clock_that_steps_back_promotes_nothing_early(store: Store, clock: ManualClock) -> None:
    task_id = enqueue(store, delay=MINUTE)
    clock.set_to(clock.now() - timedelta(hours=1))

    assert store.promote() == Promoted(0, timedelta(hours=1) + MINUTE)
    assert state_of(store, task_id) is State.SCHEDULED
