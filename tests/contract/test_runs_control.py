"""Runs as a whole: paused and resumed, cancelled, and out of time."""

import json
from datetime import timedelta

from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.model.verifying import findings_in
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.flows import (
    chain,
    claim_all,
    completed,
    graph,
    live_through,
    new_run,
    node,
    run_of,
    start,
    states,
    task_at,
)
from tests.contract.support import MINUTE, OBSERVER, WORKER, declare_dead, finish, types, worker

C, W, R = State.COMPLETED, State.WAITING, State.READY


def test_nothing_of_a_paused_run_begins(store: Store, clock: ManualClock) -> None:
    worker(store)
    run_id = start(store, graph(node("a"), node("b"), node("c"), node("d", 0)))
    first, second, _ = claim_all(store)
    store.settle([finish(second, "retry")])
    assert store.pause_run(run_id) == "done"
    assert store.pause_run(run_id) == "already"
    store.settle([completed(first)])
    clock.advance(MINUTE)
    store.promote()
    assert claim_all(store) == []
    assert states(store, run_id) == [C, W, State.RUNNING, W]

    assert store.resume_run(run_id) == "done"
    assert states(store, run_id) == [C, R, State.RUNNING, R]
    assert "workflow.resumed" in types(store.history(run_id))


def test_what_comes_back_to_a_paused_run_waits(store: Store, clock: ManualClock) -> None:
    worker(store)
    run_id = start(store, graph(node("a"), node("b"), node("c"), node("d", 0)))
    released, retried, lost = claim_all(store)
    store.pause_run(run_id)
    store.settle([finish(released, "released")])
    store.settle([finish(retried, "retry")])
    store.start([lost.lease])
    declare_dead(store, WORKER)
    assert states(store, run_id) == [W, W, W, W]

    store.resume_run(run_id)
    assert states(store, run_id) == [R, State.SCHEDULED, R, W]
    clock.advance(MINUTE)
    store.promote()
    live_through(store, worker_id=OBSERVER)
    assert run_of(store, run_id).state is RunState.COMPLETED


def test_a_paused_run_ends_with_its_last_task(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(1))
    (only,) = claim_all(store)
    store.pause_run(run_id)
    store.settle([completed(only)])
    assert run_of(store, run_id).state is RunState.COMPLETED
    assert store.resume_run(run_id) == "finished"


def test_cancelling_ends_what_has_not_begun_and_asks_the_rest(store: Store) -> None:
    worker(store)
    run_id = start(store, graph(node("a"), node("b"), node("c", 0)))
    (running,) = claim_all(store, limit=1)
    assert store.cancel_run(run_id, reason="not needed") == "done"
    assert store.cancel_run(run_id) == "already"
    assert states(store, run_id) == [State.RUNNING, State.CANCELLED, State.CANCELLED]
    assert run_of(store, run_id).state is RunState.RUNNING
    assert store.cancel_requests(WORKER) == [running.lease.execution_id]
    store.settle([finish(running, "failed")])
    assert run_of(store, run_id).state is RunState.CANCELLED
    ended = store.history(run_id)[-1]
    assert (ended.type, ended.data) == ("workflow.cancelled", {"reason": "not needed"})
    assert store.cancel_run(run_id) == "finished"


def test_why_a_run_was_cancelled_is_told_of_each_time(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(1))
    reasons = ["too early", None, "too late"]
    for reason in reasons:
        assert store.cancel_run(run_id, reason=reason) == "done"
        assert store.rerun_run(run_id) == "done"
    told = [one for one in store.history(run_id) if one.type.startswith("workflow.cancel")]
    assert [one.type for one in told] == ["workflow.cancel_requested", "workflow.cancelled"] * 3
    assert [one.data.get("reason") for one in told] == [one for one in reasons for _ in range(2)]


def test_a_run_that_ends_with_a_cancelled_task_has_no_reason_of_an_earlier_life(
    store: Store,
) -> None:
    run_id = start(store, chain(1))
    store.cancel_run(run_id, reason="the wrong customer")
    store.rerun_run(run_id)
    store.cancel([task_at(run_id, 0)])
    ended = store.history(run_id)[-1]
    assert (ended.type, ended.data) == ("workflow.cancelled", {})


def test_why_a_paused_run_was_cancelled_is_in_its_history(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(2))
    (running,) = claim_all(store)
    store.pause_run(run_id)
    store.cancel_run(run_id, reason="not needed")
    store.settle([finish(running, "cancelled")])
    assert store.history(run_id)[-1].data == {"reason": "not needed"}
    assert findings_in(store.examine()) == []


def test_a_run_over_its_time_fails(store: Store, clock: ManualClock) -> None:
    worker(store)
    run_id = start(store, chain(2), timeout=timedelta(minutes=5))
    assert store.promote().next_due == timedelta(minutes=5)
    clock.advance(timedelta(minutes=5))
    assert store.chores().next_due == timedelta(0)
    assert store.promote().next_due is None
    ended = run_of(store, run_id)
    assert ended.state is RunState.FAILED
    assert json.loads(ended.error or "")["type"] == "WorkflowTimeout"
    assert states(store, run_id) == [State.CANCELLED, State.CANCELLED]


def test_a_run_over_its_time_fails_when_what_runs_has_ended(
    store: Store, clock: ManualClock
) -> None:
    worker(store)
    run_id = start(store, chain(2), timeout=MINUTE)
    (first,) = claim_all(store)
    clock.advance(MINUTE)
    store.promote()
    assert run_of(store, run_id).state is RunState.RUNNING
    store.settle([completed(first)])
    assert states(store, run_id) == [C, State.CANCELLED]
    assert run_of(store, run_id).state is RunState.FAILED


def test_an_unknown_run_is_told_so(store: Store) -> None:
    nobody = new_run(chain(1)).id
    assert store.runs([nobody]) == []
    assert store.tasks_of(nobody) == []
    assert store.pause_run(nobody) == "unknown"
    assert store.resume_run(nobody) == "unknown"
    assert store.cancel_run(nobody) == "unknown"


def test_the_run_of_each_task_that_is_cancelled_ends_with_it_however_many_they_are(
    store: Store,
) -> None:
    runs = [new_run(graph(node("only"))) for _ in range(250)]
    store.start_runs(runs)

    store.cancel([task_at(run.id, 0) for run in runs])

    assert {run.state for run in store.runs([run.id for run in runs])} == {RunState.CANCELLED}
