"""What ANALYZE has seen of almost empty tables must not decide how full ones are read."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.store.sqlite.connecting import open_writer
from penstock.store.sqlite.store import SqliteStore
from tests.contract.support import enqueue, get


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(SqliteStore(path)) as store:
        enqueue(store)
    return path


@pytest.fixture
def outside(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def analysed(connection: sqlite3.Connection) -> set[str]:
    return {table for (table,) in connection.execute("SELECT tbl FROM sqlite_stat1")}


def test_whoever_opens_the_file_to_write_forgets_what_is_known_of_our_tables(
    path: Path, outside: sqlite3.Connection
) -> None:
    outside.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    outside.execute("INSERT INTO orders VALUES (1)")
    outside.execute("ANALYZE")
    assert analysed(outside) > {"task_executions", "task_outbox", "execution_events", "orders"}

    with closing(SqliteStore(path)) as store:
        task_id = enqueue(store)

        assert analysed(outside) & {"task_executions", "task_outbox", "execution_events"} == set()
        assert "orders" in analysed(outside)
        assert get(store, task_id).id == task_id
    tables = "SELECT name FROM sqlite_schema WHERE name LIKE 'penstock%'"
    assert outside.execute(tables).fetchall() == []


def test_connections_that_are_open_already_forget_it_too(
    path: Path, outside: sqlite3.Connection
) -> None:
    outside.execute("ANALYZE")
    outside.execute("UPDATE sqlite_stat1 SET stat = '1 1' WHERE tbl = 'task_executions'")
    with closing(sqlite3.connect(path)) as reader:
        ((before,),) = reader.execute("PRAGMA schema_version")
        open_writer(str(path), busy_timeout=1).close()
        ((after,),) = reader.execute("PRAGMA schema_version")
    assert after > before


def test_a_file_without_statistics_is_not_written_to(
    path: Path, outside: sqlite3.Connection
) -> None:
    outside.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    outside.execute("INSERT INTO orders VALUES (1)")
    outside.execute("ANALYZE orders")
    outside.execute("BEGIN IMMEDIATE")  # nobody else can write now
    open_writer(str(path), busy_timeout=0).close()
    outside.execute("COMMIT")
