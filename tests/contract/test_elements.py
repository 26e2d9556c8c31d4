"""Tasks that run once for each element of a list."""

import json
import time

import pytest

from penstock.model.executions import Claimed
from penstock.model.graph import ForEach, Graph, Node
from penstock.model.ids import MOST_ELEMENTS, element_id, index_of
from penstock.model.outcomes import Outcome
from penstock.model.rules import Dependencies
from penstock.model.runs import RunState
from penstock.model.states import FINAL, State
from penstock.model.verifying import findings_in
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.flows import (
    claim_all,
    completed,
    graph,
    node,
    place,
    run_of,
    start,
    states,
    task_at,
)
from tests.contract.support import MINUTE, OBSERVER, WORKER, declare_dead, finish, types, worker

C, F, W = State.COMPLETED, State.FAILED, State.WAITING


def fan(*more: Node) -> Graph:
    each = node("each", 0, inputs=["day"])
    each = Node(
        **{field: getattr(each, field) for field in each.__struct_fields__}
        | {"for_each": ForEach("item", 0)}
    )
    return graph(node("list"), each, *more)


GATHER = node("gather", 1, outputs={"all": 1})


def begin(store: Store, shape: Graph, items: str) -> str:
    worker(store)
    run_id = start(store, shape)
    (first,) = claim_all(store)
    store.settle([completed(first, items)])
    return run_id


def doubled(one: Claimed) -> Outcome:
    return completed(one, str(json.loads(one.args)["item"] * 2))


def element_states(store: Store, run_id: str) -> list[State]:
    return [one.state for one in store.elements_of(run_id, 1)]


