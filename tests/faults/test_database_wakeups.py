"""Wake-ups are hints: whatever happens to them, work is found, and soon."""

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from statistics import median

import pytest

from penstock import App
from penstock.engine.worker import Worker, WorkerOptions, working
from penstock.store.postgres.store import PostgresStore
from penstock.testing.proxy import Proxy, proxy_to
from tests.support.servers import LISTENER, Server, private_server
from tests.support.workers import wait_until

log = logging.getLogger(__name__)

pytestmark = pytest.mark.postgres

POLL = 1.0
WITHOUT_LISTEN = 0.5


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with private_server() as server:
        yield server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with proxy_to(server.url) as proxy:
        yield proxy


@pytest.fixture
def app(server: Server) -> Iterator[App]:
    app = App(server.url)
    app.migrate()

    @app.task
    def tick() -> float:
        return time.monotonic()

    yield app
    app.close()


def worker_of(app: App, store: PostgresStore, *, poll: float) -> Worker:
    options = WorkerOptions(poll=timedelta(seconds=poll))
    return Worker(store, lambda: app.tasks, options)


def latency(app: App) -> float:
    """Enqueue a task, and return how long it took to begin."""
    execution = app.enqueue("tick")
    committed = time.monotonic()
    began: float = execution.result(timeout=20)
    return began - committed


def said(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


def test_work_is_found_by_the_poll_when_the_listening_connection_is_half_open(
    server: Server, proxy: Proxy, app: App
) -> None:
    with (
        closing(PostgresStore(server.url, listen_url=proxy.url(server.url))) as store,
        working(worker_of(app, store, poll=POLL)),
    ):
        wait_until(lambda: server.listeners() == 1)
        assert min(latency(app) for _ in range(5)) < POLL / 10
        assert proxy.leave_half_open() == 1
        assert latency(app) < POLL + 1


def test_work_whose_notification_never_came_is_found_by_the_poll(server: Server, app: App) -> None:
    with app.worker(poll=POLL):
        wait_until(lambda: server.listeners() == 1)
        execution = app.enqueue("tick", notify=False)
        execution.result(timeout=POLL + 2)


def test_a_worker_whose_listener_was_ended_is_soon_woken_within_milliseconds_again(
    server: Server, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    with app.worker():  # whose poll would take 30 s
        wait_until(lambda: server.listeners() == 1)
        latency(app)
        assert server.terminate(LISTENER) == 1
        assert latency(app) < 5
        wait_until(lambda: server.listeners() == 1)
        again = median(latency(app) for _ in range(20))
    log.info("%.1f ms", 1000 * again)
    assert again < 0.05
    assert said(caplog, "not listening for new work") == 1
    assert said(caplog, "listening for new work again") == 1


def test_a_worker_that_cannot_listen_polls_and_says_so_once(
    server: Server, proxy: Proxy, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.refuse()
    with (
        closing(PostgresStore(server.url, listen_url=proxy.url(server.url))) as store,
        working(worker_of(app, store, poll=30)),
    ):
        found_after = [latency(app) for _ in range(4)]
        assert max(found_after) < WITHOUT_LISTEN + 1
        assert said(caplog, "not listening for new work") == 1
        proxy.accept()
        wait_until(lambda: server.listeners() == 1)
        assert min(latency(app) for _ in range(5)) < WITHOUT_LISTEN / 10
    assert said(caplog, "not listening for new work") == 1
    assert said(caplog, "listening for new work again") == 1


def test_without_notifications_a_worker_looks_twice_a_second_and_says_so_once(
    server: Server, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.worker")
    server.log_statements()
    seconds = 5
    with (
        closing(PostgresStore(server.url, notify=False)) as store,
        working(worker_of(app, store, poll=30)),
    ):
        latency(app)
        place = server.end_of_log()
        time.sleep(seconds)
        seen = server.statements_since(place)
        assert latency(app) < WITHOUT_LISTEN + 1
        assert server.listeners() == 0
    looks = sum("RECURSIVE lane" in statement for statement in seen)
    assert seconds / WITHOUT_LISTEN - 2 <= looks <= seconds / WITHOUT_LISTEN + 1
    assert said(caplog, "looked for every 0.5 s") == 1
