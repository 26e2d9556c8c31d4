"""What an operation takes at most: tasks, statements, commits. Counts, not seconds."""

import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo
from psycopg.pq import Trace

from penstock.model.states import State
from penstock.store.postgres import connecting
from penstock.store.postgres.store import PostgresStore
from penstock.store.sqlite.store import SqliteStore
from tests.contract.databases import PostgresDatabase, SqliteDatabase, count
from tests.contract.support import WORKER, claim, enqueue_many, finish, ids, new, worker
from tests.contract.threads import in_threads
from tests.performance.counting import Counter
from tests.performance.explaining import ExplainingStore
from tests.performance.filling import fill_ready
from tests.support.workers import wait_until

# Without these, what is left is the plan that runs a subquery once per row of another table.
OTHER_PLANS = (
    "enable_hashjoin",
    "enable_mergejoin",
    "enable_material",
    "enable_memoize",
    "enable_hashagg",
    "enable_sort",
)

MakePostgres = Callable[[], PostgresDatabase]


@pytest.fixture(params=["force_custom_plan", "force_generic_plan"])
def plan_cache_mode(request: pytest.FixtureRequest) -> str:
    mode: str = request.param
    return mode


def in_nested_loops(database: PostgresDatabase, plan_cache_mode: str) -> str:
    """Return a URL of the database with which every connection plans nested loops."""
    settings = [f"-c {setting}=off" for setting in OTHER_PLANS]
    options = " ".join([*settings, f"-c plan_cache_mode={plan_cache_mode}"])
    return make_conninfo(database.url, options=options)


def test_a_claim_takes_no_more_than_its_limit_in_nested_loops(
    make_postgres: MakePostgres, plan_cache_mode: str
) -> None:
    database = make_postgres()
    fill_ready(database, 200)
    url = in_nested_loops(database, plan_cache_mode)
    with closing(ExplainingStore(database, plan_cache_mode=plan_cache_mode, url=url)) as store:
        worker(store)
        sizes = [len(claim(store, limit=7)) for _ in range(28)]

    assert sizes == [7] * 28
    assert count(database, "task_outbox") == 200 - 7 * 28
    kinds = {step.kind for step in store.steps if step.statement == "claim_ready"}
    assert "Nested Loop" in kinds
    assert not kinds & {"Hash Join", "Merge Join", "Materialize"}


def test_concurrent_claims_take_no_more_than_their_limits_in_nested_loops(
    make_postgres: MakePostgres, plan_cache_mode: str
) -> None:
    database = make_postgres()
    fill_ready(database, 600)
    store = PostgresStore(in_nested_loops(database, plan_cache_mode), schema=database.schema)
    workers = [worker(store, f"thread-{n}") for n in range(6)]

    def run(worker_id: str) -> list[list[str]]:
        batches: list[list[str]] = []
        while batch := claim(store, worker_id, limit=5):
            batches.append(ids(batch))
        return batches

    shares = in_threads([lambda who=who: run(who) for who in workers])  # type: ignore[misc]
    store.close()

    assert max(len(batch) for share in shares for batch in share) <= 5
    claimed = [id_ for share in shares for batch in share for id_ in batch]
    assert len(claimed) == len(set(claimed)) == 600


def test_a_limited_subquery_claims_past_its_limit_in_nested_loops(
    make_postgres: MakePostgres,
) -> None:
    """The plan that the tests above are about: without it they would show nothing."""
    database = make_postgres()
    fill_ready(database, 200)

    with database.connect() as connection:
        for setting in (*OTHER_PLANS, "enable_indexscan", "enable_bitmapscan"):
            connection.execute(f"SET LOCAL {setting} = off".encode())
        taken = connection.execute(
            "DELETE FROM task_outbox WHERE seq IN ("
            "SELECT seq FROM task_outbox LIMIT 7 FOR UPDATE SKIP LOCKED) RETURNING seq"
        ).fetchall()
        connection.rollback()

    assert len(taken) > 7


# --- PostgreSQL: statements sent ------------------------------------------------------