def test_there_is_an_execution_for_each_element(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[3,1,2]")
    claimed = claim_all(store)
    assert [json.loads(one.args) for one in claimed] == [
        {"day": "monday", "item": item} for item in (3, 1, 2)
    ]
    assert [one.lease.execution_id for one in claimed] == [
        element_id(run_id, 1, index) for index in range(3)
    ]
    assert states(store, run_id) == [C, W, W]
    assert store.count_elements(run_id) == {1: {State.RUNNING: 3}}


def test_dependents_see_the_results_in_the_order_of_the_list(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[3,1,2]")
    for one in reversed(claim_all(store)):
        store.settle([doubled(one)])
    (gather,) = claim_all(store)
    assert json.loads(gather.args) == {"all": [6, 2, 4]}
    store.settle([completed(gather)])
    assert run_of(store, run_id).state is RunState.COMPLETED
    assert types(store.history(task_at(run_id, 1))) == ["task.created", "task.completed"]


def test_all_elements_in_one_batch_end_their_task_once(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2,3]")
    store.settle([doubled(one) for one in claim_all(store)])
    assert [place(one) for one in claim_all(store)] == [2]
    assert states(store, run_id)[1] is C


def test_an_empty_list_gives_an_empty_list(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[]")
    (gather,) = claim_all(store)
    assert json.loads(gather.args) == {"all": []}
    assert states(store, run_id)[1] is C


def test_an_element_is_retried_on_its_own(store: Store, clock: ManualClock) -> None:
    run_id = begin(store, fan(GATHER), "[1,2]")
    first, second = claim_all(store)
    store.settle([finish(first, "retry"), doubled(second)])
    assert states(store, run_id) == [C, W, W]
    clock.advance(MINUTE)
    store.promote()
    (again,) = claim_all(store)
    store.settle([doubled(again)])
    assert states(store, run_id) == [C, C, State.READY]


def test_a_failed_element_fails_its_task_when_all_have_ended(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2,3]")
    first, second, third = claim_all(store)
    store.settle([finish(second, "failed")])
    assert states(store, run_id)[1] is W
    store.settle([doubled(first), doubled(third)])
    assert states(store, run_id) == [C, F, State.SKIPPED]
    (_, each, _) = store.tasks_of(run_id)
    error = json.loads(each.error or "")
    assert (error["type"], error["elements"]) == ("ElementsFailed", [1])
    assert error["message"].startswith("1 of 3 elements failed, counted from 0: 1.")
    assert second.lease.execution_id in error["message"]
    assert run_of(store, run_id).state is RunState.FAILED


@pytest.mark.parametrize("given", ['{"a":1}', "7", "null"])
def test_what_is_no_list_fails_the_task(store: Store, given: str) -> None:
    run_id = begin(store, fan(GATHER), given)
    assert states(store, run_id) == [C, F, State.SKIPPED]
    assert "needs a list" in (store.tasks_of(run_id)[1].error or "")


def test_too_long_a_list_fails_the_task(store: Store) -> None:
    run_id = begin(store, fan(GATHER), json.dumps([0] * (MOST_ELEMENTS + 1)))
    assert states(store, run_id) == [C, F, State.SKIPPED]
    assert store.count_elements(run_id) == {}


def test_what_elements_write_is_merged_in_the_order_of_the_list(store: Store) -> None:
    shape = fan(node("last", 1, context="shared"))
    begin(store, shape, "[1,2]")
    for one in reversed(claim_all(store)):
        index = index_of(one.lease.execution_id)
        store.settle([completed(one, "0", json.dumps({"last": index, "all": [index]}))])
    (last,) = claim_all(store)
    assert json.loads(last.args)["shared"] == {"day": "monday", "last": 1, "all": [0, 1]}


def test_a_list_from_a_list(store: Store) -> None:
    second = Node(
        name="again", task="send_email", queue="default", max_crashes=3, after=(1,),
        for_each=ForEach("item", 1),
    )  # fmt: skip
    run_id = begin(store, fan(second), "[1,2]")
    store.settle([doubled(one) for one in claim_all(store)])
    store.settle([doubled(one) for one in claim_all(store)])
    assert [task.result for task in store.tasks_of(run_id)] == ["[1,2]", "[2,4]", "[4,8]"]
    assert run_of(store, run_id).state is RunState.COMPLETED


def test_elements_of_a_paused_run_wait(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2,3]")
    (first,) = claim_all(store, limit=1)
    store.pause_run(run_id)
    assert claim_all(store) == []
    store.settle([doubled(first)])
    assert element_states(store, run_id) == [C, W, W]
    store.resume_run(run_id)
    store.settle([doubled(one) for one in claim_all(store)])
    assert states(store, run_id) == [C, C, State.READY]


def test_cancelling_a_run_ends_its_elements(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2,3]")
    (first,) = claim_all(store, limit=1)
    store.cancel_run(run_id)
    assert run_of(store, run_id).state is RunState.RUNNING
    store.settle([finish(first, "cancelled")])
    assert element_states(store, run_id) == [State.CANCELLED] * 3
    assert states(store, run_id) == [C, State.CANCELLED, State.CANCELLED]
    assert run_of(store, run_id).state is RunState.CANCELLED


def test_a_rerun_takes_only_the_elements_that_did_not_complete(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2,3]")
    first, second, third = claim_all(store)
    store.settle([doubled(first), finish(second, "failed"), doubled(third)])
    assert store.rerun_run(run_id) == "done"
    (again,) = claim_all(store)
    assert again.lease.execution_id == second.lease.execution_id
    store.settle([doubled(again)])
    (gather,) = claim_all(store)
    assert json.loads(gather.args) == {"all": [2, 4, 6]}
    told = types(store.history(second.lease.execution_id))
    assert told[-5:] == [
        "task.failed", "task.rerun", "task.marked_ready", "task.claimed", "task.completed",
    ]  # fmt: skip


def test_another_list_in_the_next_life_runs_what_is_new_in_it(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2,3]")
    store.settle([doubled(one) for one in claim_all(store)])
    (gather,) = claim_all(store)
    store.settle([completed(gather)])
    assert store.rerun([task_at(run_id, 0)]) == ["rerun"]
    (first,) = claim_all(store)
    store.settle([completed(first, "[1,5]")])
    (again,) = claim_all(store)
    assert json.loads(again.args)["item"] == 5
    store.settle([doubled(again)])
    (gather,) = claim_all(store)
    assert json.loads(gather.args) == {"all": [2, 10]}


def test_a_task_that_is_named_in_a_rerun_runs_all_of_its_elements_again(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2]")
    store.settle([doubled(one) for one in claim_all(store)])
    (gather,) = claim_all(store)
    store.settle([completed(gather)])
    assert store.rerun([task_at(run_id, 1)]) == ["rerun"]
    assert len(claim_all(store)) == 2


def test_an_element_can_be_rerun_alone(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2]")
    store.settle([doubled(one) for one in claim_all(store)])
    (gather,) = claim_all(store)
    store.settle([completed(gather)])
    assert store.rerun([element_id(run_id, 1, 1)]) == ["rerun"]
    (again,) = claim_all(store)
    assert json.loads(again.args)["item"] == 2
    store.settle([completed(again, "40")])
    (gather,) = claim_all(store)
    assert json.loads(gather.args) == {"all": [2, 40]}


def test_elements_of_a_dead_worker_are_recovered(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2]")
    for one in claim_all(store):
        store.start([one.lease])
    declare_dead(store, WORKER)
    while claimed := claim_all(store, OBSERVER):
        store.settle([doubled(one) if place(one) == 1 else completed(one) for one in claimed])
    assert run_of(store, run_id).state is RunState.COMPLETED


def test_a_fallback_sees_a_failed_list_as_nothing(store: Store) -> None:
    last = node("last", 1, rule=Dependencies("all_done"), outputs={"all": 1})
    begin(store, fan(last), "[1]")
    (one,) = claim_all(store)
    store.settle([finish(one, "failed")])
    (last_one,) = claim_all(store)
    assert json.loads(last_one.args) == {"all": None}


def test_ten_thousand_elements_come_together(store: Store) -> None:
    begun = time.perf_counter()
    run_id = begin(store, fan(GATHER), json.dumps(list(range(MOST_ELEMENTS))))
    done = 0
    while done < MOST_ELEMENTS:
        claimed = claim_all(store, limit=500)
        done += len(claimed)
        store.settle([doubled(one) for one in claimed])
    (gather,) = claim_all(store)
    assert json.loads(gather.args)["all"] == [2 * n for n in range(MOST_ELEMENTS)]
    assert states(store, run_id)[1] is C
    assert time.perf_counter() - begun < 60


def test_a_list_that_waits_for_its_elements_is_cancelled_with_them(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2,3]")
    (first,) = claim_all(store, limit=1)
    assert store.cancel([task_at(run_id, 1)]) == ["requested"]
    store.settle([finish(first, "cancelled")])
    store.propagate()
    assert element_states(store, run_id) == [State.CANCELLED] * 3
    assert states(store, run_id) == [C, State.CANCELLED, State.SKIPPED]
    assert run_of(store, run_id).state is RunState.CANCELLED


def test_a_list_whose_elements_can_all_be_cancelled_at_once_is_told_so(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2,3]")
    assert store.cancel([task_at(run_id, 1)]) == ["cancelled"]
    assert run_of(store, run_id).state is RunState.CANCELLED


def done_once(store: Store) -> str:
    """A run with one element, which has completed, and so has what is behind it."""
    run_id = begin(store, fan(GATHER), "[1]")
    for _ in range(2):
        (one,) = claim_all(store)
        store.settle([completed(one, "1")])
    assert run_of(store, run_id).state is RunState.COMPLETED
    return run_id


def to_run_again(store: Store) -> str:
    """The same, paused, with an element that is to run once more when its list is opened."""
    run_id = done_once(store)
    store.rerun([task_at(run_id, 2)])
    store.pause_run(run_id)
    assert store.rerun([element_id(run_id, 1, 0)]) == ["rerun"]
    assert element_states(store, run_id) == [W]
    return run_id


def assert_nothing_is_left(store: Store, run_id: str) -> None:
    assert all(state in FINAL for state in states(store, run_id))
    assert findings_in(store.examine()) == []


def test_an_element_that_was_to_run_again_is_cancelled_with_its_run(store: Store) -> None:
    run_id = to_run_again(store)
    store.cancel_run(run_id)
    assert element_states(store, run_id) == [State.CANCELLED]
    assert_nothing_is_left(store, run_id)


def test_an_element_that_was_to_run_again_is_cancelled_with_its_list(store: Store) -> None:
    run_id = to_run_again(store)
    assert store.cancel([task_at(run_id, 1)]) == ["cancelled"]
    assert element_states(store, run_id) == [State.CANCELLED]
    store.resume_run(run_id)
    assert_nothing_is_left(store, run_id)


def test_an_element_that_was_to_run_again_is_skipped_with_its_list(store: Store) -> None:
    run_id = done_once(store)
    store.rerun([task_at(run_id, 0)])
    store.cancel([task_at(run_id, 0)])
    assert states(store, run_id) == [State.CANCELLED, State.SKIPPED, State.SKIPPED]
    assert store.rerun([element_id(run_id, 1, 0)]) == ["rerun"]
    assert element_states(store, run_id) == [State.SKIPPED]
    assert_nothing_is_left(store, run_id)


@pytest.mark.parametrize("given", ["[]", '"no list"'])
def test_an_element_that_was_to_run_again_is_skipped_when_there_is_no_list_for_it(
    store: Store, given: str
) -> None:
    run_id = done_once(store)
    store.rerun([task_at(run_id, 0), task_at(run_id, 1)])
    (first,) = claim_all(store)
    store.settle([completed(first, given)])
    assert element_states(store, run_id) == [State.SKIPPED]
    for one in claim_all(store):
        store.settle([completed(one)])
    assert_nothing_is_left(store, run_id)


def test_a_shorter_list_in_the_next_life_skips_what_it_does_not_need(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2,3]")
    store.settle([doubled(one) for one in claim_all(store)])
    (gather,) = claim_all(store)
    store.settle([completed(gather)])
    assert store.rerun([task_at(run_id, 0), task_at(run_id, 1)]) == ["rerun", "rerun"]
    (first,) = claim_all(store)
    store.settle([completed(first, "[7]")])
    (again,) = claim_all(store)
    assert json.loads(again.args)["item"] == 7
    store.settle([doubled(again)])
    (gather,) = claim_all(store)
    assert json.loads(gather.args) == {"all": [14]}
    assert element_states(store, run_id) == [C, State.SKIPPED, State.SKIPPED]


def test_the_same_list_in_the_next_life_is_done_already(store: Store) -> None:
    run_id = begin(store, fan(GATHER), "[1,2]")
    store.settle([doubled(one) for one in claim_all(store)])
    (gather,) = claim_all(store)
    store.settle([completed(gather)])
    assert store.rerun([task_at(run_id, 0)]) == ["rerun"]
    (first,) = claim_all(store)
    store.settle([completed(first, "[1,2]")])
    (gather,) = claim_all(store)
    assert json.loads(gather.args) == {"all": [2, 4]}
    store.settle([completed(gather)])
    assert run_of(store, run_id).state is RunState.COMPLETED
