import pytest

from penstock.model.ids import new_id
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database, count
from tests.contract.support import (
    MINUTE,
    WORKER,
    claim,
    drain,
    enqueue,
    finish,
    get,
    last_event,
    run_one,
    state_of,
    types,
    worker,
)


def test_a_ready_task_is_cancelled_at_once(
    store: Store, clock: ManualClock, database: Database
) -> None:
    worker(store)
    task_id = enqueue(store)
    clock.advance("1s")

    assert store.cancel([task_id], reason="no longer wanted") == ["cancelled"]

    stored = get(store, task_id)
    assert (stored.state, stored.finished_at) == (State.CANCELLED, clock.now())
    assert count(database, "task_outbox") == 0
    told = last_event(store, task_id)
    assert (told.type, told.at) == ("task.cancelled", clock.now())
    assert told.data == {"reason": "no longer wanted"}
    assert claim(store) == []


def test_a_scheduled_task_is_cancelled_at_once(store: Store, clock: ManualClock) -> None:
    task_id = enqueue(store, delay=MINUTE)

    assert store.cancel([task_id]) == ["cancelled"]

    clock.advance(MINUTE)
    assert store.promote() == (0, None)
    assert state_of(store, task_id) is State.CANCELLED


def test_a_waiting_task_is_cancelled_at_once(store: Store) -> None:
    worker(store)
    first = enqueue(store, serial="line")
    middle = enqueue(store, serial="line")
    last = enqueue(store, serial="line")

    assert store.cancel([middle]) == ["cancelled"]

    assert drain(store) == [first, last]


def test_a_running_task_is_asked_to_stop(store: Store) -> None:
    claimed = run_one(store)

    assert store.cancel([claimed.lease.execution_id]) == ["requested"]

    stored = get(store, claimed.lease.execution_id)
    assert (stored.state, stored.cancel_requested) == (State.RUNNING, True)
    assert stored.fence == claimed.lease.fence
    assert store.start([claimed.lease]) == []


def test_why_a_running_task_was_asked_to_stop_is_in_its_history(store: Store) -> None:
    claimed = run_one(store)

    store.cancel([claimed.lease.execution_id], reason="no longer wanted")
    store.cancel([claimed.lease.execution_id], reason="asked again")
    store.settle([finish(claimed, "failed")])

    *_, asked, ended = store.history(claimed.lease.execution_id)
    assert (asked.type, asked.worker_id) == ("task.cancel_requested", None)
    assert asked.data == {"reason": "no longer wanted"}
    assert (ended.type, ended.worker_id) == ("task.cancelled", WORKER)


def test_asking_again_is_answered_the_same(store: Store) -> None:
    claimed = run_one(store)
    store.cancel([claimed.lease.execution_id])
    history = store.history(claimed.lease.execution_id)

    assert store.cancel([claimed.lease.execution_id]) == ["requested"]

    assert store.history(claimed.lease.execution_id) == history


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
def test_a_finished_task_stays_as_it_ended(store: Store, ending: str) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, ending)])
    before = get(store, claimed.lease.execution_id)

    assert store.cancel([before.id]) == ["finished"]

    assert get(store, before.id) == before


def test_cancelling_again_after_a_lost_reply_changes_nothing(store: Store) -> None:
    task_id = enqueue(store)
    store.cancel([task_id])

    assert store.cancel([task_id]) == ["finished"]

    assert types(store.history(task_id)).count("task.cancelled") == 1


def test_answers_come_in_the_order_of_the_call(store: Store) -> None:
    running = run_one(store).lease.execution_id
    finished = run_one(store)
    store.settle([finish(finished)])
    ready, later = enqueue(store), enqueue(store, delay=MINUTE)

    asked = [later, new_id(), running, finished.lease.execution_id, ready]

    assert store.cancel(asked) == ["cancelled", "unknown", "requested", "finished", "cancelled"]
    assert store.cancel([]) == []


def test_a_cancel_request_does_not_outlive_the_task_it_was_for(store: Store) -> None:
    claimed = run_one(store)
    store.cancel([claimed.lease.execution_id])
    store.settle([finish(claimed, "cancelled")])
    store.rerun([claimed.lease.execution_id])
    (again,) = claim(store)

    assert get(store, again.lease.execution_id).cancel_requested is False
    assert store.settle([finish(again, "released")]) == []
    assert state_of(store, again.lease.execution_id) is State.READY
