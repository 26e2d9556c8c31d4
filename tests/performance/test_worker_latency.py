"""How long a task waits between the commit that made it and the start of its handler.

Limits hold for the best of three rounds: a machine that does other things as well can only
make it worse.
"""

import itertools
import logging
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import pytest

from penstock import App
from tests.performance.measuring import least
from tests.support.workers import wait_until

log = logging.getLogger(__name__)

ROUNDS = 3
TASKS = 200
APART = 0.02
MILLISECOND = 0.001


@dataclass
class Shop:
    """An App whose tasks write down when they began."""

    app: App
    began: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        @self.app.task
        def tick(number: int) -> None:
            self.began[number] = time.monotonic()

        @self.app.task
        async def tick_on_loop(number: int) -> None:
            self.began[number] = time.monotonic()

        @self.app.task(queue="neighbours", retry=None)
        def neighbour() -> None:
            raise RuntimeError("again")

    def latencies(self, committed: Mapping[int, float]) -> list[float]:
        """Wait until all of these have begun; return how long each waited, in seconds."""
        wait_until(lambda: committed.keys() <= self.began.keys())
        # The reply to a commit may be read after the task has begun.
        return [max(0.0, self.began.pop(n) - at) for n, at in committed.items()]


def enqueue_apart(
    where: tuple[str, str], task: str, numbers: Sequence[int], apart: float
) -> dict[int, float]:
    """Enqueue from the process that this runs in; return when each commit was answered."""
    app = App(where[0], schema=where[1])
    committed = _enqueue_apart(app, task, numbers, apart)
    app.close()
    return committed


def _enqueue_apart(app: App, task: str, numbers: Sequence[int], apart: float) -> dict[int, float]:
    committed = {}
    next_at = time.monotonic()
    for number in numbers:
        app.enqueue(task, {"number": number})
        committed[number] = time.monotonic()
        next_at += apart
        time.sleep(max(0.0, next_at - time.monotonic()))
    return committed


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Executor]:
    """Two other processes."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        pool.submit(time.monotonic).result(30)
        yield pool


def best(
    measure: Callable[[int], list[float]], *, half: float, nearly_all: float = math.inf
) -> tuple[float, float]:
    """The lowest median and the lowest 99th percentile of up to three rounds, in milliseconds.

    Fewer do once both are low enough: another round could not make them higher.
    """
    lowest, lowest_of_most = math.inf, math.inf
    for n in range(ROUNDS):
        measured = measure(n)
        lowest = min(lowest, median(measured) / MILLISECOND)
        lowest_of_most = min(lowest_of_most, percentile(measured, 99) / MILLISECOND)
        if lowest < half and lowest_of_most < nearly_all:
            break
    return lowest, lowest_of_most


def percentile(values: Sequence[float], which: int) -> float:
    return quantiles(values, n=100, method="inclusive")[which - 1]


def numbers_of(number: int) -> range:
    return range(number * TASKS, (number + 1) * TASKS)


@pytest.mark.performance
@pytest.mark.slow
@pytest.mark.parametrize("task", ["tick", "tick_on_loop"])
def test_postgres_wakes_a_worker_within_milliseconds(
    postgres_url: str, postgres_schema: str, elsewhere: Executor, task: str
) -> None:
    where = (postgres_url, postgres_schema)
    shop = Shop(App(postgres_url, schema=postgres_schema, migrate=True))

    def measure(number: int) -> list[float]:
        sent = elsewhere.submit(enqueue_apart, where, task, numbers_of(number), APART)
        return shop.latencies(sent.result(30))

    with shop.app.worker():
        half, nearly_all = best(measure, half=3, nearly_all=15)
    shop.app.close()
    log.info("%s: p50 %.2f ms, p99 %.2f ms", task, half, nearly_all)
    assert half < 3
    assert nearly_all < 15


@pytest.mark.performance
@pytest.mark.slow
def test_sqlite_wakes_a_worker_of_another_process_within_milliseconds(
    tmp_path: Path, elsewhere: Executor
) -> None:
    where = (f"sqlite:///{tmp_path / 'latency.db'}", "unused")
    shop = Shop(App(where[0], migrate=True))

    def measure(number: int) -> list[float]:
        sent = elsewhere.submit(enqueue_apart, where, "tick", numbers_of(number), APART)
        return shop.latencies(sent.result(30))

    with shop.app.worker():
        half, nearly_all = best(measure, half=8)
    shop.app.close()
    log.info("across processes: p50 %.2f ms, p99 %.2f ms", half, nearly_all)
    assert half < 8


@pytest.mark.performance
@pytest.mark.slow
def test_sqlite_wakes_a_worker_of_the_same_process_at_once(tmp_path: Path) -> None:
    shop = Shop(App(f"sqlite:///{tmp_path / 'latency.db'}", migrate=True))

    def measure(number: int) -> list[float]:
        return shop.latencies(_enqueue_apart(shop.app, "tick", numbers_of(number), APART))

    with shop.app.worker():
        half, nearly_all = best(measure, half=2)
    shop.app.close()
    log.info("inside one process: p50 %.2f ms, p99 %.2f ms", half, nearly_all)
    assert half < 2


def keep_failing(where: tuple[str, str], count: int, apart: float) -> None:
    """Keep another queue busy with failures, from the process that this runs in."""
    app = App(where[0], schema=where[1])
    next_at = time.monotonic()
    for _ in range(count):
        app.enqueue("neighbour", queue="neighbours")
        next_at += apart
        time.sleep(max(0.0, next_at - time.monotonic()))
    app.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The URL and the schema of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'neighbours.db'}", "unused"
    url: str = request.getfixturevalue("postgres_url")
    return url, request.getfixturevalue("postgres_schema")


@pytest.mark.performance
@pytest.mark.slow
def test_a_task_that_keeps_failing_leaves_the_other_queues_as_quick_as_they_were(
    where: tuple[str, str], elsewhere: Executor
) -> None:
    """1,000 failures in one queue; the other one is measured alone and beside them, by turns.

    By the medians of the rounds, not by the best ones: how the two queues fall together differs
    from round to round, and the best round is one in which they hardly meet.
    """
    shop = Shop(App(where[0], schema=where[1], migrate=True))
    rounds, failures, count = 4, 250, 125
    numbers = itertools.count()

    def measure() -> float:
        mine = [next(numbers) for _ in range(count)]
        sent = elsewhere.submit(enqueue_apart, where, "tick", mine, APART)
        return percentile(shop.latencies(sent.result(30)), 95) / MILLISECOND

    def measure_beside_failures() -> float:
        before = shop.app.counts()["failed"]
        busy = elsewhere.submit(keep_failing, where, failures, APART / 2)
        wait_until(lambda: shop.app.counts()["failed"] > before)
        measured = measure()
        busy.result(30)
        wait_until(lambda: shop.app.counts()["failed"] == before + failures)
        return measured

    def compare() -> float:
        by_turns = [(measure(), measure_beside_failures()) for _ in range(rounds)]
        alone = median(first for first, _ in by_turns)
        beside = median(second for _, second in by_turns)
        log.info("p95 alone %.2f ms, beside failures %.2f ms: %s", alone, beside, by_turns)
        return beside / alone

    with shop.app.worker():
        measure()
        slower = least(compare, enough=2)
    shop.app.close()
    assert slower < 2
