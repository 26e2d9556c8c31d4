"""SQLAlchemy's connections and sessions, plain and async, on the drivers that we know.

Everything goes through `exec_driver_sql`, so that SQLAlchemy's own idea of the transaction
stays true: it begins when SQLAlchemy says so, even where the driver's BEGIN comes later.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

from penstock.store.connections.adapter import Foreign, kind_of
from penstock.store.connections.psycopg_driver import TransactionStatus
from penstock.store.connections.refusals import (
    ConnectionClosed,
    ConnectionInAutocommit,
    ConnectionUnusable,
    DriverUnknown,
    TransactionAborted,
)
from penstock.store.connections.sqlite_driver import begin_step, plain_rows
from penstock.store.scripts import Row, Step

AUTOCOMMIT = "AUTOCOMMIT"
# Cursors of the server's own cannot carry a statement that writes.
BUFFERED = {"stream_results": False, "yield_per": None}


def _as_psycopg(step: Step) -> tuple[str, object]:
    return step.statement.pyformat, step.parameters


def _as_asyncpg(step: Step) -> tuple[str, object]:
    return step.statement.dollar, tuple(step.parameters[n] for n in step.statement.parameters)


def _as_sqlite(step: Step) -> tuple[str, object]:
    return step.statement.sql, step.parameters


STYLES: Mapping[str, Callable[[Step], tuple[str, object]]] = {
    "psycopg": _as_psycopg,
    "psycopg2": _as_psycopg,
    "asyncpg": _as_asyncpg,
    "pysqlite": _as_sqlite,
    "aiosqlite": _as_sqlite,
}


class _Sqlalchemy:
    _connection: Foreign  # SQLAlchemy's plain Connection, whatever was given
    _writes_on: Foreign  # where exec_driver_sql is called: the same, or its async face

    def __init__(self, given: Foreign) -> None:
        self.kind = kind_of(given)
        self._given = given

    @property
    def dialect(self) -> str:
        return str(self._connection.dialect.name)

    @property
    def driver_connection(self) -> Foreign:
        return self._connection.connection.driver_connection

    def check(self) -> Step | None:
        driver = self._connection.dialect.driver
        if driver not in STYLES:
            raise DriverUnknown(self.kind, driver=driver, known=", ".join(STYLES))
        with self._refusing():
            if self._connection.get_execution_options().get("isolation_level") == AUTOCOMMIT:
                raise self._in_autocommit()
            if self.dialect == "sqlite":
                return begin_step(self.driver_connection, self.kind)
            if self._connection.connection.dbapi_connection.autocommit:
                raise self._in_autocommit()
        # Only libpq's drivers have it; asyncpg tells when the first statement is refused.
        info = getattr(self.driver_connection, "info", None)
        if info is not None and info.transaction_status == TransactionStatus.IN_ERROR:
            raise TransactionAborted(self.kind)
        return None

    def _in_autocommit(self) -> ConnectionInAutocommit:
        return ConnectionInAutocommit(
            self.kind,
            next_step="Use one whose isolation level, or whose engine's, is not 'AUTOCOMMIT'.",
        )

    def _call(self, step: Step) -> Foreign:
        sql, parameters = STYLES[self._connection.dialect.driver](step)
        return self._writes_on.exec_driver_sql(sql, parameters or None, BUFFERED)

    def _plainly(self) -> Foreign:
        return plain_rows(self.driver_connection) if self.dialect == "sqlite" else nullcontext()

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn what SQLAlchemy says about its own objects into a refusal."""
        exc = sys.modules["sqlalchemy.exc"]
        try:
            yield
        except exc.PendingRollbackError as error:
            raise TransactionAborted(self.kind) from error
        except exc.ResourceClosedError as error:
            raise ConnectionClosed(self.kind) from error
        except exc.InvalidRequestError as error:
            raise ConnectionUnusable(
                self.kind,
                reason=str(error).partition("\n")[0].rstrip("."),
                next_step="Pass a SQLAlchemy Connection that has been opened and begun.",
            ) from error


def _refuse_closed(connection: Foreign, kind: str) -> None:
    if connection.closed:
        raise ConnectionClosed(kind)
    if connection.invalidated:
        raise ConnectionClosed(kind, how="has lost its connection to the database")


class SqlalchemyConnection(_Sqlalchemy):
    """A `Connection`."""

    def open(self) -> None:
        self._connection = self._writes_on = self._get()
        _refuse_closed(self._connection, self.kind)
        with self._refusing():
            # Before the first statement, because only now the driver's state means anything:
            # applications may emit BEGIN themselves when SQLAlchemy begins.
            if not self._connection.in_transaction():
                self._connection.begin()

    def _get(self) -> Foreign:
        return self._given

    def execute(self, step: Step) -> list[Row]:
        with self._refusing(), self._plainly():
            return _rows(self._call(step))


class SqlalchemySession(SqlalchemyConnection):
    """A `Session` or a `scoped_session`."""

    def _get(self) -> Foreign:
        with self._refusing():
            return self._given.connection()


class SqlalchemyAsyncConnection(_Sqlalchemy):
    """An `AsyncConnection`."""

    async def open(self) -> None:
        self._writes_on = await self._get()
        self._connection = self._writes_on.sync_connection
        if self._connection is None:
            raise ConnectionUnusable(
                self.kind,
                reason="it has not been opened yet",
                next_step="Write `async with engine.begin() as connection:`.",
            )
        _refuse_closed(self._connection, self.kind)
        with self._refusing():
            if not self._connection.in_transaction():
                await self._writes_on.begin()

    async def _get(self) -> Foreign:
        return self._given

    async def execute(self, step: Step) -> list[Row]:
        with self._refusing(), self._plainly():
            return _rows(await self._call(step))


class SqlalchemyAsyncSession(SqlalchemyAsyncConnection):
    """An `AsyncSession` or an `async_scoped_session`."""

    async def _get(self) -> Foreign:
        with self._refusing():
            return await self._given.connection()


def _rows(result: Foreign) -> list[Row]:
    return [tuple(row) for row in result.fetchall()] if result.returns_rows else []
