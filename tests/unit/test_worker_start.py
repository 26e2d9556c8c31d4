"""A worker that is stopped while it starts: nobody else knows that a part of it is at work."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import App
from penstock.engine.hooks import Hooks
from penstock.engine.worker import Worker

PARTS = ["loop", "settler", "heart", "claimer", "maintenance", "sweeper", "wakeups"]


class Heard(Hooks):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def worker_started(self, worker: object) -> None:
        del worker
        self.heard.append("started")

    def worker_stopped(self, worker: object) -> None:
        del worker
        self.heard.append("stopped")


def parts_at_work() -> set[str]:
    return {one.name for one in threading.enumerate() if one.name.startswith("penstock-")}


@pytest.mark.parametrize("last", PARTS)
def test_whoever_stops_a_worker_while_it_starts_finds_nothing_of_it_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    spawn = Worker._spawn

    def interrupted_after(worker: Worker, part: str, run: Callable[[], object]) -> None:
        spawn(worker, part, run)
        if part == last:
            raise KeyboardInterrupt

    hooks = Heard()
    app = App(f"sqlite:///{tmp_path / 'penstock.db'}")
    app.add_hooks(hooks)

    assert app.counts()["running"] == 0  # there are tables
    before = parts_at_work()
    monkeypatch.setattr(Worker, "_spawn", interrupted_after)
    with pytest.raises(KeyboardInterrupt):
        app.worker().__enter__()

    assert parts_at_work() == before
    assert app.store.workers() == []
    assert hooks.heard == []
    app.close()


class Impatient(Heard):
    def worker_started(self, worker: object) -> None:
        super().worker_started(worker)
        raise KeyboardInterrupt


def test_whoever_interrupts_the_last_of_a_start_is_told_of_the_end_too(tmp_path: Path) -> None:
    hooks = Impatient()
    app = App(f"sqlite:///{tmp_path / 'penstock.db'}")
    app.add_hooks(hooks)
    before = parts_at_work()
    with pytest.raises(KeyboardInterrupt):
        app.worker().__enter__()

    assert parts_at_work() == before
    assert app.store.workers() == []
    assert hooks.heard == ["started", "stopped"]
    app.close()


def test_whoever_interrupts_a_worker_that_registers_leaves_no_row_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(f"sqlite:///{tmp_path / 'penstock.db'}")
    register = Worker._register

    def interrupted(worker: Worker) -> None:
        register(worker)
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "_register", interrupted)
    with pytest.raises(KeyboardInterrupt):
        app.worker().__enter__()

    assert app.store.workers() == []
    app.close()


def test_whoever_is_cancelled_again_and_again_as_a_block_ends_leaves_nothing_at_work(
    tmp_path: Path,
) -> None:
    app = App(f"sqlite:///{tmp_path / 'penstock.db'}")
    before = parts_at_work()
    for turns in range(8):

        async def begin() -> None:
            async with app.worker():
                await asyncio.Event().wait()

        async def main(turns: int) -> None:
            task = asyncio.create_task(begin())
            await asyncio.sleep(0.1)
            task.cancel()
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main(turns))
        assert parts_at_work() == before
    assert app.store.workers() == []
    app.close()


@pytest.mark.parametrize("times", [1, 3])
def test_whoever_is_cancelled_while_a_worker_starts_leaves_nothing_of_it_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    app = App(f"sqlite:///{tmp_path / 'penstock.db'}")
    assert app.counts()["running"] == 0
    before = parts_at_work()
    register, has_begun, may_end = Worker._register, threading.Event(), threading.Event()

    def slowly(worker: Worker) -> None:
        has_begun.set()
        may_end.wait(10)
        register(worker)

    monkeypatch.setattr(Worker, "_register", slowly)

    async def begin() -> None:
        async with app.worker():
            raise AssertionError

    async def main() -> None:
        task = asyncio.create_task(begin())
        await asyncio.to_thread(has_begun.wait, 10)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert parts_at_work() == before
    assert app.store.workers() == []
    app.close()


def test_a_worker_that_could_start_is_announced_and_leaves(tmp_path: Path) -> None:
    hooks = Heard()
    app = App(f"sqlite:///{tmp_path / 'penstock.db'}")
    app.add_hooks(hooks)
    with app.worker():
        assert hooks.heard == ["started"]
    assert hooks.heard == ["started", "stopped"]
    app.close()
