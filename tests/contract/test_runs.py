"""Runs of workflows: each task is let go in the transaction that ends its last dependency."""

import json

import pytest

from penstock.model.follow_ups import FollowUp, encode_follow_ups
from penstock.model.rules import ContextValue, Dependencies, Either, TaskEnded
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.flows import (
    FLOW,
    chain,
    claim_all,
    completed,
    diamond,
    failing,
    graph,
    live_through,
    new_run,
    node,
    place,
    run_of,
    start,
    states,
    task_at,
)
from tests.contract.support import (
    MINUTE,
    OBSERVER,
    QUEUE,
    TASK,
    WORKER,
    declare_dead,
    finish,
    get,
    types,
    worker,
)

C, F, S, W, R = State.COMPLETED, State.FAILED, State.SKIPPED, State.WAITING, State.READY


def test_a_run_begins_with_what_depends_on_nothing(store: Store) -> None:
    run_id = start(store, diamond())
    assert states(store, run_id) == [R, W, W, W]
    assert run_of(store, run_id).state is RunState.RUNNING
    assert types(store.history(run_id)) == [
        "workflow.started", "task.created", "task.marked_ready",
        "task.created", "task.created", "task.created",
    ]  # fmt: skip


def test_a_run_that_is_started_again_is_the_same_run(store: Store) -> None:
    new = new_run(diamond())
    store.start_runs([new])
    history = store.history(new.id)
    store.start_runs([new])
    assert store.history(new.id) == history
    assert len(store.tasks_of(new.id)) == 4


def test_dependents_are_ready_when_the_settlement_returns(store: Store) -> None:
    worker(store)
    run_id = start(store, diamond())
    (first,) = claim_all(store)
    store.settle([completed(first)])
    assert states(store, run_id) == [C, R, R, W]


def test_results_and_inputs_arrive_as_they_were_stored(store: Store) -> None:
    worker(store)
    start(store, diamond(), '{"day":"größe \\"x\\"","other":1}')
    (first,) = claim_all(store)
    assert json.loads(first.args) == {"day": 'größe "x"'}
    store.settle([completed(first, '{"b":1,"a":[1.50,"é"]}')])
    left, right = claim_all(store)
    assert left.args == right.args == '{"value":{"b":1,"a":[1.50,"é"]}}'
    store.settle([completed(left, "1")])
    store.settle([completed(right, "2")])
    (join,) = claim_all(store)
    assert json.loads(join.args) == {"left": 1, "right": 2}


def test_two_parents_in_one_batch_release_their_child_once(store: Store) -> None:
    worker(store)
    run_id = start(store, diamond())
    live = claim_all(store)
    store.settle([completed(one) for one in live])
    live = claim_all(store)
    assert [place(one) for one in live] == [1, 2]
    store.settle([completed(one) for one in live])
    (join,) = claim_all(store)
    assert place(join) == 3
    assert claim_all(store) == []
    store.settle([completed(join)])
    assert run_of(store, run_id).state is RunState.COMPLETED


def test_a_settlement_that_is_repeated_releases_nothing_twice(store: Store) -> None:
    worker(store)
    run_id = start(store, diamond())
    (first,) = claim_all(store)
    store.settle([completed(first)])
    told = store.history(run_id)
    assert store.settle([completed(first)]) == []
    assert store.history(run_id) == told


def test_what_a_worker_returned_that_had_lost_its_lease_feeds_nobody(store: Store) -> None:
    worker(store)
    run_id = start(store, diamond())
    (first,) = claim_all(store)
    store.settle([completed(first, "1")])
    late, other = claim_all(store)
    declare_dead(store, WORKER)
    (again,), (once_more,) = claim_all(store, OBSERVER), claim_all(store, OBSERVER)
    assert store.settle([completed(again, '"in time"')]) == []
    # One batch: an outcome that comes too late, and the one that lets the child go.
    assert store.settle([completed(late, '"too late"'), completed(once_more, "2")]) == [late.lease]
    assert store.settle([completed(other, '"too late"')]) == [other.lease]
    (join,) = claim_all(store, OBSERVER)
    assert json.loads(join.args) == {"left": "in time", "right": 2}
    assert states(store, run_id)[3] is State.RUNNING


def test_the_end_of_the_last_task_is_the_end_of_the_run(store: Store, clock: ManualClock) -> None:
    worker(store)
    run_id = start(store, chain(3))
    clock.advance(MINUTE)
    assert live_through(store) == [0, 1, 2]
    ended = run_of(store, run_id)
    assert (ended.state, ended.finished_at) == (RunState.COMPLETED, clock.now())
    assert types(store.history(run_id))[-1] == "workflow.completed"


