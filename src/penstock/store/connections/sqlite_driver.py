"""Connections of the standard library's sqlite3, and the same beneath other libraries."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from penstock.store.connections.adapter import Foreign, kind_of
from penstock.store.connections.refusals import (
    ConnectionClosed,
    ConnectionInAutocommit,
    OtherThread,
)
from penstock.store.scripts import Row, Step
from penstock.store.sql import Statement

# The driver would begin by itself only before INSERT, UPDATE, DELETE and REPLACE, so neither
# before a SAVEPOINT nor before WITH. IMMEDIATE, because we are about to write: a transaction
# that starts as a read fails at once when another writer is quicker.
_BEGIN = Step(Statement("begin", "BEGIN IMMEDIATE"), {})
_BEGIN_EXCLUSIVE = Step(Statement("begin", "BEGIN EXCLUSIVE"), {})


class SqliteConnection:
    """A `sqlite3.Connection`."""

    dialect = "sqlite"

    def __init__(self, connection: Foreign) -> None:
        self.kind = kind_of(connection)
        self.driver_connection = connection

    def open(self) -> None:
        pass

    def check(self) -> Step | None:
        try:
            _ = self.driver_connection.total_changes
        except sqlite3.ProgrammingError as error:
            raise ConnectionClosed(self.kind) from error
        try:
            self.driver_connection.cursor().close()
        except sqlite3.ProgrammingError as error:
            raise OtherThread(self.kind) from error
        return begin_step(self.driver_connection, self.kind)

    def execute(self, step: Step) -> list[Row]:
        with (
            plain_rows(self.driver_connection),
            closing(self.driver_connection.cursor()) as cursor,
        ):
            cursor.execute(step.statement.sql, step.parameters)
            return cursor.fetchall()  # type: ignore[no-any-return]


def begin_step(connection: Foreign, kind: str) -> Step | None:
    """Return what begins a transaction that the connection can commit, or None if one is open."""
    if connection.in_transaction:
        return None
    # True only in the mode that Python 3.12 added, in which commit() does nothing at all.
    if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
        raise ConnectionInAutocommit(
            kind,
            next_step="Execute BEGIN first, or connect without `isolation_level=None` and "
            "`autocommit=True`.",
        )
    return _BEGIN_EXCLUSIVE if connection.isolation_level.upper() == "EXCLUSIVE" else _BEGIN


@contextmanager
def plain_rows(connection: Foreign) -> Iterator[None]:
    """Read tuples of str for a moment, whatever the caller wants to read otherwise."""
    # Cursors ask their connection how to read text, so it cannot be set on a cursor of our own.
    row_factory, text_factory = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        yield
    finally:
        connection.row_factory, connection.text_factory = row_factory, text_factory
