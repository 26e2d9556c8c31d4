"""Steps that are not taken twice, and tasks that wait for a signal or a run without a worker."""

import json
from datetime import timedelta

import pytest
from msgspec.structs import replace

from penstock.errors import LeaseLost
from penstock.model.executions import Claimed, Memory, StepDone
from penstock.model.ids import new_id
from penstock.model.outcomes import Outcome, SuspendedFor, end_of_run
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.flows import (
    APPROVED,
    chain,
    child_of,
    claim_all,
    completed,
    failing,
    graph,
    live_through,
    node,
    place,
    run_of,
    start,
    states,
    suspended,
)
from tests.contract.support import (
    MINUTE,
    OBSERVER,
    WORKER,
    claim,
    declare_dead,
    enqueue,
    finish,
    get,
    run_one,
    state_of,
    types,
    worker,
)


def suspended_for(claimed: Claimed, timeout: timedelta = MINUTE) -> Outcome:
    return SuspendedFor(
        lease=claimed.lease, run_id=claimed.run_id, awaits=APPROVED, timeout=timeout
    )


# --- steps ------------------------------------------------------------------------------------


def test_a_step_is_remembered_by_the_next_attempt(store: Store, clock: ManualClock) -> None:
    one = run_one(store)
    assert store.memory(one.lease.execution_id) == Memory({}, {})
    assert store.store_steps([StepDone(one.lease, "charge", '{"paid":1}')]) == []
    store.settle([finish(one, "retry")])
    clock.advance(MINUTE)
    store.promote()
    (again,) = claim(store)
    assert store.memory(again.lease.execution_id).steps == {"charge": '{"paid":1}'}


def test_the_first_result_of_a_step_stays(store: Store) -> None:
    one = run_one(store)
    store.store_steps([StepDone(one.lease, "charge", "1")])
    assert store.store_steps([StepDone(one.lease, "charge", "2")]) == []
    assert store.memory(one.lease.execution_id).steps == {"charge": "1"}


def test_whoever_lost_the_task_has_nothing_to_remember(store: Store) -> None:
    lost, held = run_one(store), run_one(store, OBSERVER)
    store.start([lost.lease])
    declare_dead(store, WORKER)
    steps = [StepDone(lost.lease, "a", "1"), StepDone(held.lease, "b", "2")]
    assert store.store_steps(steps) == [lost.lease]
    assert store.memory(lost.lease.execution_id).steps == {}
    assert store.memory(held.lease.execution_id).steps == {"b": "2"}


# --- signals ----------------------------------------------------------------------------------


def test_a_suspended_task_has_no_worker_and_keeps_its_attempt(store: Store) -> None:
    one = run_one(store)
    store.settle([suspended(one)])
    stored = get(store, one.lease.execution_id)
    assert (stored.state, stored.worker_id, stored.attempt) == (State.WAITING, None, 0)
    assert claim(store) == []
    assert types(store.history(stored.id))[-1] == "task.suspended"


def test_a_signal_lets_it_go_on(store: Store) -> None:
    one = run_one(store)
    store.settle([suspended(one)])
    assert store.signal(one.lease.execution_id, "approved", '"by me"') == "told"
    (again,) = claim(store)
    assert again.attempt == 1
    assert store.memory(again.lease.execution_id).signals == {"approved": '"by me"'}


def test_a_signal_that_came_before_the_wait_ends_it_at_once(store: Store) -> None:
    one = run_one(store)
    assert store.signal(one.lease.execution_id, "approved", "1") == "told"
    store.settle([suspended(one)])
    assert state_of(store, one.lease.execution_id) is State.READY


def test_the_first_signal_of_a_name_wins(store: Store) -> None:
    one = run_one(store)
    store.settle([suspended(one)])
    assert store.signal(one.lease.execution_id, "approved", "1") == "told"
    assert store.signal(one.lease.execution_id, "approved", "2") == "already"
    assert store.memory(one.lease.execution_id).signals == {"approved": "1"}


