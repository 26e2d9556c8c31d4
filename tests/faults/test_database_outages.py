"""The database is out of reach, and everybody lives: work waits, nothing is taken away."""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any, NoReturn

import psycopg
import pytest

from penstock import App
from penstock.errors import StoreOutOfReach, StoreTakesNoWrites, StoreUnavailable
from penstock.model.events import EventType
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.store.opening import open_store
from penstock.store.postgres.connecting import Connections
from penstock.store.postgres.deadlines import WatchedConnection
from penstock.testing.proxy import Proxy, proxy_to
from tests.support.servers import Server, private_server
from tests.support.workers import counted, types, wait_until

HEARTBEAT = 0.3
LEASE = 1.5
WORKERS = 4
SLOTS = 3

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with private_server() as server:
        yield server


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    with proxy_to(postgres_url) as proxy:
        yield proxy


class Site:
    """Workers that reach the database through a proxy, and gates that hold their tasks."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema
        self.first, self.second = threading.Event(), threading.Event()
        self.began: Counter[int] = Counter()

    def has_begun(self, number: int) -> bool:
        return self.began[number] == 1

    def app(self) -> App:
        app = App(self.url, schema=self.schema)

        @app.task
        def hold(number: int) -> int:
            self.began[number] += 1
            gate = self.first if number % 2 else self.second
            gate.wait(60)
            return number

        return app


@pytest.fixture
def site(proxy: Proxy, postgres_url: str, postgres_schema: str) -> Iterator[Site]:
    site = Site(proxy.url(postgres_url), postgres_schema)
    yield site
    site.first.set()
    site.second.set()


@pytest.fixture
def store(postgres_url: str, postgres_schema: str) -> Iterator[Store]:
    """The same database, without the proxy."""
    store = open_store(postgres_url, schema=postgres_schema)
    store.migrate()
    yield store
    store.close()


def completed(store: Store) -> int:
    return store.counts()[State.COMPLETED]


def changes_told(caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    for record in caplog.records:
        message = record.getMessage()
        if message.startswith("cannot "):
            yield message.partition(",")[0]
        elif message.startswith("the database is back"):
            yield message.partition(": we ")[2]
        else:
            yield message.partition(":")[0]


def _refuse(proxy: Proxy) -> Callable[[], None]:
    proxy.refuse()
    return proxy.accept


def _stall(proxy: Proxy) -> Callable[[], None]:
    proxy.stall()
    return proxy.resume


def _stall_and_cut(proxy: Proxy) -> Callable[[], None]:
    proxy.stall()

    def back() -> None:
        proxy.cut()
        proxy.resume()

    return back


@pytest.mark.slow
@pytest.mark.parametrize("fault", [_refuse, _stall, _stall_and_cut])
def test_an_outage_of_three_leases_takes_no_task_from_a_living_worker(
    site: Site,
    store: Store,
    proxy: Proxy,
    caplog: pytest.LogCaptureFixture,
    fault: Callable[[Proxy], Callable[[], None]],
) -> None:
    caplog.set_level(logging.INFO, "penstock.worker")
    tasks = WORKERS * SLOTS
    with ExitStack() as stack:
        apps = [site.app() for _ in range(WORKERS)]
        for app in apps:
            stack.callback(app.close)
        ids = [apps[0].enqueue("hold", {"number": n}).id for n in range(tasks)]
        workers = [
            stack.enter_context(app.worker(slots=SLOTS, heartbeat=HEARTBEAT, lease=LEASE))
            for app in apps
        ]
        wait_until(lambda: len(site.began) == tasks)
        wait_until(lambda: counted(store, ids, EventType.STARTED).total() == tasks)
        names = [worker.id for worker in workers]

        back = fault(proxy)
        site.first.set()  # half of the tasks end while nobody can be told
        time.sleep(3 * LEASE)
        assert completed(store) == 0
        back()

        wait_until(lambda: completed(store) == tasks // 2)
        time.sleep(2 * LEASE)  # whoever is to be declared dead is so by now
        site.second.set()
        wait_until(lambda: completed(store) == tasks)
        assert [worker.id for worker in workers] == names

    assert set(site.began.values()) == {1}
    assert counted(store, ids, EventType.RECOVERED).total() == 0
    said = Counter(changes_told(caplog))
    # One line for each part of each worker when it begins, one when it ends.
    assert all(times <= WORKERS for times in said.values()), said
    if fault is _refuse:
        assert said["cannot send heartbeats"] == said["send heartbeats again"] == WORKERS


def test_an_observer_that_was_held_up_itself_begins_to_watch_anew(
    store: Store, postgres_url: str, postgres_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The network stands still for everybody, and comes back for one worker before the other."""
    with ExitStack() as stack:
        sites = []
        for _ in range(2):
            proxy = stack.enter_context(proxy_to(postgres_url))
            site = Site(proxy.url(postgres_url), postgres_schema)
            app = site.app()
            stack.callback(app.close)
            app.enqueue("hold", {"number": 1})
            worker = app.worker(slots=1, heartbeat=HEARTBEAT, lease=LEASE)
            stack.enter_context(worker)
            stack.callback(site.first.set)
            wait_until(partial(site.has_begun, 1))
            sites.append((proxy, worker, worker.id))
        time.sleep(2 * HEARTBEAT)  # by now each has seen the other

        for proxy, _, _ in reversed(sites):
            proxy.stall()
            time.sleep(1.5 * HEARTBEAT)  # so that the first has seen the last beat of the other
        time.sleep(0.8 * LEASE)
        for proxy, _, _ in sites:
            proxy.resume()
            time.sleep(LEASE / 2)
        time.sleep(LEASE)
        assert [worker.id for _, worker, _ in sites] == [name for _, _, name in sites]
    assert "recovered" not in caplog.text


