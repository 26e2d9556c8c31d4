"""What a worker tells whoever listens, and what it does not care about."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock import App, GiveUp, TaskHandle
from penstock.engine.hooks import AttemptBegan, AttemptEnded, Hooks, HookSet
from penstock.engine.vitals import Living
from penstock.model.executions import NewExecution
from penstock.model.outcomes import Completed, Failed, RetryScheduled
from tests.support.deferring import World


class Heard(Hooks):
    """Remembers everything."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.began: list[str] = []
        self.ended: list[AttemptEnded] = []
        self.settled: list[AttemptEnded] = []
        self.polls = 0
        self.workers: list[str] = []

    def executions_created(self, executions: Sequence[NewExecution]) -> None:
        self.created += [execution.task for execution in executions]

    def attempt_began(self, attempt: AttemptBegan) -> None:
        self.began.append(attempt.task)

    def attempt_ended(self, attempt: AttemptEnded) -> None:
        self.ended.append(attempt)

    def attempt_settled(self, attempt: AttemptEnded) -> None:
        self.settled.append(attempt)

    def claim_polled(self, claimed: int) -> None:
        assert claimed >= 0
        self.polls += 1

    def worker_started(self, worker: Living) -> None:
        assert worker.vitals().slots == 2
        self.workers.append("started")

    def worker_stopped(self, worker: Living) -> None:
        assert worker.vitals().stopping
        self.workers.append("stopped")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/hooks.db", migrate=True)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    @app.task(retry=[0])
    async def fail() -> None:
        message = "boom"
        raise ValueError(message)

    @app.task
    def give_up() -> None:
        raise GiveUp("no use")

    yield app
    app.close()


def work(app: App) -> None:
    with app.worker(slots=2) as worker:
        worker.wait_until_idle()


def test_what_is_enqueued_run_and_settled_is_told_once(app: App) -> None:
    heard = Heard()
    app.add_hooks(heard)
    for task in ("fail", "give_up"):
        app.enqueue(task)
    app.enqueue("add", {"a": 1, "b": 2})

    work(app)

    assert sorted(heard.created) == ["add", "fail", "give_up"]
    assert sorted(heard.began) == ["add", "fail", "fail", "give_up"]
    outcomes: dict[str, type] = {
        one.task: type(one.outcome) for one in heard.settled if one.task != "fail"
    }
    assert outcomes == {"add": Completed, "give_up": Failed}
    assert [type(one.outcome) for one in heard.settled if one.task == "fail"] == [
        RetryScheduled,
        Failed,
    ]
    assert len(heard.ended) == len(heard.settled) == 4
    assert heard.polls > 0
    assert heard.workers == ["started", "stopped"]


def test_how_long_an_attempt_waited_and_worked_is_told_in_seconds(app: App) -> None:
    heard = Heard()
    app.add_hooks(heard)
    app.enqueue("add", {"a": 1, "b": 2})

    work(app)

    (attempt,) = heard.settled
    assert attempt.waited is not None
    assert 0 <= attempt.waited < 30
    assert 0 <= attempt.took < 30


def test_time_without_a_slot_is_no_work(app: App) -> None:
    heard = Heard()
    app.add_hooks(heard)
    gate = threading.Event()

    @app.task
    def patient(handle: TaskHandle) -> None:
        threading.Timer(0.5, gate.set).start()
        handle.defer_until(gate.is_set, every=0.05)

    app.enqueue("patient")

    work(app)

    (attempt,) = heard.settled
    assert attempt.took < 0.45


def test_what_was_given_back_before_it_began_is_no_attempt_to_tell_of(app: App) -> None:
    """It was to run on a loop that another task blocked until the worker ended."""
    world, heard = World(app, []), Heard()
    world.runner._hooks = HookSet([heard])
    attempt = world.claim(app.tasks["fail"])
    world.runner.release_rest()
    world.runner._loop.close()
    assert (heard.began, heard.ended) == ([], [])
    assert not world.runner.running
    assert world.history() == ["created", "marked_ready", "claimed", "released"]
    assert app.get(attempt.id).attempt == 0


def test_a_key_that_was_taken_creates_nothing_to_tell_of(app: App) -> None:
    heard = Heard()
    app.add_hooks(heard)

    for _ in range(2):
        app.enqueue("add", {"a": 1, "b": 2}, key="once")

    assert heard.created == ["add"]


class Clumsy(Hooks):
    def attempt_settled(self, attempt: AttemptEnded) -> None:
        raise ZeroDivisionError(attempt.task)


def test_hooks_that_raise_stop_nobody_and_are_complained_about_once(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    app.add_hooks(Clumsy())
    app.add_hooks(heard)
    for _ in range(3):
        app.enqueue("add", {"a": 1, "b": 2})

    with caplog.at_level(logging.ERROR, "penstock.hooks"):
        work(app)

    assert app.counts()["completed"] == 3
    assert len(heard.settled) == 3
    (complaint,) = [record for record in caplog.records if record.name == "penstock.hooks"]
    assert "Clumsy.attempt_settled" in complaint.getMessage()


def test_every_callback_is_passed_on() -> None:
    callbacks = {name for name, value in vars(Hooks).items() if callable(value)}
    assert callbacks <= set(vars(HookSet))


def test_importing_penstock_imports_no_metrics_library() -> None:
    looked = (
        "import sys, penstock, penstock.cli\n"
        "print([name for name in sys.modules if name.startswith('prometheus_client')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", looked], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


@dataclass  # which makes it unhashable
class Unhashable(Hooks):
    times: int = 0

    def attempt_ended(self, attempt: AttemptEnded) -> None:
        self.times += 1
        raise ZeroDivisionError(attempt.task)


def test_hooks_that_raise_need_not_be_hashable(app: App) -> None:
    app.add_hooks(hooks := Unhashable())
    for _ in range(2):
        app.enqueue("add", {"a": 1, "b": 2})
    work(app)
    assert app.counts()["completed"] == 2
    assert hooks.times == 2
