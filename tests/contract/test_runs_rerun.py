"""Runs with a new life: what completed is kept, and what hung on the rest runs again."""

from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.flows import (
    chain,
    claim_all,
    completed,
    diamond,
    failing,
    live_through,
    new_run,
    run_of,
    start,
    states,
    task_at,
)
from tests.contract.support import MINUTE, types, worker

C, W, R = State.COMPLETED, State.WAITING, State.READY


def test_a_rerun_keeps_what_completed_and_shows_both_lives(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(3))
    live_through(store, failing(1))
    assert store.rerun_run(run_id) == "done"
    assert run_of(store, run_id).state is RunState.RUNNING
    assert states(store, run_id) == [C, R, W]
    assert live_through(store) == [1, 2]
    ended = run_of(store, run_id)
    assert (ended.state, ended.error) == (RunState.COMPLETED, None)
    assert types(store.history(task_at(run_id, 1))) == [
        "task.created", "task.marked_ready", "task.claimed", "task.failed",
        "task.rerun", "task.marked_ready", "task.claimed", "task.completed",
    ]  # fmt: skip
    assert [one for one in types(store.history(run_id)) if one.startswith("workflow.")] == [
        "workflow.started", "workflow.failed", "workflow.rerun", "workflow.completed",
    ]  # fmt: skip


def test_a_rerun_task_takes_what_is_downstream_along(store: Store) -> None:
    worker(store)
    run_id = start(store, diamond())
    live_through(store)
    assert store.rerun([task_at(run_id, 1)]) == ["rerun"]
    assert states(store, run_id) == [C, R, C, W]
    assert live_through(store) == [1, 3]
    assert run_of(store, run_id).state is RunState.COMPLETED


def test_nothing_is_rerun_under_the_hands_of_a_worker(store: Store) -> None:
    worker(store)
    run_id = start(store, diamond())
    (first,) = claim_all(store)
    store.settle([completed(first)])
    claim_all(store)
    assert store.rerun([task_at(run_id, 0)]) == ["live"]
    assert states(store, run_id) == [C, State.RUNNING, State.RUNNING, W]


def test_a_run_without_failures_has_nothing_to_rerun(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(2))
    live_through(store)
    told = store.history(run_id)
    assert store.rerun_run(run_id) == "nothing"
    assert store.history(run_id) == told
    assert store.rerun_run(new_run(chain(1)).id) == "unknown"


def test_a_cancelled_run_can_be_rerun_with_a_new_deadline(store: Store, clock: ManualClock) -> None:
    worker(store)
    run_id = start(store, chain(2), timeout=MINUTE)
    clock.advance(MINUTE)
    store.promote()
    assert store.rerun_run(run_id) == "done"
    assert run_of(store, run_id).deadline == clock.now() + MINUTE
    assert live_through(store) == [0, 1]
    assert run_of(store, run_id).state is RunState.COMPLETED
