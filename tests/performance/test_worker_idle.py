"""What a worker costs that has nothing to do."""

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from penstock import App
from tests.support.servers import Server, private_server
from tests.support.workers import wait_until

log = logging.getLogger(__name__)

WATCHED_FOR = 30.0
MOST_STATEMENTS_PER_SECOND = 0.7
MOST_OF_A_CORE = 0.01


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with private_server() as server:
        yield server


def app_at(url: str) -> App:
    app = App(url, migrate=True)

    @app.task
    def nothing() -> None:
        pass

    return app


@pytest.mark.slow
@pytest.mark.postgres
def test_an_idle_worker_sends_less_than_two_statements_in_three_seconds(server: Server) -> None:
    app = app_at(server.url)
    server.log_statements()
    with app.worker():
        wait_until(lambda: server.listeners() == 1)  # the last thing that it does at its start
        place = server.end_of_log()
        time.sleep(WATCHED_FOR)
        seen = server.statements_since(place)
    app.close()

    kinds = Counter(" ".join(text.split()[:3]) for text in seen)
    log.info("%.2f statements a second: %s", len(seen) / WATCHED_FOR, kinds)
    assert len(seen) > WATCHED_FOR / 4, "the log does not show even the heartbeats"
    assert len(seen) / WATCHED_FOR < MOST_STATEMENTS_PER_SECOND, seen


def share_of_a_core(url: str, seconds: float) -> float:
    """Idle in this process for so long; return how much of a core it took meanwhile."""
    app = app_at(url)
    with app.worker():
        time.sleep(3.0)  # what happens at the start is over
        used, begun = time.process_time(), time.monotonic()
        time.sleep(seconds)
        share = (time.process_time() - used) / (time.monotonic() - begun)
    app.close()
    return share


@pytest.mark.slow
def test_an_idle_worker_on_sqlite_takes_less_than_a_hundredth_of_a_core(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'idle.db'}"
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        share = pool.submit(share_of_a_core, url, 20.0).result(60)
    log.info("%.2f %% of a core", 100 * share)
    assert share < MOST_OF_A_CORE
