"""The rows that a create writes, inserted bare: what the database itself takes for them."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import psycopg

from penstock.model.ids import new_id
from penstock.store.batches import microseconds_at
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase
from tests.contract.support import QUEUE, TASK

Row = tuple[Any, ...]

COLUMNS = {
    "task_executions": (
        "id", "root_id", "task", "queue", "priority", "args", "state", "max_crashes", "key",
        "serial", "serial_place", "run_at", "created_at",
    ),
    "task_outbox": ("task_execution_id", "queue", "priority", "task"),
    "execution_events": ("root_id", "task_execution_id", "type", "data", "at"),
}  # fmt: skip
TYPES = {
    "id": "uuid",
    "root_id": "uuid",
    "task_execution_id": "uuid",
    "priority": "integer",
    "max_crashes": "integer",
    "serial_place": "bigint",
    "run_at": "timestamptz",
    "created_at": "timestamptz",
    "at": "timestamptz",
}  # on PostgreSQL, where they are not text


class Rows(NamedTuple):
    """The rows of some tasks that are ready: one each, one in the outbox, two events."""

    task_executions: list[Row]
    task_outbox: list[Row]
    execution_events: list[Row]


def rows_of_new_tasks(database: Database, count: int) -> Rows:
    moment = datetime.now(UTC)
    now = microseconds_at(moment) if database.dialect == "sqlite" else moment
    ids = [new_id() for _ in range(count)]
    return Rows(
        [
            (id_, id_, TASK, QUEUE, 0, "{}", "ready", 3, None, None, None, None, now)
            for id_ in ids
        ],
        [(id_, QUEUE, 0, TASK) for id_ in ids],
        [
            (id_, id_, event, None, now)
            for id_ in ids
            for event in ("task.created", "task.marked_ready")
        ],
    )  # fmt: skip


class Inserter(Protocol):
    def many(self, rows: Rows) -> None:
        """Insert in bulk, in the quickest way that plain INSERTs have; one transaction."""
        ...

    def one(self, rows: Rows) -> None:
        """Insert row by row; one transaction."""
        ...


class _SqliteInserter:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def many(self, rows: Rows) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for (table, columns), lines in zip(COLUMNS.items(), rows, strict=True):
            self._connection.executemany(_insert(table, columns, "?"), lines)
        self._connection.execute("COMMIT")

    def one(self, rows: Rows) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for (table, columns), lines in zip(COLUMNS.items(), rows, strict=True):
            for line in lines:
                self._connection.execute(_insert(table, columns, "?"), line)
        self._connection.execute("COMMIT")


class _PostgresInserter:
    def __init__(self, connection: "psycopg.Connection[Row]") -> None:
        self._connection = connection

    def many(self, rows: Rows) -> None:
        # A parameter per column, not per value: twice as quick as long lists of VALUES.
        for (table, columns), lines in zip(COLUMNS.items(), rows, strict=True):
            arrays = ", ".join(f"%s::{TYPES.get(column, 'text')}[]" for column in columns)
            statement = f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM unnest({arrays})"
            values = [list(column) for column in zip(*lines, strict=True)]
            self._connection.execute(statement.encode(), values)
        self._connection.commit()

    def one(self, rows: Rows) -> None:
        for (table, columns), lines in zip(COLUMNS.items(), rows, strict=True):
            for line in lines:
                self._connection.execute(_insert(table, columns, "%s").encode(), line)
        self._connection.commit()


def _insert(table: str, columns: Sequence[str], parameter: str) -> str:
    values = ", ".join([parameter] * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"


@contextmanager
def inserter(database: Database) -> Iterator[Inserter]:
    """Insert as durably as the store does, on one connection."""
    match database:
        case SqliteDatabase():
            connection = sqlite3.connect(database.path, isolation_level=None)
            connection.execute("PRAGMA synchronous = FULL")
            try:
                yield _SqliteInserter(connection)
            finally:
                connection.close()
        case PostgresDatabase():
            with database.connect() as own:
                yield _PostgresInserter(own)
        case _:
            raise TypeError(database)
