"""Why a task of a run is where it is: the run, and those that the task waits for."""

from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.model.waiting import Waiting
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.flows import (
    claim_all,
    completed,
    diamond,
    live_through,
    run_of,
    start,
    task_at,
)
from tests.contract.support import MINUTE, TASK, enqueue, types, worker


def explained(store: Store, task_id: str) -> Waiting:
    why = store.explain_waiting(task_id)
    assert why is not None
    return why


def test_a_plain_task_is_part_of_no_run(store: Store) -> None:
    why = explained(store, enqueue(store))
    assert (why.run, why.waits_for) == (None, ())


def test_a_task_waits_for_the_dependencies_that_have_not_ended(
    store: Store, clock: ManualClock
) -> None:
    worker(store)
    run_id = start(store, diamond())
    (first,) = claim_all(store)
    store.settle([completed(first)])
    left, _ = claim_all(store)
    clock.advance(MINUTE)

    join = explained(store, task_at(run_id, 3))
    assert join.state is State.WAITING
    assert join.run == run_of(store, run_id)
    assert join.waits_for == (
        (task_at(run_id, 1), TASK, State.RUNNING, clock.now() - MINUTE),
        (task_at(run_id, 2), TASK, State.RUNNING, clock.now() - MINUTE),
    )
    assert types(join.history) == ["task.created"]

    store.settle([completed(left)])
    join = explained(store, task_at(run_id, 3))
    assert [one.id for one in join.waits_for] == [task_at(run_id, 2)]


def test_only_direct_dependencies_are_told(store: Store) -> None:
    run_id = start(store, diamond())
    assert [one.id for one in explained(store, task_at(run_id, 3)).waits_for] == [
        task_at(run_id, 1), task_at(run_id, 2),
    ]  # fmt: skip
    assert [one.id for one in explained(store, task_at(run_id, 1)).waits_for] == [
        task_at(run_id, 0)
    ]


def test_a_task_of_a_paused_run_waits_for_nothing_but_the_run(store: Store) -> None:
    run_id = start(store, diamond())
    store.pause_run(run_id)

    why = explained(store, task_at(run_id, 0))

    assert why.state is State.WAITING
    assert why.run is not None
    assert why.run.state is RunState.PAUSED
    assert why.waits_for == ()
    assert types(why.history) == ["task.created", "task.marked_ready", "task.paused"]


def test_a_task_that_has_ended_waits_for_nothing(store: Store) -> None:
    worker(store)
    run_id = start(store, diamond())
    live_through(store)

    why = explained(store, task_at(run_id, 3))

    assert why.waits_for == ()
    assert why.run is not None
    assert why.run.state is RunState.COMPLETED
    assert types(why.history)[-1] == "task.completed"
