"""Two threads look for work, the claimer's own and the one that hears of it: never both at once."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import App
from penstock.engine.worker import Worker

LISTENERS = 3
TASKS = 20


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path / 'penstock.db'}")
    app.migrate()
    yield app
    app.close()


def started(app: App) -> Worker:
    worker = app._made_worker({}, None)
    worker.start()
    return worker


def test_what_several_threads_hear_of_runs_once(app: App) -> None:
    ran: list[int] = []

    @app.task
    def note(n: int) -> None:
        ran.append(n)

    worker = started(app)
    done = threading.Event()

    def listen() -> None:
        while not done.is_set():
            worker._claimer.look_here()

    listeners = [threading.Thread(target=listen) for _ in range(LISTENERS)]
    for listener in listeners:
        listener.start()
    executions = [note.enqueue(n) for n in range(TASKS)]
    for execution in executions:
        execution.result(timeout=30)
    done.set()
    for listener in listeners:
        listener.join()
    worker.stop()

    assert sorted(ran) == list(range(TASKS))
    for execution in executions:
        assert [event.type for event in execution.history()].count("task.claimed") == 1


def test_who_finds_the_claimer_at_work_does_not_wait_and_is_not_forgotten(app: App) -> None:
    worker = app._made_worker({}, None)
    claimer = worker._claimer
    with claimer._at_work:
        claimer.look_here()
    assert claimer._wake.is_set()
    worker._loop.close()  # it was never started


def test_nothing_is_claimed_for_a_worker_that_has_stopped(app: App) -> None:
    @app.task
    def wait() -> None: ...

    worker = started(app)
    worker.stop()
    execution = wait.enqueue()
    worker._claimer.look_here()
    assert execution.refresh().state == "ready"
