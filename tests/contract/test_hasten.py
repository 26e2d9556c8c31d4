"""What is scheduled can be had now: a retry that somebody does not want to wait for."""

from datetime import timedelta

from msgspec.structs import replace

from penstock.model.events import EventType
from penstock.model.ids import new_id
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.flows import chain, claim_all, live_through, run_of, start, states
from tests.contract.support import (
    claim,
    enqueue,
    finish,
    get,
    ids,
    last_event,
    run_one,
    types,
    worker,
)

HOUR = timedelta(hours=1)


def test_a_retry_that_is_hastened_is_the_attempt_that_it_would_have_been(
    store: Store, clock: ManualClock
) -> None:
    first = run_one(store)
    store.settle([finish(first, "retry")])
    task_id = first.lease.execution_id
    waiting = get(store, task_id)

    assert store.hasten([task_id]) == [True]

    ready = get(store, task_id)
    assert (waiting.state, ready.state) == (State.SCHEDULED, State.READY)
    assert (ready.retries, ready.attempt, ready.error) == (1, 1, waiting.error)
    event = last_event(store, task_id)
    assert (event.type, event.at) == (EventType.MARKED_READY, clock.now())
    assert event.data == {"reason": "somebody asked for it"}
    (second,) = claim(store)
    assert (second.attempt, second.lease.fence > first.lease.fence) == (2, True)
    assert store.settle([finish(second)]) == []


def test_what_was_put_off_runs_now_and_once(store: Store, clock: ManualClock) -> None:
    worker(store)
    later = enqueue(store, delay=HOUR)
    other = enqueue(store, delay=HOUR)

    assert store.hasten([later, later]) == [True, True]
    assert store.hasten([later]) == [False]

    assert ids(claim(store)) == [later]
    clock.advance(HOUR)
    assert store.promote().promoted == 1  # the other one alone
    assert ids(claim(store)) == [other]


def test_nothing_but_what_is_scheduled_is_hastened(store: Store) -> None:
    worker(store)
    ready = enqueue(store)
    before = types(store.history(ready))

    assert store.hasten([ready, new_id()]) == [False, False]
    assert store.hasten([]) == []

    assert types(store.history(ready)) == before
    assert ids(claim(store)) == [ready]


def test_several_go_in_the_order_in_which_they_were_due(store: Store) -> None:
    worker(store)
    last, first = enqueue(store, delay=2 * HOUR), enqueue(store, delay=HOUR)

    assert store.hasten([last, first]) == [True, True]

    assert ids(claim(store, limit=2)) == [first, last]


def test_what_waits_for_a_signal_is_not_a_matter_of_time(store: Store) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, "suspended_for")])
    task_id = claimed.lease.execution_id
    assert get(store, task_id).state is State.SCHEDULED

    assert store.hasten([task_id]) == [False]

    assert store.signal(task_id, "go", "null") == "told"
    assert ids(claim(store)) == [task_id]


def test_a_task_of_a_run_is_hastened_like_any_other(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(2))
    (first,) = claim_all(store)
    store.settle([replace(finish(first, "retry"), run_id=first.run_id)])
    task_id = first.lease.execution_id

    assert store.rerun([task_id]) == ["live"]  # with all downstream of it: not while it lives
    assert store.hasten([task_id]) == [True]

    assert states(store, run_id) == [State.READY, State.WAITING]
    live_through(store)
    assert run_of(store, run_id).state is RunState.COMPLETED
