import pytest
from msgspec.structs import replace

from penstock.model.ids import new_id
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.support import (
    MINUTE,
    claim,
    crash,
    drain,
    enqueue,
    enqueue_many,
    finish,
    get,
    ids,
    last_event,
    run_one,
    state_of,
    types,
    worker,
)


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
def test_a_finished_task_lives_again(store: Store, clock: ManualClock, ending: str) -> None:
    first = run_one(store)
    store.settle([finish(first, ending)])
    clock.advance(MINUTE)

    assert store.rerun([first.lease.execution_id]) == ["rerun"]

    stored = get(store, first.lease.execution_id)
    assert stored.state is State.READY
    assert (stored.result, stored.error, stored.finished_at) == (None, None, None)
    assert types(store.history(stored.id))[-2:] == ["task.rerun", "task.marked_ready"]
    assert last_event(store, stored.id).at == clock.now()
    (again,) = claim(store)
    assert again.lease.fence > first.lease.fence
    assert store.settle([finish(again)]) == []


def test_a_rerun_has_fresh_retries_and_crashes(store: Store, clock: ManualClock) -> None:
    worker(store)
    task_id = enqueue(store, max_crashes=2)
    (first,) = claim(store)
    store.settle([finish(first, "retry")])
    clock.advance(MINUTE)
    store.promote()
    crash(store, task_id)
    crash(store, task_id)
    failed = get(store, task_id)
    assert (failed.state, failed.retries, failed.crashes) == (State.FAILED, 1, 2)

    store.rerun([task_id])

    stored = get(store, task_id)
    assert (stored.retries, stored.crashes, stored.suspect) == (0, 0, False)
    assert len(claim(store, suspects=False)) == 1


def test_a_rerun_goes_to_the_end_of_its_queue(store: Store) -> None:
    worker(store)
    first, second = enqueue_many(store, 2)
    drain(store)
    third = enqueue(store)

    store.rerun([second, first])

    assert set(ids(claim(store, limit=3))[1:]) == {first, second}
    assert state_of(store, third) is State.RUNNING


def test_a_rerun_is_due_at_once_even_when_the_first_run_was_delayed(
    store: Store, clock: ManualClock
) -> None:
    task_id = enqueue(store, delay=MINUTE)
    store.cancel([task_id])

    store.rerun([task_id])

    assert state_of(store, task_id) is State.READY


def test_a_live_task_is_left_alone(store: Store) -> None:
    running = run_one(store).lease.execution_id
    ready, later = enqueue(store), enqueue(store, delay=MINUTE)
    _, waiting = enqueue_many(store, 2, serial="line")
    live = [running, ready, later, waiting]
    before = store.get(live)

    assert store.rerun(live) == ["live"] * 4

    assert store.get(live) == before


def test_answers_come_in_the_order_of_the_call(store: Store) -> None:
    running = run_one(store).lease.execution_id
    finished = run_one(store)
    store.settle([finish(finished)])

    asked = [new_id(), finished.lease.execution_id, running]

    assert store.rerun(asked) == ["unknown", "rerun", "live"]
    assert store.rerun([]) == []


def test_a_lease_of_the_first_life_cannot_settle_the_second(store: Store) -> None:
    first = run_one(store)
    store.settle([finish(first, "failed")])
    store.rerun([first.lease.execution_id])
    (second,) = claim(store)
    third_party = replace(first.lease, fence=first.lease.fence + 1)
    before = get(store, second.lease.execution_id)

    store.settle([finish(first)])
    assert store.start([first.lease, third_party]) == [first.lease, third_party]

    assert get(store, second.lease.execution_id) == before


def test_a_rerun_joins_its_serial_at_the_end(store: Store) -> None:
    worker(store)
    first, second, third = enqueue_many(store, 3, serial="line")
    (head,) = claim(store)
    store.settle([finish(head)])

    assert store.rerun([first]) == ["rerun"]

    assert state_of(store, first) is State.WAITING
    assert drain(store) == [second, third, first]


def test_a_rerun_whose_serial_is_free_goes_at_once(store: Store) -> None:
    worker(store)
    task_id = enqueue(store, serial="line")
    drain(store)

    store.rerun([task_id])

    assert state_of(store, task_id) is State.READY
    assert types(store.history(task_id))[-2:] == ["task.rerun", "task.marked_ready"]


def test_several_of_a_serial_run_again_one_at_a_time(store: Store) -> None:
    worker(store)
    line = enqueue_many(store, 3, serial="line")
    drain(store)

    store.rerun(line)

    assert sorted(drain(store)) == line
    assert {state_of(store, task_id) for task_id in line} == {State.COMPLETED}


def test_the_error_of_the_first_life_stays_in_the_history(store: Store) -> None:
    first = run_one(store)
    store.settle([finish(first, "failed")])
    store.rerun([first.lease.execution_id])

    failed = [event for event in store.history(first.lease.execution_id) if "error" in event.data]
    assert [event.type for event in failed] == ["task.failed"]