def test_a_worker_that_is_stopped_during_an_outage_neither_hangs_nor_spins(
    site: Site, store: Store, proxy: Proxy
) -> None:
    app = site.app()
    execution = app.enqueue("hold", {"number": 1})
    with app.worker(heartbeat=HEARTBEAT, lease=LEASE, grace=0):
        wait_until(lambda: site.began[1] == 1)
        proxy.refuse()
        site.first.set()
        begun, used = time.monotonic(), time.process_time()
    took, used = time.monotonic() - begun, time.process_time() - used
    assert took < LEASE + 5
    assert used < took / 3

    proxy.accept()
    wait_until(lambda: types(store, execution.id)[-1] == EventType.COMPLETED)
    app.close()


def test_a_start_that_cannot_be_told_does_not_keep_everybody_busy(
    proxy: Proxy, store: Store, postgres_url: str, postgres_schema: str
) -> None:
    gate = threading.Event()
    app = App(proxy.url(postgres_url), schema=postgres_schema)

    @app.task
    def hold() -> None:
        proxy.hang_up()  # before anybody can be told that it has begun
        gate.wait(60)

    execution = hold.enqueue()
    with app.worker():
        wait_until(lambda: proxy.tries > 0 and proxy.hangs_up)
        tries, used = proxy.tries, time.process_time()
        time.sleep(3.0)
        tries, used = proxy.tries - tries, time.process_time() - used
        proxy.pick_up()
        wait_until(lambda: EventType.STARTED in types(store, execution.id))
        gate.set()
        wait_until(lambda: types(store, execution.id)[-1] == EventType.COMPLETED)
    app.close()
    assert tries < 40, f"{tries} connections in 3 s"
    assert types(store, execution.id).count(EventType.STARTED) == 1


def test_a_cancel_request_of_an_outage_is_heard_when_it_is_over(
    proxy: Proxy, store: Store, postgres_url: str, postgres_schema: str
) -> None:
    app = App(proxy.url(postgres_url), schema=postgres_schema)
    begun = threading.Event()

    @app.task
    async def endless() -> None:
        begun.set()
        await asyncio.sleep(3600)

    execution = endless.enqueue()
    with app.worker(heartbeat=30, lease=90):  # so that no heartbeat brings it
        wait_until(begun.is_set)
        proxy.refuse()
        time.sleep(4)  # until the pauses between two questions are long
        store.cancel([execution.id])
        proxy.accept()
        wait_until(lambda: types(store, execution.id)[-1] == EventType.CANCELLED, timeout=10)
    app.close()


