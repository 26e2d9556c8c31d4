"""Workflows, their children and durable steps, while workers are killed at random.

And while people signal and cancel at the very moment at which workers suspend and complete.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from penstock import App, Execution
from penstock.model.states import FINAL
from penstock.testing.processes import WorkerProcess
from tests.support import flow_tasks
from tests.support.workers import QUICK, ROOT, Place, Workers, types, wait_until

CROWD = 200
DOOMED = 40  # each takes a process along
ALIVE = 3
WAVES = 4


@pytest.fixture
def declared() -> App:
    return flow_tasks.app


def lines(place: Place) -> list[list[str]]:
    path = Path(f"{place.directory / 'runs'}-flows")
    return [line.split() for line in path.read_text("utf-8").splitlines()] if path.exists() else []


class Killing:
    """Keeps some workers alive, and kills one of them whenever it is told to."""

    def __init__(self, workers: Workers, seed: int) -> None:
        self._workers = workers
        self._random = Random(seed)
        self._alive: list[WorkerProcess] = []
        self.killed = 0

    def keep_alive(self) -> None:
        self._alive = [one for one in self._alive if one.alive]
        while len(self._alive) < ALIVE:
            options = {**QUICK, "slots": 4}
            self._alive.append(self._workers.launch(flow_tasks.TARGET, options))

    def kill_one(self) -> bool:
        """Kill one that has begun to work; False if there is none yet."""
        settled = [one for one in self._alive if one.alive and self._workers.ids_of(one)]
        if settled:
            self._random.choice(settled).kill()
            self.killed += 1
        return bool(settled)


def until(done: Callable[[], int], of: int, killing: Killing, *, every: int) -> None:
    """Let them work until all is done, and kill one each time that so many more are."""
    next_kill = every

    def look() -> bool:
        nonlocal next_kill
        killing.keep_alive()
        count = done()
        if next_kill <= count < of and killing.kill_one():
            next_kill = count + every
        return count >= of

    wait_until(look, timeout=90, what="all ended")


def ended_runs(app: App) -> int:
    return sum(run.finished_at is not None for run in app.store.find_runs(limit=10_000))


def test_diamonds_end_as_if_nobody_had_been_killed(
    app: App, place: Place, workers: Workers
) -> None:
    runs = [flow_tasks.diamond.start(number=n) for n in range(CROWD)]
    killing = Killing(workers, seed=1)
    # By the tasks: the runs end nearly all at once, too quickly for many kills.
    until(lambda: app.counts()["completed"], 4 * CROWD, killing, every=48)
    wait_until(lambda: ended_runs(app) == CROWD)

    assert killing.killed >= 3
    for n, run in enumerate(runs):
        run.refresh()
        assert run.state == "completed"
        assert run.result(timeout=0)["bottom"] == [n + 1, 2 * n, ["left", "right", "top"]]
        assert run.context["seen"] == ["top", "left", "right"]
    began = Counter(execution_id for execution_id, _ in lines(place))
    for execution_id, count in began.items():
        if count > 1:
            assert types(app.store, execution_id).count("task.recovered") >= count - 1


def test_parents_see_the_results_of_their_children_once(
    app: App, place: Place, workers: Workers
) -> None:
    parents: list[Execution[int]] = []
    killing = Killing(workers, seed=2)
    for wave in range(WAVES):
        # However quickly they work, there is something to do whenever one is killed.
        numbers = range(wave * CROWD // WAVES, (wave + 1) * CROWD // WAVES)
        parents += app.enqueue_many(flow_tasks.parent.request(n) for n in numbers)
        killing.keep_alive()
        wait_until(killing.kill_one, timeout=30, what="a worker to kill")

    def done() -> int:
        return sum(one.state in FINAL for one in app.store.get([one.id for one in parents]))

    until(done, CROWD, killing, every=12)

    assert killing.killed >= WAVES
    for n, execution in enumerate(parents):
        assert execution.refresh().result(timeout=0) == 2 * n
    children = app.store.find_runs(workflow="child", limit=10_000)
    assert len(children) == CROWD
    seen = Counter(words[0] for words in lines(place) if words[1] == "saw")
    for execution in parents:
        again = types(app.store, execution.id).count("task.recovered")
        assert 1 <= seen[execution.id] <= 1 + again


def test_a_task_killed_after_a_step_does_not_take_it_again(
    app: App, place: Place, workers: Workers
) -> None:
    each = DOOMED // len(flow_tasks.STEPS)
    doomed = [step for step in flow_tasks.STEPS for _ in range(each)]
    # The suspects of a dead process run one at a time in each worker; many processes die here.
    executions = app.enqueue_many(flow_tasks.durable.request(step) for step in doomed)
    killing = Killing(workers, seed=3)

    def done() -> int:
        return sum(one.state in FINAL for one in app.store.get([one.id for one in executions]))

    until(done, DOOMED, killing, every=DOOMED)

    for execution in executions:
        assert execution.refresh().result(timeout=0) == list(flow_tasks.STEPS)
        stored = app.store.memory(execution.id).steps
        assert {step for step in stored if not step.startswith("before")} == set(flow_tasks.STEPS)
    # A step that was stored is not taken again. One that had been taken and not stored yet when a
    # neighbour took the process along may be: then the history says that the task was recovered.
    stored_steps: set[tuple[str, str]] = set()
    taken: Counter[tuple[str, str]] = Counter()
    for execution_id, *words in lines(place):
        if words[0] == "stored":
            stored_steps.add((execution_id, words[1]))
        else:
            assert (execution_id, words[0]) not in stored_steps
            taken[execution_id, words[0]] += 1
    assert len(taken) == DOOMED * len(flow_tasks.STEPS)
    for (execution_id, _), count in taken.items():
        assert count <= 1 + types(app.store, execution_id).count("task.recovered")


def test_a_signal_that_races_a_suspension_is_never_lost(
    app: App, place: Place, workers: Workers
) -> None:
    asking = app.enqueue_many(flow_tasks.ask.request(n) for n in range(CROWD))
    killing = Killing(workers, seed=4)
    numbers = {execution.id: n for n, execution in enumerate(asking)}
    answered: set[str] = set()

    def done() -> int:
        # Whoever has just begun is about to wait: before, while or after it does, it is answered.
        for execution_id, *_ in lines(place):
            if execution_id not in answered:
                app.signal(execution_id, "answer", numbers[execution_id])
                answered.add(execution_id)
        return sum(one.state in FINAL for one in app.store.get(list(numbers)))

    until(done, CROWD, killing, every=50)

    assert [one.refresh().result(timeout=0) for one in asking] == list(range(CROWD))
    suspended = [types(app.store, one.id).count("task.suspended") for one in asking]
    assert max(suspended) == 1  # one answer, so one wait at most


def test_a_child_is_cancelled_although_whoever_cancelled_its_parent_was_killed(
    app: App, place: Place, workers: Workers
) -> None:
    parent = flow_tasks.patient.enqueue()
    workers.launch(flow_tasks.TARGET, {**QUICK, "queues": ["default"]})
    wait_until(lambda: parent.refresh().state == "waiting")
    (child,) = app.store.find_runs(workflow="held")

    victim = subprocess.run(
        [sys.executable, "-m", "tests.support.cancel_and_die", parent.id, "nobody wants it"],
        cwd=ROOT,
        env={**os.environ, **place.environment},
        timeout=60,
        check=False,
    )

    assert victim.returncode == -signal.SIGKILL
    assert parent.refresh().state == "cancelled"
    wait_until(lambda: app.get(child.id).refresh().state == "cancelled")
    assert app.get(child.id).history()[-1].data == {"reason": "nobody wants it"}


def test_a_run_cancelled_while_it_completes_ends_once(
    app: App, place: Place, workers: Workers
) -> None:
    runs = [flow_tasks.diamond.start(number=n) for n in range(CROWD // 2)]
    killing = Killing(workers, seed=5)
    run_of = {run.tasks["bottom"].id: run for run in runs}
    cancelled: set[str] = set()

    def done() -> int:
        for execution_id, task in lines(place):
            if task == "bottom" and execution_id not in cancelled:
                run_of[execution_id].cancel("too late, or just in time")
                cancelled.add(execution_id)
        return ended_runs(app)

    until(done, len(runs), killing, every=20)

    for run in runs:
        run.refresh()
        assert run.state in {"completed", "cancelled"}
        ends = {"workflow.completed", "workflow.cancelled", "workflow.failed"}
        told = [event.type for event in run.history() if event.type in ends]
        assert told == [f"workflow.{run.state}"]
        # Whoever completed in spite of the request stays completed, and so does its run.
        assert run.tasks["bottom"].state == run.state
