from datetime import timedelta

import pytest

from penstock.errors import KeyTaken
from penstock.model.executions import Created
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.support import (
    MINUTE,
    OTHER_TASK,
    claim,
    drain,
    enqueue,
    finish,
    ids,
    new,
    run_one,
    state_of,
    types,
    worker,
)


@pytest.mark.parametrize("delay", [None, MINUTE])
def test_a_key_that_a_live_execution_has_is_answered_with_its_holder(
    store: Store, delay: timedelta | None
) -> None:
    holder = enqueue(store, key="order-1", delay=delay)

    (answer,) = store.create([new(key="order-1")])

    assert answer == Created(holder, created=False, state=state_of(store, holder))
    assert len(store.find()) == 1


def test_a_running_execution_keeps_its_key(store: Store) -> None:
    running = run_one(store, key="order-1")

    (answer,) = store.create([new(key="order-1")])

    assert answer == Created(running.lease.execution_id, created=False, state=State.RUNNING)


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
def test_a_finished_execution_gives_its_key_back(store: Store, ending: str) -> None:
    running = run_one(store, key="order-1")
    store.settle([finish(running, ending)])

    (answer,) = store.create([new(key="order-1")])

    assert answer.created


def test_a_cancelled_execution_gives_its_key_back(store: Store) -> None:
    waiting = enqueue(store, key="order-1", delay=MINUTE)
    store.cancel([waiting])

    (answer,) = store.create([new(key="order-1")])

    assert answer.created


def test_keys_of_different_tasks_do_not_meet(store: Store) -> None:
    enqueue(store, key="order-1")

    (answer,) = store.create([new(OTHER_TASK, key="order-1")])

    assert answer.created


def test_keys_of_different_tasks_do_not_meet_in_one_batch_either(store: Store) -> None:
    asked = [(OTHER_TASK, "a"), ("send_email", "a"), (OTHER_TASK, "b"), ("send_email", "c")]
    first = [new(task, key=key) for task, key in asked]
    assert all(answer.created for answer in store.create(first))

    again = store.create([new("send_email", key="d"), *(new(task, key=key) for task, key in asked)])

    assert [answer.id for answer in again[1:]] == [one.id for one in first]
    assert [answer.created for answer in again] == [True, False, False, False, False]


def test_of_two_with_one_key_in_a_batch_the_first_is_written(store: Store) -> None:
    first, second = new(key="order-1"), new(key="order-1")
    # The smaller id comes second, so the order of the call is what decides.
    if first.id < second.id:
        first, second = second, first

    answers = store.create([first, second])

    assert answers == [
        Created(first.id, created=True, state=State.READY),
        Created(first.id, created=False, state=State.READY),
    ]


def test_taken_and_free_keys_of_a_batch_are_answered_in_its_order(store: Store) -> None:
    holder = enqueue(store, key="b")
    batch = [new(key="c"), new(key="b"), new(), new(key="a")]

    answers = store.create(batch)

    assert [answer.created for answer in answers] == [True, False, True, True]
    assert [answer.id for answer in answers] == [batch[0].id, holder, batch[2].id, batch[3].id]


def test_a_batch_is_handed_out_in_its_order_whatever_its_keys_are(store: Store) -> None:
    worker(store)
    batch = [new(key="c"), new(), new(key="a"), new(key="b")]
    store.create(batch)

    assert ids(claim(store)) == [one.id for one in batch]


def test_an_execution_whose_key_was_taken_has_no_place_in_its_serial(store: Store) -> None:
    worker(store)
    first = enqueue(store, key="order-1", serial="line")
    store.create([new(key="order-1", serial="line")])
    last = enqueue(store, serial="line")

    assert drain(store) == [first, last]


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
def test_a_rerun_takes_the_key_again(store: Store, ending: str) -> None:
    running = run_one(store, key="order-1")
    store.settle([finish(running, ending)])
    store.rerun([running.lease.execution_id])

    (answer,) = store.create([new(key="order-1")])

    assert answer == Created(running.lease.execution_id, created=False, state=State.READY)


def test_a_rerun_whose_key_is_taken_reruns_none(store: Store, clock: ManualClock) -> None:
    worker(store)
    free, without = enqueue(store, key="order-1"), enqueue(store)
    drain(store)
    holder = enqueue(store, key="order-1")
    before = store.get([free, without])
    clock.advance(1)

    with pytest.raises(KeyTaken) as taken:
        store.rerun([without, free])

    assert (taken.value.execution_id, taken.value.key) == (free, "order-1")
    assert taken.value.holder == holder
    assert store.get([free, without]) == before
    assert types(store.history(without))[-1] == "task.completed"


def test_two_finished_executions_of_one_key_cannot_both_be_rerun(store: Store) -> None:
    worker(store)
    first = enqueue(store, key="order-1")
    drain(store)
    second = enqueue(store, key="order-1")
    drain(store)

    with pytest.raises(KeyTaken):
        store.rerun([first, second])

    assert {state_of(store, first), state_of(store, second)} == {State.COMPLETED}
    assert store.rerun([second]) == ["rerun"]
