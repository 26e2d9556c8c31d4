"""What is measured. Every row verifies that each task ran, once, and that nothing is left."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock import App

noted: list[float] = []  # when handlers began, for the row that measures latency


def app_on(url: str, schema: str) -> App:
    app = App(url, schema=schema, migrate=True)
    registered(app)
    return app


def registered(app: App) -> None:
    @app.task
    async def on_the_loop(n: int) -> int:
        return n

    @app.task
    def on_a_thread(n: int) -> int:
        return n

    @app.task
    async def note_start() -> None:
        noted.append(time.perf_counter())


@dataclass(frozen=True)
class Measured:
    row: str
    value: float
    unit: str


def enqueue_one(app: App) -> Measured:
    """Each in a transaction of its own."""
    count = 500
    begun = time.perf_counter()
    for n in range(count):
        app.enqueue("on_the_loop", {"n": n})
    rate = count / (time.perf_counter() - begun)
    _drain(app)
    return Measured("enqueue one", rate, "/s")


def enqueue_bulk(app: App) -> Measured:
    """Ten thousand in one transaction."""
    count = 10_000
    task = app.tasks["on_the_loop"]
    begun = time.perf_counter()
    app.enqueue_many(task.request(n) for n in range(count))
    rate = count / (time.perf_counter() - begun)
    _drain(app)
    return Measured("enqueue 10,000 at once", rate, "/s")


def drain_on_the_loop(app: App) -> Measured:
    return _drain_rate(app, "on_the_loop", "drain, async def, one process")


def drain_on_threads(app: App) -> Measured:
    return _drain_rate(app, "on_a_thread", "drain, def, one process")


def idle_latency(app: App) -> Measured:
    """From the commit to the handler's start, inside one process."""
    noted.clear()
    committed = []
    with app.worker():
        for _ in range(100):
            app.enqueue("note_start")
            committed.append(time.perf_counter())
            time.sleep(0.02)
    if len(noted) != len(committed):
        raise NotAllRan(len(noted), len(committed))
    delays = [start - commit for start, commit in zip(noted, committed, strict=True)]
    return Measured("latency when idle, median", statistics.median(delays) * 1000, " ms")


ROWS: tuple[Callable[[App], Measured], ...] = (
    enqueue_one,
    enqueue_bulk,
    drain_on_the_loop,
    drain_on_threads,
    idle_latency,
)


class NotAllRan(Exception):
    """A benchmark that lost or repeated work measures nothing."""

    def __init__(self, ran: int, wanted: int) -> None:
        super().__init__(f"{ran} tasks ran where {wanted} were enqueued")


def _drain_rate(app: App, name: str, row: str) -> Measured:
    count = 20_000
    before = app.counts()["completed"]
    app.enqueue_many(app.tasks[name].request(n) for n in range(count))
    seconds = _drain(app)
    if (ran := app.counts()["completed"] - before) != count:
        raise NotAllRan(ran, count)
    return Measured(row, count / seconds, "/s")


def _drain(app: App) -> float:
    begun = time.perf_counter()
    app.run_worker(until_idle=True)
    return time.perf_counter() - begun