def test_what_depends_on_a_failure_is_skipped_and_the_run_failed(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(4))
    assert live_through(store, failing(1)) == [0, 1]
    assert states(store, run_id) == [C, F, S, S]
    ended = run_of(store, run_id)
    assert ended.state is RunState.FAILED
    assert json.loads(ended.error or "")["tasks"] == ["t1"]
    skipped = store.history(task_at(run_id, 3))
    assert types(skipped) == ["task.created", "task.skipped"]


def test_a_failure_is_forgiven_by_a_task_that_was_told_of_it_and_completed(store: Store) -> None:
    worker(store)
    shape = graph(
        node("try"),
        node("fallback", 0, rule=Dependencies("any_failed")),
        node("report", 0, 1, rule=Dependencies("any_succeeded")),
    )
    run_id = start(store, shape)
    live_through(store, failing(0))
    assert states(store, run_id) == [F, C, C]
    assert run_of(store, run_id).state is RunState.COMPLETED


def test_a_fallback_that_fails_forgives_nothing(store: Store) -> None:
    worker(store)
    run_id = start(store, graph(node("try"), node("fallback", 0, rule=TaskEnded("try", "failed"))))
    live_through(store, failing(0, 1))
    assert states(store, run_id) == [F, F]
    assert run_of(store, run_id).state is RunState.FAILED


@pytest.mark.parametrize(
    ("rule", "fails", "expected"),
    [
        (Dependencies("all_succeeded"), [], C),
        (Dependencies("all_succeeded"), [1], S),
        (Dependencies("all_done"), [0, 1], C),
        (Dependencies("any_succeeded"), [1], C),
        (Dependencies("any_succeeded"), [0, 1], S),
        (Dependencies("any_failed"), [], S),
        (Dependencies("any_failed"), [0], C),
        (Dependencies("none_failed"), [], C),
        (Dependencies("none_failed"), [0], S),
        (TaskEnded("a", "completed"), [1], C),
        (TaskEnded("a", "failed"), [1], S),
        (ContextValue("size", ">", 5), [], C),
        (ContextValue("size", "<", 5), [], S),
        (ContextValue("missing", "exists"), [], S),
        (Either(TaskEnded("a", "failed"), ContextValue("size", "==", 10)), [], C),
    ],
)
def test_a_rule_decides_once_all_dependencies_have_ended(
    store: Store, rule: object, fails: list[int], expected: State
) -> None:
    worker(store)
    run_id = start(store, graph(node("a"), node("b"), node("c", 0, 1, rule=rule)))  # type: ignore[arg-type]
    live_through(
        store,
        lambda one: (
            finish(one, "failed")
            if place(one) in fails
            else completed(one, writes='{"size":10}' if place(one) == 0 else None)
        ),
    )
    assert states(store, run_id)[2] is expected


def test_a_task_sees_what_all_upstream_of_it_wrote_in_the_order_of_the_graph(
    store: Store,
) -> None:
    worker(store)
    shape = graph(
        node("a"),
        node("b"),
        node("aside"),
        node("middle", 0, 1),
        node("last", 3, context="shared"),
    )
    writes = {
        0: '{"name":"a","list":[1,2],"deep":{"x":1,"y":1}}',
        1: '{"name":"b","list":[2,3],"deep":{"y":2}}',
        2: '{"aside":true}',
    }
    start(store, shape, '{"day":"monday","list":[0]}')
    turns: list[str] = []
    while claimed := claim_all(store):
        turns += [one.args for one in claimed]
        # The later one in the graph settles first: who is faster must not matter.
        for one in reversed(claimed):
            store.settle([completed(one, writes=writes.get(place(one)))])
    assert json.loads(turns[-1]) == {
        "shared": {
            "day": "monday",
            "name": "b",
            "list": [0, 1, 2, 3],
            "deep": {"x": 1, "y": 2},
        }
    }


def test_a_failed_or_skipped_dependency_loses_nothing_of_the_input(store: Store) -> None:
    worker(store)
    shape = graph(
        node("try", inputs=["day"]),
        node("never", 0),
        node(
            "fallback",
            0,
            1,
            rule=Dependencies("all_done"),
            inputs=["day"],
            outputs={"tried": 0, "skipped": 1},
            context="shared",
        ),
    )
    start(store, shape)
    (first,) = claim_all(store)
    store.settle([finish(first, "failed")])
    (fallback,) = claim_all(store)
    assert json.loads(fallback.args) == {
        "day": "monday",
        "tried": None,
        "skipped": None,
        "shared": {"day": "monday"},
    }


