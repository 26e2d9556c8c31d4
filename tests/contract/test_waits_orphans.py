"""Whoever cancels a task cancels the runs that it waits for, even if they die on the way."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from penstock.model.executions import Claimed
from penstock.model.outcomes import end_of_run
from penstock.model.runs import RunState
from penstock.model.verifying import findings_in
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database
from tests.contract.flows import (
    chain,
    child_of,
    claim_all,
    completed,
    live_through,
    run_of,
    start,
    suspended,
)
from tests.contract.support import MINUTE, declare_dead, run_one, worker

WHY = "the customer left"


class Died(BaseException):
    """Nothing of this process is left to see to the rest."""


def die(*_: object, **__: object) -> None:
    raise Died


def dying_in(
    monkeypatch: pytest.MonkeyPatch, store: Store, method: str, act: Callable[[], object]
) -> None:
    """Do this in a process that dies when it comes to `method`, if it does."""
    with monkeypatch.context() as patched, suppress(Died):
        patched.setattr(store, method, die, raising=False)
        act()


def family_of(store: Store, parent: Claimed) -> list[str]:
    """Let it wait for a run, a task of which waits for another; return both."""
    child = child_of(store, parent)
    store.settle([suspended(parent, end_of_run(child))])
    (middle,) = claim_all(store)
    grandchild = child_of(store, middle)
    store.settle([suspended(middle, end_of_run(grandchild))])
    return [child, grandchild]


def do_the_chores(database: Database, clock: ManualClock) -> None:
    """What the maintenance of any other worker does now and then."""
    other = database.open(clock)
    if other.chores().propagations:
        other.propagate()
    assert not other.chores().propagations
    other.close()


def assert_cancelled(store: Store, run_ids: list[str], reason: str | None) -> None:
    for run_id in run_ids:
        assert run_of(store, run_id).state is RunState.CANCELLED
        told = [
            (event.type, event.data)
            for event in store.history(run_id)
            if event.execution_id is None or event.type == "task.cancelled"
        ]
        why = {} if reason is None else {"reason": reason}
        assert told[1:] == [
            ("workflow.cancel_requested", why),
            ("task.cancelled", why),
            ("task.cancelled", why),
            ("workflow.cancelled", why),
        ]
    assert findings_in(store.examine()) == []


@pytest.mark.parametrize("reason", [WHY, None])
@pytest.mark.parametrize("method", ["propagate", "_cancel_run"])
def test_children_are_cancelled_although_whoever_cancelled_their_parent_died(
    store: Store,
    database: Database,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    reason: str | None,
) -> None:
    parent = run_one(store)
    family = family_of(store, parent)
    ids = [parent.lease.execution_id]
    dying_in(monkeypatch, store, method, lambda: store.cancel(ids, reason=reason))
    assert findings_in(store.examine()) == []
    do_the_chores(database, clock)
    assert_cancelled(store, family, reason)


def test_children_are_cancelled_although_whoever_cancelled_the_run_around_their_parent_died(
    store: Store, database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker(store)
    run_id = start(store, chain(1))
    (parent,) = claim_all(store)
    family = family_of(store, parent)
    dying_in(monkeypatch, store, "propagate", lambda: store.cancel_run(run_id, reason=WHY))
    assert run_of(store, run_id).state is RunState.CANCELLED
    do_the_chores(database, clock)
    assert_cancelled(store, family, WHY)


def test_children_of_a_run_out_of_time_are_cancelled_although_whoever_saw_it_died(
    store: Store, database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker(store)
    run_id = start(store, chain(1), timeout=MINUTE)
    (parent,) = claim_all(store)
    family = family_of(store, parent)
    clock.advance(MINUTE)
    dying_in(monkeypatch, store, "propagate", store.promote)
    assert run_of(store, run_id).state is RunState.FAILED
    do_the_chores(database, clock)
    assert_cancelled(store, family, "the run is out of time")


def test_nobody_need_wait_for_a_worker_to_see_the_whole_family_cancelled(store: Store) -> None:
    parent = run_one(store)
    family = family_of(store, parent)
    store.cancel([parent.lease.execution_id], reason=WHY)
    assert_cancelled(store, family, WHY)
    assert store.propagate() == 0


def test_a_child_that_is_rerun_lives_although_its_parent_was_cancelled(store: Store) -> None:
    """Its parent's end was told to its former life."""
    parent = run_one(store)
    child, _ = family_of(store, parent)
    store.cancel([parent.lease.execution_id])
    store.rerun_run(child)
    (first,) = claim_all(store)
    declare_dead(store, first.lease.worker_id)  # which leaves word for the run
    store.propagate()
    assert not run_of(store, child).cancel_requested
    worker(store)
    assert live_through(store, completed) == [0, 1]
    assert run_of(store, child).state is RunState.COMPLETED