def test_a_signal_sent_again_after_a_lost_reply_is_told_once(store: Store) -> None:
    one = run_one(store)
    store.settle([suspended(one)])
    for _ in range(2):
        assert store.signal(one.lease.execution_id, "approved", "1") == "told"
    assert types(store.history(one.lease.execution_id)).count("task.marked_ready") == 2
    (again,) = claim(store)
    assert store.signal(one.lease.execution_id, "approved", "1") == "told"
    store.settle([finish(again)])
    assert store.signal(one.lease.execution_id, "approved", "1") == "told"
    assert store.signal(one.lease.execution_id, "approved", "2") == "finished"
    assert store.memory(one.lease.execution_id).signals == {"approved": "1"}


def test_a_signal_of_another_name_is_kept_and_ends_no_wait(store: Store) -> None:
    one = run_one(store)
    store.settle([suspended(one)])
    assert store.signal(one.lease.execution_id, "rejected", "1") == "told"
    assert state_of(store, one.lease.execution_id) is State.WAITING
    assert store.memory(one.lease.execution_id).signals == {"rejected": "1"}


def test_what_has_ended_is_told_nothing(store: Store) -> None:
    one = run_one(store)
    store.settle([finish(one)])
    assert store.signal(one.lease.execution_id, "approved", "1") == "finished"
    assert store.memory(one.lease.execution_id).signals == {}
    assert store.signal(new_id(), "approved", "1") == "unknown"


def test_a_wait_with_a_limit_comes_back_with_empty_hands(store: Store, clock: ManualClock) -> None:
    one = run_one(store)
    store.settle([suspended_for(one)])
    assert state_of(store, one.lease.execution_id) is State.SCHEDULED
    clock.advance(MINUTE)
    store.promote()
    (again,) = claim(store)
    assert (again.attempt, store.memory(again.lease.execution_id).signals) == (1, {})


def test_a_signal_ends_a_wait_with_a_limit_early(store: Store) -> None:
    one = run_one(store)
    store.settle([suspended_for(one)])
    store.signal(one.lease.execution_id, "approved", "1")
    assert [again.lease.execution_id for again in claim(store)] == [one.lease.execution_id]
    assert store.promote().promoted == 0


def test_a_rerun_waits_anew_and_keeps_its_steps(store: Store) -> None:
    """A deadline that has passed would end the new wait before anybody could send anything."""
    one, other = run_one(store), run_one(store)
    steps = {"charge": "1", APPROVED: '"2026-11-15T12:00:00"', "Signal: 1": "1", "signals": "1"}
    for of in (one, other):
        store.store_steps([StepDone(of.lease, name, text) for name, text in steps.items()])
    store.signal(one.lease.execution_id, "paid", "7")
    store.settle([finish(one, "failed")])

    assert store.rerun([one.lease.execution_id, other.lease.execution_id]) == ["rerun", "live"]

    kept = {name: text for name, text in steps.items() if name != APPROVED}
    assert store.memory(one.lease.execution_id) == Memory(kept, {"paid": "7"})
    assert store.memory(other.lease.execution_id).steps == steps


def test_a_task_of_a_run_that_is_rerun_waits_anew(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(2))
    (first,) = claim_all(store)
    steps = [StepDone(first.lease, "charge", "1"), StepDone(first.lease, APPROVED, '"then"')]
    store.store_steps(steps)
    store.settle([failing(0)(first)])

    assert store.rerun_run(run_id) == "done"

    assert store.memory(first.lease.execution_id).steps == {"charge": "1"}


def test_a_suspended_task_can_be_cancelled(store: Store) -> None:
    one = run_one(store)
    store.settle([suspended(one)])
    assert store.cancel([one.lease.execution_id]) == ["cancelled"]
    assert store.signal(one.lease.execution_id, "approved", "1") == "finished"


def test_a_task_that_was_asked_to_stop_is_not_suspended(store: Store) -> None:
    one = run_one(store)
    store.cancel([one.lease.execution_id])
    store.settle([suspended(one)])
    assert state_of(store, one.lease.execution_id) is State.CANCELLED


# --- in a run ---------------------------------------------------------------------------------


def test_a_suspended_task_keeps_its_run_waiting_and_no_other_end_wakes_it(store: Store) -> None:
    worker(store)
    run_id = start(store, graph(node("a"), node("b"), node("c", 0, 1)))
    first, second = claim_all(store)
    store.settle([suspended(first)])
    store.settle([completed(second)])
    assert states(store, run_id) == [State.WAITING, State.COMPLETED, State.WAITING]
    assert claim_all(store) == []
    store.signal(first.lease.execution_id, "approved", "1")
    assert live_through(store) == [0, 2]
    assert run_of(store, run_id).state is RunState.COMPLETED


