"""Runs a script on a caller's connection, in the caller's transaction, and commits nothing.

A connection is recognised by the names of its classes, so no driver is imported here that
the caller has not imported. It is refused, before anything is written, unless its
transaction is a real one and the database at its other end is the app's own.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakSet

from penstock.errors import PenstockError
from penstock.store.connections.adapter import (
    Adapter,
    AsyncAdapter,
    Shape,
    SyncAdapter,
    kind_of,
    shapes_of,
)
from penstock.store.connections.asyncpg_driver import AsyncpgConnection
from penstock.store.connections.checking import OurDatabase
from penstock.store.connections.psycopg_driver import PsycopgAsyncConnection, PsycopgConnection
from penstock.store.connections.refusals import (
    AsyncConnectionGiven,
    ConnectionRefused,
    EngineGiven,
    NotAConnection,
    OtherDialect,
    PoolGiven,
    SessionMakerGiven,
    SyncConnectionGiven,
    TransactionAborted,
)
from penstock.store.connections.sqlalchemy_driver import (
    SqlalchemyAsyncConnection,
    SqlalchemyAsyncSession,
    SqlalchemyConnection,
    SqlalchemySession,
)
from penstock.store.connections.sqlite_driver import SqliteConnection
from penstock.store.scripts import Script, Step, arun, run
from penstock.store.sql import Statement

__all__ = ["Callers", "ConnectionRefused"]

T = TypeVar("T")
V = TypeVar("V")

IN_FAILED_TRANSACTION = "25P02"

# Django's database wrappers will be one more row here, with a module of their own.
SYNC: Mapping[Shape, Callable[[Any], SyncAdapter]] = {
    Shape("sqlite3", "Connection"): SqliteConnection,
    Shape("psycopg", "Connection"): PsycopgConnection,
    Shape("sqlalchemy", "Connection"): SqlalchemyConnection,
    Shape("sqlalchemy", "Session"): SqlalchemySession,
    Shape("sqlalchemy", "scoped_session"): SqlalchemySession,
}
ASYNC: Mapping[Shape, Callable[[Any], AsyncAdapter]] = {
    Shape("psycopg", "AsyncConnection"): PsycopgAsyncConnection,
    Shape("asyncpg", "Connection"): AsyncpgConnection,
    Shape("asyncpg", "PoolConnectionProxy"): AsyncpgConnection,
    Shape("sqlalchemy", "AsyncConnection"): SqlalchemyAsyncConnection,
    Shape("sqlalchemy", "AsyncSession"): SqlalchemyAsyncSession,
    Shape("sqlalchemy", "async_scoped_session"): SqlalchemyAsyncSession,
}
MISTAKEN: Mapping[Shape, Callable[[str], NotAConnection]] = {
    Shape("sqlalchemy", "Engine"): EngineGiven,
    Shape("sqlalchemy", "AsyncEngine"): EngineGiven,
    Shape("sqlalchemy", "sessionmaker"): SessionMakerGiven,
    Shape("sqlalchemy", "async_sessionmaker"): SessionMakerGiven,
    Shape("sqlalchemy", "Pool"): PoolGiven,
    Shape("psycopg_pool", "BasePool"): PoolGiven,
    Shape("asyncpg", "Pool"): PoolGiven,
}
_ROLLBACK = Step(Statement("rollback", "ROLLBACK"), {})


class Callers:
    """The callers of one store: which of their connections are known to lead to its database."""

    def __init__(self, ours: OurDatabase) -> None:
        self._ours = ours
        # Weak, so that nobody's connection lives longer for it, and by object and not by id(),
        # which a later connection to another database may have again.
        self._known: WeakSet[Any] = WeakSet()

    def run(self, connection: object, script: Script[T]) -> T:
        """Run the script on a plain connection.

        Raises:
            ConnectionRefused: it cannot carry an execution. Nothing was written.
        """
        make = _found(connection, SYNC)
        if make is None:
            raise _refusal(connection, AsyncConnectionGiven if _found(connection, ASYNC) else None)
        adapter = make(connection)
        adapter.open()
        return run(self._guarded(adapter, script), adapter.execute)

    async def arun(self, connection: object, script: Script[T]) -> T:
        """Run the script on an async connection.

        Raises:
            ConnectionRefused: it cannot carry an execution. Nothing was written.
        """
        make = _found(connection, ASYNC)
        if make is None:
            raise _refusal(connection, SyncConnectionGiven if _found(connection, SYNC) else None)
        adapter = make(connection)
        await adapter.open()
        await asyncio.to_thread(self._ours.prepare)
        return await arun(self._guarded(adapter, script), adapter.execute)

    def _guarded(self, adapter: Adapter, script: Script[T]) -> Script[T]:
        if adapter.dialect != self._ours.dialect:
            raise OtherDialect(adapter.kind, dialect=adapter.dialect, wanted=self._ours.dialect)
        begin = adapter.check()
        self._ours.prepare()
        try:
            if begin is not None:
                yield begin
            try:
                yield from self._refuse_other_database(adapter)
            except PenstockError:
                if begin is not None:
                    yield _ROLLBACK
                raise
            return (yield from script)
        except Exception as error:
            if _sqlstate(error) == IN_FAILED_TRANSACTION:
                raise TransactionAborted(adapter.kind) from error
            raise

    def _refuse_other_database(self, adapter: Adapter) -> Script[None]:
        if adapter.driver_connection in self._known:
            return
        yield from self._ours.check(adapter.kind)
        try:
            self._known.add(adapter.driver_connection)
        except TypeError:
            # sqlite3's cannot be referred to weakly; asking again costs it no round trip.
            return


def _found(connection: object, among: Mapping[Shape, V]) -> V | None:
    return next((among[shape] for shape in shapes_of(connection) if shape in among), None)


def _refusal(
    connection: object, wrong_colour: Callable[[str], ConnectionRefused] | None
) -> ConnectionRefused:
    refused = wrong_colour or _found(connection, MISTAKEN) or NotAConnection
    return refused(kind_of(connection))


def _sqlstate(error: BaseException) -> str | None:
    """Return the server's code for an error, which SQLAlchemy wraps once more."""
    original = getattr(error, "orig", None) or error
    return getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
