"""The databases that the suite runs on, and a way past the store to what they hold."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg

from penstock.model.clock import Clock
from penstock.store.contract import Store
from penstock.store.postgres.store import PostgresStore
from penstock.store.sqlite.store import SqliteStore

Row = tuple[Any, ...]

TABLES = (
    "task_executions",
    "workflow_executions",
    "task_outbox",
    "execution_events",
    "workers",
    "paused_queues",
    "once_ledger",
    "step_results",
    "signals",
)
ONLY_ON_POSTGRES = ("serials", "propagations", "run_propagations", "task_wakes")


class Database(Protocol):
    """One empty database of its own for a test."""

    @property
    def dialect(self) -> str: ...

    def open(self, clock: Clock | None = None) -> Store:
        """Return another store on this database, which the caller closes."""
        ...

    def query(self, statement: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        """Run a statement that both databases understand, in a transaction of its own.

        Tables have no schema, parameters are written `:name`.
        """
        ...

    def empty(self) -> None:
        """Remove all rows, and leave the tables."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class SqliteDatabase:
    path: Path
    dialect: str = "sqlite"

    def open(self, clock: Clock | None = None) -> Store:
        return SqliteStore(self.path, clock=clock)

    def query(self, statement: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            return connection.execute(statement, dict(parameters or {})).fetchall()

    def empty(self) -> None:
        for table in TABLES:
            self.query(f"DELETE FROM {table}")

    def close(self) -> None:
        pass


class PostgresDatabase:
    dialect = "postgres"

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema
        self._connection: psycopg.Connection[Row] | None = None

    def open(self, clock: Clock | None = None) -> Store:
        return PostgresStore(self.url, schema=self.schema, clock=clock)

    def query(self, statement: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        given = dict(parameters or {})
        for name in given:
            statement = statement.replace(f":{name}", f"%({name})s")
        if self._connection is None:
            self._connection = self.connect(autocommit=True)
        cursor = self._connection.execute(statement.encode(), given)
        return cursor.fetchall() if cursor.description else []

    def empty(self) -> None:
        # Row by row: a TRUNCATE writes new files for every table and index, which takes longer.
        for table in TABLES + ONLY_ON_POSTGRES:
            self.query(f"DELETE FROM {table}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def connect(self, *, autocommit: bool = False) -> "psycopg.Connection[Row]":
        """A connection that finds the tables without their schema, as a person's would.

        It gives up waiting for a lock that somebody has left behind.
        """
        options = f"-c search_path={self.schema} -c lock_timeout=10s"
        return psycopg.connect(self.url, autocommit=autocommit, options=options)


def count(database: Database, table: str, where: str = "true") -> int:
    ((rows,),) = database.query(f"SELECT count(*) FROM {table} WHERE {where}")
    return int(rows)