class Sent:
    """What a store sends to PostgreSQL, as libpq itself writes it down."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def statements(self) -> int:
        """Return how many were sent since the last call, BEGIN and COMMIT among them."""
        lines = self._path.read_text().splitlines()
        self._path.write_text("")
        fields = [line.split("\t") for line in lines]
        return sum(line[0] == "F" and line[2] in {"Execute", "Query"} for line in fields)


@pytest.fixture
def postgres_store(make_postgres: MakePostgres) -> Iterator[PostgresStore]:
    database = make_postgres()
    store = PostgresStore(database.url, schema=database.schema)
    worker(store)
    yield store
    store.close()


@pytest.fixture
def sent(
    postgres_store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sent]:
    if sys.platform != "linux":
        pytest.skip("psycopg traces connections on Linux only")
    path = tmp_path / "sent"
    connect = connecting.Connections._connect
    with path.open("ab") as file:

        def traced(self: connecting.Connections) -> connecting.Connection:
            connection = connect(self)
            connection.pgconn.trace(file.fileno())
            connection.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)
            return connection

        monkeypatch.setattr(connecting.Connections, "_connect", traced)
        postgres_store.close()
        yield Sent(path)
        postgres_store.close()


@pytest.mark.parametrize(("tasks", "statements"), [(1, 1), (1_000, 1), (10_000, 10 + 2)])
def test_a_plain_create_is_one_statement_for_a_thousand_on_postgres(
    postgres_store: PostgresStore, sent: Sent, tasks: int, statements: int
) -> None:
    """And two for the transaction around several, all of them sent in one go."""
    postgres_store.create([new() for _ in range(tasks)])

    assert sent.statements() == statements


def test_a_claim_and_a_settlement_are_one_statement_each_on_postgres(
    postgres_store: PostgresStore, sent: Sent
) -> None:
    enqueue_many(postgres_store, 300)
    assert len(claim(postgres_store, limit=100)) == 100  # looks for the lanes as well
    sent.statements()

    claimed = claim(postgres_store, limit=100)
    assert (len(claimed), sent.statements()) == (100, 1)
    assert postgres_store.settle([finish(one) for one in claimed]) == []
    assert sent.statements() == 1


def test_what_an_idle_worker_does_is_a_statement_each_on_postgres(
    postgres_store: PostgresStore, sent: Sent
) -> None:
    postgres_store.heartbeat(WORKER)
    assert sent.statements() == 1
    postgres_store.chores()
    assert sent.statements() == 1
    assert claim(postgres_store) == []
    assert sent.statements() == 1


# --- SQLite: transactions, and the waits for the disk that they cost ------------------


@pytest.fixture
def sqlite_store(make_sqlite: Callable[[], SqliteDatabase]) -> Iterator[SqliteStore]:
    store = SqliteStore(make_sqlite().path)
    yield store
    store.close()


@pytest.fixture
def counter(sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> Counter:
    counter = Counter()
    counter.watch(monkeypatch)
    worker(sqlite_store)
    counter.forget()
    return counter


def test_a_batch_is_one_commit_on_sqlite(sqlite_store: SqliteStore, counter: Counter) -> None:
    enqueue_many(sqlite_store, 1000)
    assert counter.count("BEGIN IMMEDIATE") == 1
    counter.forget()

    claimed = claim(sqlite_store, limit=100)
    assert (len(claimed), counter.count("BEGIN IMMEDIATE")) == (100, 1)
    counter.forget()

    assert sqlite_store.settle([finish(one) for one in claimed]) == []
    assert counter.count("BEGIN IMMEDIATE") == counter.count("COMMIT") == 1


def test_a_thousand_tasks_take_as_many_statements_as_two_on_sqlite_and_one_takes_no_more(
    sqlite_store: SqliteStore, counter: Counter
) -> None:
    statements: dict[int, list[int]] = {}
    for tasks in (1, 2, 1000):
        statements[tasks] = []
        counter.forget()
        enqueue_many(sqlite_store, tasks)
        statements[tasks].append(len(counter.statements))
        counter.forget()
        claimed = claim(sqlite_store, limit=tasks)
        statements[tasks].append(len(counter.statements))
        counter.forget()
        assert sqlite_store.settle([finish(one) for one in claimed]) == []
        statements[tasks].append(len(counter.statements))

    assert statements[1] == [1, *statements[1000][1:]]
    assert statements[2] == statements[1000]
    assert max(statements[1000]) <= 7


def test_an_idle_worker_takes_no_lock_on_sqlite(
    sqlite_store: SqliteStore, counter: Counter
) -> None:
    assert claim(sqlite_store) == []
    assert len(counter.statements) == 1
    assert sqlite_store.promote().promoted == 0
    assert sqlite_store.recover(WORKER) == []
    assert sqlite_store.chores().next_due is None

    assert counter.statements
    assert counter.count("BEGIN IMMEDIATE") == 0


def test_a_look_behind_many_unknown_tasks_does_not_begin_with_one_in_vain(
    sqlite_store: SqliteStore, counter: Counter
) -> None:
    enqueue_many(sqlite_store, 300, "unknown")
    assert claim(sqlite_store) == []
    counter.forget()

    assert claim(sqlite_store) == []

    assert counter.count("BEGIN") == 1
    assert sum("RECURSIVE step" in statement for statement in counter.statements) == 1


class _Queue(deque[Any]):
    """Says how many have come to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals = threading.Semaphore(0)

    def append(self, job: object) -> None:
        super().append(job)
        self.arrivals.release()


def test_threads_that_wait_for_the_writer_share_a_commit_on_sqlite(
    sqlite_store: SqliteStore, counter: Counter
) -> None:
    shared = sqlite_store._file
    shared._waiting = queue = _Queue()
    with (
        closing(sqlite3.connect(shared.path, isolation_level=None)) as other,
        ThreadPoolExecutor(8) as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        first = pool.submit(sqlite_store.create, [new()])
        wait_until(shared._lock.locked)
        others = [pool.submit(sqlite_store.create, [new()]) for _ in range(7)]
        assert all(queue.arrivals.acquire(timeout=30) for _ in others)
        other.execute("COMMIT")
        assert all(future.result(30) for future in (first, *others))

    # Whoever came first waits for the file, with a statement that commits by itself; all the
    # others wait for that one.
    assert counter.count("COMMIT") == 1
    assert sqlite_store.counts()[State.READY] == 8