def test_a_run_whose_every_task_is_skipped_ends_where_it_begins(store: Store) -> None:
    only = graph(node("only", rule=ContextValue("day", "==", "sunday")), node("then", 0))
    run_id = start(store, only)
    assert states(store, run_id) == [S, S]
    assert run_of(store, run_id).state is RunState.COMPLETED
    assert types(store.history(run_id)) == [
        "workflow.started", "task.created", "task.skipped",
        "task.created", "task.skipped", "workflow.completed",
    ]  # fmt: skip


def test_a_task_that_is_given_up_at_its_last_crash_ends_its_dependents(store: Store) -> None:
    worker(store)
    run_id = start(store, graph(node("pill", max_crashes=1), node("then", 0)))
    (one,) = claim_all(store)
    store.start([one.lease])
    declare_dead(store, WORKER)
    assert states(store, run_id) == [F, S]
    assert run_of(store, run_id).state is RunState.FAILED


def test_a_recovered_task_goes_on_where_the_run_stood(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(2))
    (one,) = claim_all(store)
    store.start([one.lease])
    declare_dead(store, WORKER)
    assert store.settle([completed(one)]) == [one.lease]
    assert states(store, run_id) == [R, W]
    live_through(store, worker_id=OBSERVER)
    assert run_of(store, run_id).state is RunState.COMPLETED


def test_a_cancelled_task_ends_what_waits_for_it(store: Store) -> None:
    run_id = start(store, chain(3))
    assert store.cancel([task_at(run_id, 0)]) == ["cancelled"]
    assert states(store, run_id) == [State.CANCELLED, S, S]
    assert run_of(store, run_id).state is RunState.CANCELLED


def test_retries_and_deferrals_keep_dependents_waiting(store: Store, clock: ManualClock) -> None:
    worker(store)
    run_id = start(store, chain(2))
    for how in ("retry", "deferred_for", "released"):
        (one,) = claim_all(store)
        store.settle([finish(one, how)])
        assert states(store, run_id)[1] is W
        clock.advance(MINUTE)
        store.promote()
    live_through(store)
    assert run_of(store, run_id).state is RunState.COMPLETED


# --- what follows, and what is found ----------------------------------------------------------


@pytest.mark.parametrize(("fails", "follows"), [([], "on_success"), ([1], "on_failure")])
def test_what_follows_a_run_is_enqueued_with_its_end(
    store: Store, fails: list[int], follows: str
) -> None:
    worker(store)

    def after(*wants: str) -> FollowUp:
        return FollowUp(task=TASK, queue="after", priority=0, max_crashes=3, wants=wants)

    told = encode_follow_ups(
        on_success=after("execution_id", "workflow", "result"),
        on_failure=after("execution_id", "error"),
    )
    run_id = start(store, chain(2), follow_ups=told)
    live_through(store, failing(*fails))
    (one,) = store.claim(WORKER, queues=["after"], tasks=[TASK], limit=9)
    args = json.loads(one.args)
    assert args["execution_id"] == run_id
    if follows == "on_success":
        assert args == {
            "execution_id": run_id, "workflow": FLOW, "result": {"t0": None, "t1": None},
        }  # fmt: skip
    else:
        assert args["error"]["tasks"] == ["t1"]


def test_runs_are_found_newest_first(store: Store) -> None:
    worker(store)
    done = [start(store, chain(1)) for _ in range(3)]
    live_through(store)
    live = [start(store, chain(1)) for _ in range(2)]
    found = [run.id for run in store.find_runs()]
    assert found == [*reversed(live), *reversed(done)]
    assert [run.id for run in store.find_runs(state=RunState.COMPLETED, limit=2)] == done[:0:-1]
    assert [run.id for run in store.find_runs(before=done[1])] == [done[0]]
    assert store.find_runs(workflow="other") == []


def test_a_tasks_history_is_its_own_and_a_runs_history_is_everybodys(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(2))
    live_through(store)
    mine = store.history(task_at(run_id, 1))
    assert {event.execution_id for event in mine} == {task_at(run_id, 1)}
    assert types(mine) == [
        "task.created", "task.marked_ready", "task.claimed", "task.completed",
    ]  # fmt: skip
    whole = store.history(run_id)
    assert [event for event in whole if event.execution_id == task_at(run_id, 1)] == mine
    assert get(store, task_at(run_id, 1)).root_id == run_id


def test_a_queue_of_its_own_does_not_hide_a_task_from_its_run(store: Store) -> None:
    worker(store)
    start(store, graph(node("a"), node("b", 0, queue="slow")))
    live_through(store)
    assert [
        one.queue for one in store.claim(WORKER, queues=[QUEUE, "slow"], tasks=[TASK], limit=5)
    ] == ["slow"]
