"""A worker that is asked to stop finishes what it can and gives back the rest, for free."""

import signal
import time
from pathlib import Path

import pytest

from penstock import App
from penstock.model.events import EventType
from penstock.testing.processes import WorkerProcess
from tests.support import tasks
from tests.support.workers import Place, Workers, counted, types, wait_until

GRACE = 2.0
MARGIN = 2.0
LONG = 20
HARDLY = 1.0  # a settlement, and the way out of the interpreter on a busy machine


def running(app: App, place: Place, count: int) -> None:
    wait_until(lambda: len(place.runs()) == count)
    ids = [run.execution_id for run in place.runs()]
    wait_until(lambda: counted(app.store, ids, EventType.STARTED).total() == count)


def stop(process: WorkerProcess) -> float:
    begun = time.monotonic()
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    return time.monotonic() - begun


def test_sigterm_lets_tasks_finish_for_the_grace_period_and_gives_back_the_rest(
    app: App, place: Place, workers: Workers
) -> None:
    never = str(place.directory / "never")
    kinds = (tasks.hold, tasks.hold_on_loop)
    long = [kinds[n % 2].enqueue(never).id for n in range(LONG // 2)]
    short = [kinds[n % 2].enqueue(place.gate).id for n in range(LONG // 2)]
    waiting = tasks.hold.enqueue(place.gate).id
    process = workers.start(slots=LONG, grace=GRACE)
    running(app, place, LONG)

    begun = time.monotonic()
    process.signal(signal.SIGTERM)
    wait_until(lambda: process.logged(f"stopping: {LONG} running, with {GRACE:g}s to finish"))
    place.open_gate()
    assert process.wait() == 0
    took = time.monotonic() - begun

    assert GRACE < took < GRACE + MARGIN
    for one in short:
        assert app.get(one).state == "completed"
    for one in long:
        execution = app.get(one)
        assert (execution.state, execution.attempt) == ("ready", 0)
        assert types(app.store, one) == [
            "task.created", "task.marked_ready", "task.claimed", "task.started", "task.released",
        ]  # fmt: skip
    assert types(app.store, waiting) == ["task.created", "task.marked_ready"]
    assert app.store.workers() == []

    Path(never).touch()
    workers.start(slots=1)
    assert app.get(waiting).result(timeout=10) is not None
    after = [run.execution_id for run in place.runs()][LONG:]
    assert after == [*long, waiting]  # given back to their old places, before what came later


def test_a_second_sigterm_gives_back_everything_at_once(
    app: App, place: Place, workers: Workers
) -> None:
    ids = [kind.enqueue(place.gate).id for kind in (tasks.hold, tasks.hold_on_loop) * 3]
    ids.append(tasks.hold_in_process.enqueue(place.gate).id)
    process = workers.start(slots=8, grace=60)
    running(app, place, 7)
    process.signal(signal.SIGTERM)
    wait_until(lambda: process.logged("stopping") == 1)  # two that arrive together are one
    late = tasks.step.enqueue(1)

    assert stop(process) < MARGIN
    assert set(counted(app.store, ids, EventType.RELEASED).values()) == {1}
    assert {app.get(one).state for one in [*ids, late.id]} == {"ready"}
    assert {app.get(one).attempt for one in ids} == {0}


def test_a_worker_without_tasks_stops_at_once(app: App, workers: Workers) -> None:
    process = workers.start(grace=60)
    assert stop(process) < MARGIN


def test_a_task_that_blocks_the_loop_does_not_keep_the_process(
    app: App, place: Place, workers: Workers
) -> None:
    blocking = tasks.block_the_loop.enqueue(60)
    process = workers.start(grace=0.2)
    running(app, place, 1)

    assert stop(process) < 0.2 + MARGIN
    assert types(app.store, blocking.id)[-1] == "task.released"


def test_an_error_on_the_way_out_costs_no_retry(app: App, place: Place, workers: Workers) -> None:
    execution = tasks.stubborn.enqueue(place.gate)
    process = workers.start(grace=0.2)
    running(app, place, 1)
    stop(process)

    assert types(app.store, execution.id)[-1] == "task.released"
    assert execution.refresh().attempt == 0


@pytest.mark.parametrize("whom", ["the worker", "everybody"])
def test_children_that_the_stopping_of_a_service_ends_cost_no_retry(
    app: App, place: Place, workers: Workers, whom: str
) -> None:
    """Whoever stops a service may send the signal to each of its processes."""
    ids = [tasks.hold_in_process.enqueue(place.gate).id for _ in range(2)]
    process = workers.start(slots=2, grace=0.3)
    running(app, place, 2)
    if whom == "everybody":
        process.signal_children(signal.SIGTERM)
    stop(process)

    assert {types(app.store, one)[-1] for one in ids} == {"task.released"}
    assert {app.get(one).attempt for one in ids} == {0}


def test_a_task_on_a_thread_is_given_back_only_as_its_process_ends(
    app: App, place: Place, workers: Workers
) -> None:
    execution = tasks.hold.enqueue(place.gate)
    first = workers.start(grace=0.2)
    running(app, place, 1)
    second = workers.start()
    first.signal(signal.SIGTERM)
    wait_until(lambda: len(place.runs()) == 2)
    taken_over = time.monotonic()
    assert first.wait() == 0

    assert time.monotonic() - taken_over < HARDLY
    place.open_gate()
    assert execution.result(timeout=10) == second.pid
