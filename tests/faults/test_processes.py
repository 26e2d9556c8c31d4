"""Tasks in processes of their own: the same promises as everywhere, and the child may die."""

import os
import signal

import pytest

from penstock import App, TaskFailed
from penstock.model.events import EventType
from penstock.testing import Faults, lose_reply
from penstock.testing.processes import is_gone
from tests.support import tasks
from tests.support.workers import QUICK, Place, Workers, types, wait_until

PATIENCE = 20.0


def test_a_child_is_killed_when_its_time_is_up(app: App, place: Place, workers: Workers) -> None:
    execution = tasks.overrun_in_process.enqueue(place.gate)
    workers.start(slots=1)
    with pytest.raises(TaskFailed):
        execution.result(timeout=PATIENCE)

    (run,) = place.runs()
    wait_until(lambda: is_gone(int(run.pid)), timeout=2)
    assert execution.error is not None
    assert execution.error["type"].endswith("TimedOut")
    # The slot is free, and another child is there for the next task.
    assert tasks.name_in_process.enqueue().result(timeout=PATIENCE)


def test_a_child_that_is_killed_is_an_error_of_its_task_alone(
    app: App, place: Place, workers: Workers
) -> None:
    execution = tasks.hold_in_process.enqueue(place.gate)
    worker = workers.start(slots=2)
    wait_until(lambda: len(place.runs()) == 1)
    os.kill(int(place.runs()[0].pid), signal.SIGKILL)
    wait_until(lambda: execution.refresh().state == "scheduled")

    assert worker.alive
    assert execution.error is not None
    assert "SIGKILL" in execution.error["message"]
    assert "penstock/engine" not in execution.error["traceback"]
    assert types(app.store, execution.id)[-1] == "task.retry_scheduled"


def test_what_a_child_raises_means_what_it_means_elsewhere(app: App, workers: Workers) -> None:
    unlucky = tasks.unlucky_in_process.enqueue(3)
    hopeless = tasks.give_up_in_process.enqueue()
    patient = tasks.retry_soon_in_process.enqueue()
    misfit = App(app.settings.database.url, schema=app.settings.database.schema)
    picky = misfit.enqueue("picky_in_process", {"number": "many"})
    misfit.close()
    workers.start(slots=4)

    with pytest.raises(TaskFailed, match="number 3: it holds a lock"):
        unlucky.result(timeout=PATIENCE)
    assert unlucky.attempt == 2
    assert unlucky.error is not None
    assert unlucky.error["type"].endswith("UnpicklableError")
    with pytest.raises(TaskFailed, match="no retry can help"):
        hopeless.result(timeout=PATIENCE)
    assert hopeless.attempt == 1
    assert patient.result(timeout=PATIENCE) == 2
    with pytest.raises(TaskFailed, match="number"):
        app.get(picky.id).result(timeout=PATIENCE)
    assert app.get(picky.id).attempt == 1


def test_a_retry_policy_knows_an_error_that_cannot_leave_its_process(
    app: App, workers: Workers
) -> None:
    execution = tasks.final_in_process.enqueue()
    workers.start(slots=1)
    with pytest.raises(TaskFailed):
        execution.result(timeout=PATIENCE)
    assert execution.attempt == 1


def test_log_records_and_context_carry_the_id_of_the_execution(app: App, workers: Workers) -> None:
    thread, loop, child = (
        tasks.talk.enqueue(), tasks.talk_on_loop.enqueue(), tasks.name_in_process.enqueue(),
    )  # fmt: skip
    worker = workers.start()
    assert child.result(timeout=PATIENCE) == child.id
    thread.result(timeout=PATIENCE)
    loop.result(timeout=PATIENCE)
    assert worker.logged(f"[{thread.id}]: from a thread") == 1
    assert worker.logged(f"[{loop.id}]: from the loop") == 1


# --- forks ------------------------------------------------------------------------------


def test_a_task_may_fork_and_its_copy_may_enqueue(app: App, place: Place, workers: Workers) -> None:
    execution = tasks.fork_and_enqueue.enqueue()
    workers.start(**QUICK)
    assert execution.result(timeout=PATIENCE) == 0
    (step,) = app.find(task=tasks.step)
    assert step.result(timeout=PATIENCE) == 7
    assert [run.execution_id for run in place.runs()] == [execution.id, step.id]


def test_a_copy_that_returns_from_its_task_is_no_second_worker(
    app: App, place: Place, workers: Workers
) -> None:
    ids = [tasks.fork_and_return.enqueue().id for _ in range(4)]
    worker = workers.start(slots=2, **QUICK)
    assert {app.get(one).result(timeout=PATIENCE) for one in ids} == {worker.pid}
    wait_until(lambda: all(map(is_gone, worker.children())), what="the copies have ended")

    assert len(place.runs()) == 4
    assert tasks.step.enqueue(5).result(timeout=PATIENCE) == 5
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_task_may_wait_for_another(app: App, workers: Workers) -> None:
    executions = [tasks.ask_another.enqueue(1), tasks.ask_another_on_loop.enqueue(2)]
    workers.start(slots=4)
    assert [one.result(timeout=PATIENCE) for one in executions] == [10, 20]


def test_the_children_of_a_worker_in_somebody_elses_process_end_with_its_block(
    app: App, place: Place
) -> None:
    execution = tasks.hold_in_process.enqueue(place.gate)
    with app.worker(slots=1):
        wait_until(lambda: len(place.runs()) == 1)
        place.open_gate()
        child = execution.result(timeout=PATIENCE)
        assert child != os.getpid()
        assert not is_gone(child)
    wait_until(lambda: is_gone(child), timeout=2)


def test_a_start_that_cannot_be_told_yet_is_no_fault_of_its_task(app: App, place: Place) -> None:
    place.open_gate()
    with Faults().at("before_start", lose_reply).injected(app) as faults, app.worker(slots=1):
        execution = tasks.hold_in_process.enqueue(place.gate)
        assert execution.result(timeout=PATIENCE) != os.getpid()
    assert faults.happened["before_start"] == 1
    assert types(app.store, execution.id).count(EventType.STARTED) == 1
    assert execution.refresh().attempt == 1
