from penstock.model.states import State
from penstock.store.contract import Store
from tests.contract.support import (
    OBSERVER,
    WORKER,
    claim,
    enqueue,
    enqueue_many,
    finish,
    get,
    ids,
    last_event,
    run_one,
    state_of,
    worker,
)


def test_tasks_whose_claim_was_never_answered_are_given_back(store: Store) -> None:
    worker(store)
    enqueue_many(store, 3)
    known, *strangers = claim(store)

    assert store.reconcile(WORKER, [known.lease]) == []

    assert state_of(store, known.lease.execution_id) is State.RUNNING
    for stranger in strangers:
        stored = get(store, stranger.lease.execution_id)
        assert (stored.state, stored.attempt, stored.crashes) == (State.READY, 0, 0)
        assert stored.suspect is False
        assert last_event(store, stored.id).type == "task.released"
    assert ids(claim(store)) == ids(strangers)


def test_a_worker_that_holds_nothing_gives_everything_back(store: Store) -> None:
    run_one(store)

    assert store.reconcile(WORKER, []) == []

    assert len(claim(store)) == 1


def test_a_worker_that_knows_all_it_has_changes_nothing(store: Store) -> None:
    held = [run_one(store) for _ in range(3)]
    before = store.get(ids(held))

    assert store.reconcile(WORKER, [one.lease for one in held]) == []

    assert store.get(ids(held)) == before


def test_leases_that_are_gone_are_named(store: Store) -> None:
    kept, settled = run_one(store), run_one(store)
    store.settle([finish(settled)])

    assert store.reconcile(WORKER, [settled.lease, kept.lease]) == [settled.lease]


def test_a_newer_lease_on_a_task_that_is_held_is_a_stranger(store: Store) -> None:
    first = run_one(store)
    store.settle([finish(first, "released")])
    (second,) = claim(store)

    assert store.reconcile(WORKER, [first.lease]) == [first.lease]

    assert state_of(store, second.lease.execution_id) is State.READY


def test_what_others_hold_is_none_of_its_business(store: Store) -> None:
    theirs = run_one(store, OBSERVER)
    worker(store)

    assert store.reconcile(WORKER, []) == []

    assert store.start([theirs.lease]) == []


def test_reconciling_again_changes_nothing(store: Store) -> None:
    stranger = run_one(store)
    store.reconcile(WORKER, [])
    history = store.history(stranger.lease.execution_id)

    assert store.reconcile(WORKER, []) == []

    assert store.history(stranger.lease.execution_id) == history


def test_a_stranger_that_should_stop_is_cancelled(store: Store) -> None:
    stranger = run_one(store)
    store.cancel([stranger.lease.execution_id])
    store.reconcile(WORKER, [])

    assert state_of(store, stranger.lease.execution_id) is State.CANCELLED


def test_a_stranger_keeps_its_place_in_its_serial(store: Store) -> None:
    stranger = run_one(store, serial="line")
    behind = enqueue(store, serial="line")
    store.reconcile(WORKER, [])

    (again,) = claim(store)
    assert again.lease.execution_id == stranger.lease.execution_id
    assert state_of(store, behind) is State.WAITING
