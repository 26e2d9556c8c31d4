import pytest

from penstock.model.states import State, SubState
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.support import (
    ENDINGS,
    WORKER,
    claim,
    declare_dead,
    finish,
    get,
    last_event,
    run_one,
    state_of,
    types,
)


def test_a_deferred_task_is_still_running_and_says_so(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    clock.advance("1s")

    assert store.defer([claimed.lease], reason="waits for the printer") == []

    stored = get(store, claimed.lease.execution_id)
    assert (stored.state, stored.sub_state) == (State.RUNNING, SubState.DEFERRED)
    assert (stored.worker_id, stored.fence) == (WORKER, claimed.lease.fence)
    told = last_event(store, stored.id)
    assert (told.type, told.worker_id, told.at) == ("task.deferred", WORKER, clock.now())
    assert told.data == {"reason": "waits for the printer"}


def test_a_deferred_task_is_active_again_when_it_goes_on(store: Store) -> None:
    claimed = run_one(store)
    store.defer([claimed.lease])

    assert store.undefer([claimed.lease]) == []

    assert get(store, claimed.lease.execution_id).sub_state is SubState.ACTIVE
    assert types(store.history(claimed.lease.execution_id))[-2:] == [
        "task.deferred",
        "task.resumed",
    ]


def test_deferring_again_after_a_lost_reply_changes_nothing(store: Store) -> None:
    claimed = run_one(store)
    for _ in range(2):
        assert store.defer([claimed.lease]) == []
    for _ in range(2):
        assert store.undefer([claimed.lease]) == []

    told = types(store.history(claimed.lease.execution_id))
    assert told[3:] == ["task.deferred", "task.resumed"]


def test_an_active_task_has_nothing_to_resume(store: Store) -> None:
    claimed = run_one(store)

    assert store.undefer([claimed.lease]) == []

    assert last_event(store, claimed.lease.execution_id).type == "task.claimed"


def test_a_deferral_without_a_reason_tells_none(store: Store) -> None:
    claimed = run_one(store)
    store.defer([claimed.lease])

    assert last_event(store, claimed.lease.execution_id).data == {}


def test_a_deferred_task_is_handed_to_nobody_else(store: Store) -> None:
    claimed = run_one(store)
    store.defer([claimed.lease])

    assert claim(store) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_deferred_task_can_be_settled(store: Store, ending: str) -> None:
    claimed = run_one(store)
    store.defer([claimed.lease])

    assert store.settle([finish(claimed, ending)]) == []

    assert get(store, claimed.lease.execution_id).sub_state is None


def test_a_deferred_task_of_a_dead_worker_is_recovered(store: Store) -> None:
    claimed = run_one(store)
    store.defer([claimed.lease])
    declare_dead(store, WORKER)

    assert state_of(store, claimed.lease.execution_id) is State.READY


def test_many_are_deferred_at_once(store: Store) -> None:
    leases = [run_one(store).lease for _ in range(5)]

    assert store.defer(leases) == []
    assert store.defer([]) == []

    assert {get(store, lease.execution_id).sub_state for lease in leases} == {SubState.DEFERRED}
