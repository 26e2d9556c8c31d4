"""A cancelled task leaves no run behind that it started, whoever dies on the way."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from penstock.model.events import RunEvent
from penstock.model.executions import Claimed
from penstock.model.outcomes import end_of_run
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.model.verifying import findings_in
from penstock.model.wakeups import WakeUp
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
    task_at,
)
from tests.contract.support import (
    ENDINGS,
    MINUTE,
    QUEUE,
    declare_dead,
    finish,
    run_one,
    state_of,
    types,
    worker,
)

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


# --- tasks that were running when they were asked to stop ------------------------------------


@pytest.mark.parametrize("how", sorted(ENDINGS.keys() - {"completed"}))
def test_whoever_is_asked_to_stop_leaves_no_child_however_it_ends(store: Store, how: str) -> None:
    parent = run_one(store)
    child = child_of(store, parent)
    store.cancel([parent.lease.execution_id], reason=WHY)
    assert run_of(store, child).state is RunState.RUNNING
    store.settle([finish(parent, how)])
    assert findings_in(store.examine()) == []
    store.propagate()
    assert state_of(store, parent.lease.execution_id) is State.CANCELLED
    assert_cancelled(store, [child], WHY)


@pytest.mark.parametrize("reason", [WHY, None])
def test_a_child_started_between_the_request_and_the_suspension_is_cancelled(
    store: Store, database: Database, clock: ManualClock, reason: str | None
) -> None:
    parent = run_one(store)
    store.cancel([parent.lease.execution_id], reason=reason)
    child = child_of(store, parent)
    store.settle([suspended(parent, end_of_run(child))])
    do_the_chores(database, clock)
    assert state_of(store, parent.lease.execution_id) is State.CANCELLED
    assert_cancelled(store, [child], reason)


def test_every_live_child_is_cancelled_and_not_only_the_one_that_is_awaited(store: Store) -> None:
    parent = run_one(store)
    children = [child_of(store, parent, step) for step in ("one", "two", "three")]
    done = {task.id for task in store.tasks_of(children[1])}
    for _ in range(2):
        claimed = claim_all(store)
        mine = [one for one in claimed if one.lease.execution_id in done]
        others = [one for one in claimed if one.lease.execution_id not in done]
        store.settle([*map(completed, mine), *(finish(one, "released") for one in others)])
    store.settle([suspended(parent, end_of_run(children[0]))])
    store.cancel([parent.lease.execution_id], reason=WHY)
    store.propagate()
    ends = [run_of(store, child).state for child in children]
    assert ends == [RunState.CANCELLED, RunState.COMPLETED, RunState.CANCELLED]


@pytest.mark.parametrize("in_a_run", [False, True])
def test_whoever_dies_after_it_was_asked_to_stop_leaves_no_child(
    store: Store, *, in_a_run: bool
) -> None:
    worker(store)
    run_id = start(store, chain(2)) if in_a_run else None
    parent = claim_all(store)[0] if in_a_run else run_one(store)
    child = child_of(store, parent)
    if run_id is None:
        store.cancel([parent.lease.execution_id], reason=WHY)
    else:
        store.cancel_run(run_id, reason=WHY)
    declare_dead(store, parent.lease.worker_id)
    assert state_of(store, parent.lease.execution_id) is State.CANCELLED
    assert_cancelled(store, [child], WHY)


def test_children_of_a_task_that_failed_go_on_and_its_rerun_finds_them(store: Store) -> None:
    """Nobody wanted them to stop: what they do is there when somebody reruns their parent."""
    parent = run_one(store)
    child = child_of(store, parent)
    store.settle([finish(parent, "failed")])
    store.propagate()
    assert findings_in(store.examine()) == []
    assert live_through(store) == [0, 1]
    assert run_of(store, child).state is RunState.COMPLETED
    store.rerun([parent.lease.execution_id])
    (again,) = claim_all(store)
    assert child_of(store, again) == child


def test_children_of_an_abandoned_task_go_on(store: Store) -> None:
    parent = run_one(store, max_crashes=1)
    store.start([parent.lease])
    child = child_of(store, parent)
    declare_dead(store, parent.lease.worker_id)
    assert state_of(store, parent.lease.execution_id) is State.FAILED
    worker(store)
    assert live_through(store) == [0, 1]
    assert run_of(store, child).state is RunState.COMPLETED


def test_a_child_that_ended_before_its_parent_was_cancelled_stays_as_it_was(store: Store) -> None:
    parent = run_one(store)
    child = child_of(store, parent)
    assert live_through(store) == [0, 1]
    store.cancel([parent.lease.execution_id])
    store.settle([finish(parent, "failed")])
    assert store.propagate() <= 1  # word for the parent that its child has ended
    assert run_of(store, child).state is RunState.COMPLETED
    assert RunEvent.CANCEL_REQUESTED not in types(store.history(child))
    # A person may want to see it again, though nobody waits for it.
    store.rerun_run(child, tasks=[task_at(child, 1)])
    assert findings_in(store.examine()) == []


@pytest.mark.postgres
def test_a_worker_is_told_at_once_that_there_is_a_child_to_cancel(
    emptied_postgres: Database, clock: ManualClock
) -> None:
    """Whoever settled its parent may die before the transaction that ends the child."""
    store = emptied_postgres.open(clock)
    parent = run_one(store)
    child = child_of(store, parent)
    store.cancel([parent.lease.execution_id])
    listener = store.distributor(lambda: [QUEUE])
    listener.wait_for_work(0)  # begins to listen
    store.settle([suspended(parent, end_of_run(child))])
    assert listener.wait_for_work(10) == WakeUp(waiting=True)
    assert store.chores().propagations
    store.propagate()
    listener.close()
    store.close()
