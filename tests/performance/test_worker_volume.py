"""Many tasks: the memory of one worker, and the work of two."""

import logging
import multiprocessing
import os
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from penstock import App

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

log = logging.getLogger(__name__)

AT_ONCE = 5_000
WARM_AFTER = 4  # drains: by then, each thread has had the largest batch in its hands
MEGABYTE = 1_000_000


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The URL and the schema of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'volume.db'}", "unused"
    url: str = request.getfixturevalue("postgres_url")
    return url, request.getfixturevalue("postgres_schema")


def app_at(where: tuple[str, str]) -> tuple[App, list[int]]:
    app, done = App(where[0], schema=where[1], migrate=True), []

    @app.task
    async def note(number: int) -> None:
        done.append(number)

    @app.task
    async def nothing() -> None:
        pass

    return app, done


def enqueue(app: App, count: int) -> None:
    nothing = app.tasks["nothing"]
    for _ in range(0, count, AT_ONCE):
        app.enqueue_many([nothing.request() for _ in range(AT_ONCE)])


def resident() -> int:
    """Bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_of_a_worker(where: tuple[str, str], turns: int, tasks: int) -> list[int]:
    """Drain so many tasks, some at a time; return the memory when warm and after each turn."""
    app, _ = app_at(where)
    sizes = []
    with app.worker() as worker:
        for _ in range(WARM_AFTER + turns):
            enqueue(app, tasks)
            worker.wait_until_idle()
            sizes.append(resident())
    assert app.counts()["completed"] == (WARM_AFTER + turns) * tasks
    app.close()
    return sizes[WARM_AFTER - 1 :]


def test_a_worker_keeps_its_size_over_a_hundred_thousand_tasks(where: tuple[str, str]) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        warm, *later = pool.submit(memory_of_a_worker, where, 5, 20_000).result(170)
    grown = (max(later) - warm) / MEGABYTE
    log.info("%.1f MB when warm, at most %.1f MB more later", warm / MEGABYTE, grown)
    assert grown < 20


def work_until_idle(where: tuple[str, str]) -> list[int]:
    """Be a worker until nothing is left; return what ran here."""
    app, done = app_at(where)
    app.run_worker(until_idle=True)
    app.close()
    return done


def enqueue_numbered(app: App, count: int) -> None:
    note = app.tasks["note"]
    for first in range(0, count, AT_ONCE):
        app.enqueue_many([note.request(number) for number in range(first, first + AT_ONCE)])


def test_two_workers_share_twenty_thousand_tasks_and_run_none_twice(
    where: tuple[str, str],
) -> None:
    tasks = 20_000
    app, _ = app_at(where)
    enqueue_numbered(app, tasks)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        shares = [pool.submit(work_until_idle, where) for _ in range(2)]
        ran = [future.result(120) for future in shares]
    counts = app.counts()
    app.close()
    log.info("%s of %d", [len(share) for share in ran], tasks)
    assert Counter(number for share in ran for number in share) == Counter(range(tasks))
    assert all(len(share) > tasks / 20 for share in ran), "one of them had nothing to do"
    assert counts == {**dict.fromkeys(counts, 0), "completed": tasks}