@pytest.mark.parametrize("limited", [False, True])
def test_a_signal_to_a_paused_run_waits_for_the_resumption(
    store: Store, clock: ManualClock, *, limited: bool
) -> None:
    worker(store)
    run_id = start(store, chain(2))
    (first,) = claim_all(store)
    store.settle([suspended_for(first) if limited else suspended(first)])
    store.pause_run(run_id)
    if limited:
        clock.advance(MINUTE)
        store.promote()
        store.propagate()
    else:
        store.signal(first.lease.execution_id, "approved", "1")
    assert states(store, run_id) == [State.WAITING, State.WAITING]
    store.resume_run(run_id)
    assert live_through(store) == [0, 1]


# --- runs that a task waits for -----------------------------------------------------------------


def test_a_child_is_started_once(store: Store) -> None:
    parent = run_one(store)
    child = child_of(store, parent)
    assert child_of(store, parent) == child
    assert [run.id for run in store.find_runs()] == [child]
    assert json.loads(store.memory(parent.lease.execution_id).steps["child"]) == child


def test_whoever_lost_the_task_starts_no_child(store: Store) -> None:
    parent = run_one(store)
    declare_dead(store, WORKER)
    with pytest.raises(LeaseLost):
        child_of(store, parent)
    assert store.find_runs() == []


@pytest.mark.parametrize("fails", [(), (1,)])
def test_the_end_of_a_child_lets_its_parent_go_on(store: Store, fails: tuple[int, ...]) -> None:
    parent = run_one(store)
    child = child_of(store, parent)
    store.settle([suspended(parent, end_of_run(child))])
    assert state_of(store, parent.lease.execution_id) is State.WAITING
    ending = failing(*fails)
    for _ in range(2):
        (one,) = claim_all(store)
        store.settle([ending(one)])
    store.propagate()
    assert run_of(store, child).state is (RunState.FAILED if fails else RunState.COMPLETED)
    (again,) = claim(store)
    assert again.lease.execution_id == parent.lease.execution_id


def test_a_child_that_ended_before_the_wait_ends_it_at_once(store: Store) -> None:
    parent = run_one(store)
    child = child_of(store, parent)
    for _ in range(2):
        (one,) = claim_all(store)
        store.settle([completed(one)])
    store.settle([suspended(parent, end_of_run(child))])
    store.propagate()
    assert state_of(store, parent.lease.execution_id) is State.READY


def test_cancelling_a_parent_cancels_the_child_it_waits_for(store: Store) -> None:
    parent = run_one(store)
    child = child_of(store, parent)
    store.settle([suspended(parent, end_of_run(child))])
    store.cancel([parent.lease.execution_id])
    assert run_of(store, child).state is RunState.CANCELLED


def test_cancelling_a_run_cancels_the_children_of_its_tasks(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(2))
    (parent,) = claim_all(store)
    child = child_of(store, parent)
    store.settle([suspended(parent, end_of_run(child))])
    store.cancel_run(run_id)
    assert run_of(store, child).state is RunState.CANCELLED
    assert run_of(store, run_id).state is RunState.CANCELLED


def test_a_child_of_a_task_in_a_run_lets_the_run_go_on(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(2))
    (parent,) = claim_all(store)
    child = child_of(store, parent)
    store.settle([suspended(parent, end_of_run(child))])
    while run_of(store, run_id).state is RunState.RUNNING:
        claimed = claim_all(store)
        assert claimed
        store.settle([completed(one) for one in claimed])
        store.propagate()
    assert run_of(store, child).state is RunState.COMPLETED
    assert [place(one) for one in claim_all(store)] == []
    assert enqueue(store)


def test_a_suspended_head_keeps_its_serial_waiting(store: Store) -> None:
    head = run_one(store, serial="line")
    store.settle([replace(suspended(head), serial=head.serial)])
    behind = enqueue(store, serial="line")
    assert claim(store) == []
    store.signal(head.lease.execution_id, "approved", "1")
    (again,) = claim(store)
    assert again.lease.execution_id == head.lease.execution_id
    store.settle([finish(again)])
    assert [one.lease.execution_id for one in claim(store)] == [behind]
