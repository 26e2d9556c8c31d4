"""What ANALYZE has seen of almost empty tables must not decide how full ones are read."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.store.contract import Store
from penstock.store.sqlite.store import SqliteStore
from tests.contract.support import WORKER, enqueue, get, worker

OURS = {"task_executions", "task_outbox", "execution_events"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(SqliteStore(path)) as store:
        enqueue(store)
        yield store


@pytest.fixture
def outside(path: Path, store: Store) -> Iterator[sqlite3.Connection]:
    del store  # has made the tables
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO orders VALUES (1)")
        yield connection


def analysed(connection: sqlite3.Connection) -> set[str]:
    return {table for (table,) in connection.execute("SELECT tbl FROM sqlite_stat1")}


def test_a_worker_that_begins_forgets_what_is_known_of_our_tables_alone(
    store: Store, outside: sqlite3.Connection
) -> None:
    outside.execute("ANALYZE")
    assert analysed(outside) > OURS

    worker(store)

    assert analysed(outside) & OURS == set()
    assert "orders" in analysed(outside)
    left = "SELECT name FROM sqlite_schema WHERE name LIKE 'penstock%'"
    assert outside.execute(left).fetchall() == []


def test_a_worker_that_is_at_work_forgets_what_comes_later(
    store: Store, outside: sqlite3.Connection
) -> None:
    worker(store)
    outside.execute("ANALYZE")

    assert store.heartbeat(WORKER).alive

    assert analysed(outside) & OURS == set()


def test_connections_that_are_open_read_the_statistics_again(
    store: Store, outside: sqlite3.Connection
) -> None:
    outside.execute("ANALYZE")
    # So many that an index would not pay, if it were true of each row.
    outside.execute("UPDATE sqlite_stat1 SET stat = '1000000 1000000' WHERE idx LIKE '%_root'")
    with closing(sqlite3.connect(_file(outside), cached_statements=0)) as reader:
        asked = "SELECT at FROM execution_events WHERE root_id = 'x'"
        before = _plan(reader, asked)
        worker(store)
        assert "execution_events_root" not in before
        assert "execution_events_root" in _plan(reader, asked)


def test_statistics_that_are_damaged_stop_no_worker(
    store: Store, outside: sqlite3.Connection
) -> None:
    outside.execute("ANALYZE")
    outside.execute("PRAGMA writable_schema = ON")
    outside.execute(
        "UPDATE sqlite_schema SET sql = 'CREATE TABLE sqlite_stat1(a, b, c)'"
        " WHERE name = 'sqlite_stat1'"
    )
    outside.execute("PRAGMA writable_schema = RESET")

    worker(store)

    task_id = enqueue(store)
    assert get(store, task_id).id == task_id


def _file(connection: sqlite3.Connection) -> str:
    ((_, _, path),) = connection.execute("PRAGMA database_list")
    return str(path)


def _plan(connection: sqlite3.Connection, sql: str) -> str:
    connection.execute(sql).fetchall()  # a plan alone does not look whether the schema has changed
    return " ".join(row[-1] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}"))
