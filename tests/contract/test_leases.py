"""Whoever lost a lease cannot change the task any more, however late they wake up."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from penstock.model.executions import Claimed, Lease
from penstock.model.ids import new_id
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.support import (
    ENDINGS,
    OBSERVER,
    WORKER,
    claim,
    declare_dead,
    enqueue,
    finish,
    get,
    ids,
    run_one,
    state_of,
    types,
    worker,
)


def _settling(ending: str) -> Callable[[Store, Lease], list[Lease]]:
    return lambda store, lease: store.settle([ENDINGS[ending](lease)])


OPERATIONS: dict[str, Callable[[Store, Lease], list[Lease]]] = {
    "start": lambda store, lease: store.start([lease]),
    "defer": lambda store, lease: store.defer([lease], reason="waits"),
    "undefer": lambda store, lease: store.undefer([lease]),
    "reconcile": lambda store, lease: store.reconcile(lease.worker_id, [lease]),
    **{f"settle {ending}": _settling(ending) for ending in ENDINGS},
}

every_operation = pytest.mark.parametrize("operation", OPERATIONS)


def _hold_up(store: Store, stale: Lease, current: Claimed, operation: str) -> None:
    """Check that `operation` reports the stale lease and leaves the task to its holder."""
    before = get(store, current.lease.execution_id)
    history = store.history(before.id)

    assert OPERATIONS[operation](store, stale) == [stale]

    assert get(store, before.id) == before
    assert store.history(before.id) == history
    assert store.settle([finish(current)]) == []
    assert state_of(store, before.id) is State.COMPLETED


@every_operation
def test_a_lease_taken_from_a_dead_worker_changes_nothing(
    store: Store, clock: ManualClock, operation: str
) -> None:
    stalled = run_one(store)
    declare_dead(store, WORKER)
    (current,) = claim(store, OBSERVER)
    clock.advance("1s")

    _hold_up(store, stalled.lease, current, operation)


@every_operation
def test_a_lease_of_an_earlier_attempt_of_the_same_worker_changes_nothing(
    store: Store, clock: ManualClock, operation: str
) -> None:
    first = run_one(store)
    store.settle([finish(first, "released")])
    (second,) = claim(store)
    store.settle([finish(second, "released")])
    (third,) = claim(store)

    # The reconciliation of a worker gives back what it does not name: name the newest, too.
    if operation == "reconcile":
        assert store.reconcile(WORKER, [first.lease, third.lease]) == [first.lease]
        assert store.settle([finish(third)]) == []
    else:
        _hold_up(store, first.lease, third, operation)


@every_operation
def test_the_name_of_another_worker_changes_nothing(store: Store, operation: str) -> None:
    current = run_one(store)
    worker(store, OBSERVER)

    _hold_up(store, replace(current.lease, worker_id=OBSERVER), current, operation)


@pytest.mark.parametrize("off_by", [-1, 1, 2**62])
@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "reconcile"])
def test_another_fence_changes_nothing(store: Store, operation: str, off_by: int) -> None:
    current = run_one(store)
    wrong = replace(current.lease, fence=current.lease.fence + off_by)

    _hold_up(store, wrong, current, operation)


@every_operation
def test_a_lease_on_an_unknown_execution_is_lost(store: Store, operation: str) -> None:
    worker(store)
    unknown = Lease(new_id(), 1, WORKER)

    assert OPERATIONS[operation](store, unknown) == [unknown]


@every_operation
def test_a_recovered_task_is_lost_to_its_worker_before_anybody_claims_it(
    store: Store, operation: str
) -> None:
    stalled = run_one(store)
    declare_dead(store, WORKER)
    before = get(store, stalled.lease.execution_id)

    assert OPERATIONS[operation](store, stalled.lease) == [stalled.lease]

    assert get(store, before.id) == before


@pytest.mark.parametrize("operation", ["start", "defer", "undefer", "reconcile"])
def test_a_settled_lease_can_do_nothing_more(store: Store, operation: str) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed)])
    history = store.history(claimed.lease.execution_id)

    assert OPERATIONS[operation](store, claimed.lease) == [claimed.lease]

    assert store.history(claimed.lease.execution_id) == history


def test_lost_leases_are_reported_in_the_order_of_the_call(store: Store) -> None:
    worker(store)
    held = [run_one(store) for _ in range(4)]
    lost = [replace(held[2].lease, fence=99), replace(held[0].lease, fence=98)]

    assert store.start([lost[0], held[1].lease, lost[1], held[3].lease]) == lost
    assert store.defer([lost[1], lost[0]]) == [lost[1], lost[0]]
    answer = store.settle(
        [ENDINGS["failed"](lost[0]), finish(held[1]), ENDINGS["completed"](lost[1])]
    )
    assert answer == lost
    assert state_of(store, held[1].lease.execution_id) is State.COMPLETED


def test_a_lost_lease_does_not_keep_the_others_from_being_settled(store: Store) -> None:
    """A stalled worker wakes up with a whole batch in its hands."""
    worker(store)
    worker(store, OBSERVER)
    for _ in range(3):
        enqueue(store)
    stalled = claim(store)
    declare_dead(store, WORKER)
    # Suspects are handed out one at a time.
    (healthy,) = claim(store, OBSERVER)

    answer = store.settle([finish(one, "failed") for one in stalled])

    assert answer == [one.lease for one in stalled]
    assert store.settle([finish(healthy)]) == []
    assert types(store.history(ids([healthy])[0])) == [
        "task.created", "task.marked_ready", "task.claimed", "task.recovered", "task.claimed",
        "task.completed",
    ]  # fmt: skip