def test_a_single_connection_that_fails_is_made_again(
    postgres_url: str, postgres_schema: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(postgres_url, schema=postgres_schema)
    connect, failures = WatchedConnection.connect, iter([True])

    def reset_once(conninfo: str, **options: Any) -> WatchedConnection:  # noqa: ANN401
        if next(failures, False):
            raise psycopg.OperationalError
        return connect(conninfo, **options)

    monkeypatch.setattr(WatchedConnection, "connect", reset_once)
    assert store.counts() == app.counts()
    assert next(failures, None) is None
    app.close()


def test_a_write_whose_answer_was_lost_is_not_called_refused_by_the_replica_that_answers_next(
    postgres_url: str,
) -> None:
    """The primary may have committed before it died."""
    connections = Connections(postgres_url)
    statements = iter(["SELECT pg_terminate_backend(pg_backend_pid())", "CREATE TABLE never ()"])

    def write(connection: WatchedConnection) -> None:
        connection.execute("SET default_transaction_read_only = on")
        connection.execute(next(statements))

    with pytest.raises(StoreUnavailable, match="unknown whether it was done") as caught:
        connections.run("write", write)
    assert isinstance(caught.value.__cause__, psycopg.errors.ReadOnlySqlTransaction)
    assert not isinstance(caught.value, StoreTakesNoWrites)
    connections.close()


NO_ROOM = (
    "CREATE FUNCTION {0}.no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
    "'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$"
)


def test_a_database_that_was_never_reached_is_told_to_have_written_nothing() -> None:
    app = App("postgresql://127.0.0.1:1/nowhere")

    @app.task
    def work() -> None: ...

    for _ in range(2):
        with pytest.raises(StoreOutOfReach, match=r"Nothing of that was written\. Check the URL"):
            work.enqueue()
    app.close()


def test_a_write_whose_answer_was_lost_is_unknown_although_there_is_no_connection_after_it(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = Connections(postgres_url)

    def refuse(*_: object, **__: object) -> NoReturn:
        message = "connection refused"
        raise psycopg.OperationalError(message)

    def write(connection: WatchedConnection) -> None:
        monkeypatch.setattr(WatchedConnection, "connect", refuse)
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(StoreUnavailable, match="unknown whether it was done") as caught:
        connections.run("write", write)
    assert not isinstance(caught.value, StoreOutOfReach)
    connections.close()


def test_a_question_before_a_write_that_a_replica_refuses_makes_nothing_unknown(
    postgres_url: str,
) -> None:
    connections = Connections(postgres_url)

    def write(connection: WatchedConnection) -> None:
        connection.execute("SET default_transaction_read_only = on")
        connection.answer("SELECT 1", {})
        connection.answer("CREATE TABLE never ()", {})

    with pytest.raises(StoreTakesNoWrites, match="name the primary server"):
        connections.run("write", write)
    connections.close()


@pytest.mark.parametrize("transaction", [True, False])
def test_a_full_disk_is_not_told_to_have_kept_out_what_was_done_before(
    postgres_url: str, *, transaction: bool
) -> None:
    connections = Connections(postgres_url)
    full = "DO $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$"

    def write(connection: WatchedConnection) -> None:
        with connection.transaction() if transaction else nullcontext():
            connection.answer("SELECT 1", {})
            connection.answer(full, {})

    with pytest.raises(StoreUnavailable) as caught:
        connections.run("write", write)
    assert isinstance(caught.value, StoreTakesNoWrites) == transaction
    assert isinstance(caught.value.__cause__, psycopg.errors.DiskFull)
    connections.close()


def test_what_was_done_is_told_although_nothing_more_can_be_written(
    store: Store, postgres_url: str, postgres_schema: str
) -> None:
    """Whoever cancels also releases what waits elsewhere, for which there may be no room."""
    app = App(postgres_url, schema=postgres_schema)

    @app.task
    def work() -> None: ...

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(NO_ROOM.format(postgres_schema).encode())
        connection.execute(
            f"CREATE TRIGGER no_room BEFORE DELETE ON {postgres_schema}.run_propagations "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {postgres_schema}.no_room()".encode()
        )
    execution, other = work.enqueue(), work.enqueue()

    assert execution.cancel() == "cancelled"
    assert store.signal(other.id, "approved", "null") == "told"
    with pytest.raises(StoreUnavailable):
        store.propagate()
    app.close()


def test_a_server_that_takes_no_writes_is_waited_for(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a fail-over, before the replica is promoted: it answers, but only reads."""
    gate = threading.Event()
    app = App(server.url, migrate=True)

    @app.task
    def hold() -> None:
        gate.wait(60)

    with app.worker(heartbeat=HEARTBEAT, lease=LEASE) as worker:
        execution, name = hold.enqueue(), worker.id
        wait_until(lambda: execution.refresh().state == "running")
        server.configure({"default_transaction_read_only": "on"})
        # Each process of the server learns of it when it is next asked for something.
        wait_until(lambda: "cannot send heartbeats" in caplog.text)
        gate.set()
        time.sleep(2 * LEASE)
        assert execution.refresh().state == "running"
        with pytest.raises(StoreTakesNoWrites, match="name the primary server"):
            hold.enqueue()
        server.configure({"default_transaction_read_only": "off"})
        assert execution.result(timeout=10) is None
        assert hold.enqueue().result(timeout=10) is None
        assert worker.id == name
    app.close()
