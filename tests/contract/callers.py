"""The callers that the suite enqueues for: every library and style that `connection=` takes.

A caller opens its connection the way an application does, writes a row of its own beside
the executions, and ends its transaction with its own means. Its methods are coroutines
whether or not the connection is: one test then speaks for all of them.
"""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from functools import partial
from typing import Any, TypeAlias

import asyncpg  # type: ignore[import-untyped]
import psycopg
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from penstock.model.executions import Created, NewExecution
from penstock.store.contract import Store
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase
from tests.contract.support import QUEUE

Foreign: TypeAlias = Any  # an object of the caller's library, of which there are many
Undo = Callable[[], Awaitable[None]]


class PlainCaller:
    """Uses a connection whose methods are plain calls."""

    def __init__(self, connection: Foreign) -> None:
        self.connection = connection

    async def enqueue(self, store: Store, executions: Sequence[NewExecution]) -> list[Created]:
        return store.create_on(self.connection, executions)

    async def write(self, statement: str) -> None:
        self.connection.execute(statement)

    async def savepoint(self) -> Undo:
        await self.write("SAVEPOINT mine")
        return partial(self.write, "ROLLBACK TO SAVEPOINT mine")

    async def commit(self) -> None:
        self.connection.commit()

    async def rollback(self) -> None:
        self.connection.rollback()


class PlainSqlalchemyCaller(PlainCaller):
    async def write(self, statement: str) -> None:
        self.connection.execute(text(statement))

    async def savepoint(self) -> Undo:
        nested = self.connection.begin_nested()

        async def undo() -> None:
            nested.rollback()

        return undo


class ByHandCaller(PlainCaller):
    """Begins and ends its transactions in SQL, on a connection in autocommit mode."""

    async def commit(self) -> None:
        await self.write("COMMIT")
        await self.write("BEGIN")

    async def rollback(self) -> None:
        await self.write("ROLLBACK")
        await self.write("BEGIN")


class AsyncCaller(PlainCaller):
    """Uses a connection whose methods are awaited."""

    async def enqueue(self, store: Store, executions: Sequence[NewExecution]) -> list[Created]:
        return await store.acreate_on(self.connection, executions)

    async def write(self, statement: str) -> None:
        await self.connection.execute(statement)

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()


class AsyncSqlalchemyCaller(AsyncCaller):
    async def write(self, statement: str) -> None:
        await self.connection.execute(text(statement))

    async def savepoint(self) -> Undo:
        nested = await self.connection.begin_nested()
        undo: Undo = nested.rollback
        return undo


class AsyncpgCaller(AsyncCaller):
    def __init__(self, connection: Foreign) -> None:
        super().__init__(connection)
        self._transaction = connection.transaction()

    async def begin(self) -> None:
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def savepoint(self) -> Undo:
        nested = self.connection.transaction()
        await nested.start()
        undo: Undo = nested.rollback
        return undo

    async def commit(self) -> None:
        await self._transaction.commit()
        await self.begin()

    async def rollback(self) -> None:
        await self._transaction.rollback()
        await self.begin()


# --- SQLite ---------------------------------------------------------------------------


@asynccontextmanager
async def by_sqlite3(database: SqliteDatabase, **options: Foreign) -> AsyncIterator[PlainCaller]:
    with closing(sqlite3.connect(database.path, **options)) as connection:
        yield PlainCaller(connection)


@asynccontextmanager
async def by_sqlite3_by_hand(database: SqliteDatabase) -> AsyncIterator[PlainCaller]:
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        yield ByHandCaller(connection)


@asynccontextmanager
async def by_sqlite3_with_factories(database: SqliteDatabase) -> AsyncIterator[PlainCaller]:
    with closing(sqlite3.connect(database.path)) as connection:
        connection.row_factory = lambda _, row: {"only": row[0], "of": len(row)}
        connection.text_factory = bytes
        yield PlainCaller(connection)


# --- PostgreSQL -----------------------------------------------------------------------


@asynccontextmanager
async def by_psycopg(database: PostgresDatabase, **options: Foreign) -> AsyncIterator[PlainCaller]:
    with closing(psycopg.connect(database.url, **options)) as connection:
        yield PlainCaller(connection)


@asynccontextmanager
async def by_psycopg_by_hand(database: PostgresDatabase) -> AsyncIterator[PlainCaller]:
    with closing(psycopg.connect(database.url, autocommit=True)) as connection:
        connection.execute("BEGIN")
        yield ByHandCaller(connection)


@asynccontextmanager
async def by_async_psycopg(
    database: PostgresDatabase, **options: Foreign
) -> AsyncIterator[PlainCaller]:
    connection = await psycopg.AsyncConnection.connect(database.url, **options)
    try:
        yield AsyncCaller(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg(database: PostgresDatabase) -> AsyncIterator[PlainCaller]:
    connection = await asyncpg.connect(database.url)
    try:
        caller = AsyncpgCaller(connection)
        await caller.begin()
        yield caller
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_with_codecs(database: PostgresDatabase) -> AsyncIterator[PlainCaller]:
    async with by_asyncpg(database) as caller:
        for kind in ("json", "jsonb"):
            await caller.connection.set_type_codec(
                kind, schema="pg_catalog", encoder=json.dumps, decoder=json.loads
            )
        yield caller


@asynccontextmanager
async def by_asyncpg_pool(database: PostgresDatabase) -> AsyncIterator[PlainCaller]:
    async with (
        asyncpg.create_pool(database.url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
    ):
        caller = AsyncpgCaller(connection)
        await caller.begin()
        yield caller
        await caller.rollback()


# --- SQLAlchemy, on both --------------------------------------------------------------


def engine_url(database: Database, driver: str) -> str:
    if isinstance(database, PostgresDatabase):
        return database.url.replace("postgresql:", f"postgresql+{driver}:")
    assert isinstance(database, SqliteDatabase)
    return f"sqlite+{driver}:///{database.path}"


@asynccontextmanager
async def by_sqlalchemy(
    database: Database, *, driver: str, style: str
) -> AsyncIterator[PlainCaller]:
    engine = create_engine(engine_url(database, driver), poolclass=NullPool)
    made: Any
    match style:
        case "Connection":
            made = engine.connect()
        case "Session":
            made = Session(engine)
        case _:
            made = scoped_session(sessionmaker(engine))
    with closing(made):
        yield PlainSqlalchemyCaller(made)


@asynccontextmanager
async def by_async_sqlalchemy(
    database: Database, *, driver: str, style: str
) -> AsyncIterator[PlainCaller]:
    engine = create_async_engine(engine_url(database, driver), poolclass=NullPool)
    made: Any
    match style:
        case "AsyncConnection":
            made = await engine.connect()
        case "AsyncSession":
            made = AsyncSession(engine)
        case _:
            made = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    try:
        yield AsyncSqlalchemyCaller(made)
    finally:
        await made.close()


PLAIN_STYLES = ("Connection", "Session", "scoped_session")
ASYNC_STYLES = ("AsyncConnection", "AsyncSession", "async_scoped_session")
Opening = Callable[[Any], AbstractAsyncContextManager[PlainCaller]]

ON_SQLITE: dict[str, Opening] = {
    "sqlite3": by_sqlite3,
    "sqlite3 by hand": by_sqlite3_by_hand,
    "sqlite3 with factories": by_sqlite3_with_factories,
    "sqlite3 exclusive": partial(by_sqlite3, isolation_level="EXCLUSIVE"),
}
if sys.version_info >= (3, 12):
    ON_SQLITE["sqlite3 without autocommit"] = partial(by_sqlite3, autocommit=False)
for name in PLAIN_STYLES:
    ON_SQLITE[f"sqlalchemy {name}"] = partial(by_sqlalchemy, driver="pysqlite", style=name)
for name in ASYNC_STYLES:
    ON_SQLITE[f"sqlalchemy {name}"] = partial(by_async_sqlalchemy, driver="aiosqlite", style=name)

ON_POSTGRES: dict[str, Opening] = {
    "psycopg": by_psycopg,
    "psycopg by hand": by_psycopg_by_hand,
    "psycopg with dict_row": partial(by_psycopg, row_factory=dict_row),
    "psycopg with RawCursor": partial(by_psycopg, cursor_factory=psycopg.RawCursor),
    "psycopg with ClientCursor": partial(by_psycopg, cursor_factory=psycopg.ClientCursor),
    "psycopg async": by_async_psycopg,
    "psycopg async with dict_row": partial(by_async_psycopg, row_factory=dict_row),
    "asyncpg": by_asyncpg,
    "asyncpg with codecs": by_asyncpg_with_codecs,
    "asyncpg from a pool": by_asyncpg_pool,
}
for name in PLAIN_STYLES:
    ON_POSTGRES[f"sqlalchemy {name}, psycopg"] = partial(
        by_sqlalchemy, driver="psycopg", style=name
    )
for name in ASYNC_STYLES:
    for by in ("psycopg", "asyncpg"):
        ON_POSTGRES[f"sqlalchemy {name}, {by}"] = partial(
            by_async_sqlalchemy, driver=by, style=name
        )


# --- what workers notice --------------------------------------------------------------


@contextmanager
def wake_ups(database: Database) -> Iterator[Callable[[], int]]:
    """Give a function that counts the wake-ups since it was last called."""
    if isinstance(database, PostgresDatabase):
        with database.connect(autocommit=True) as listener:
            yield _notifications(listener)
    else:
        assert isinstance(database, SqliteDatabase)
        with closing(sqlite3.connect(database.path)) as watcher:
            yield _changes(watcher)


def _notifications(listener: "psycopg.Connection[Any]") -> Callable[[], int]:
    ((channel,),) = listener.execute("SELECT wake_channel(%s)", [QUEUE]).fetchall()
    listener.execute(f"LISTEN {channel}".encode())

    def heard() -> int:
        # Notifications arrive in the order of the commits: what is not before this one
        # will never come.
        listener.execute("SELECT pg_notify(%s, 'the last')", [channel])
        for number, notification in enumerate(listener.notifies(timeout=30)):
            if notification.payload == "the last":
                return number
        raise AssertionError("our own notification never came")

    return heard


def _changes(watcher: sqlite3.Connection) -> Callable[[], int]:
    def version() -> int:
        ((number,),) = watcher.execute("PRAGMA data_version").fetchall()
        return int(number)

    seen = [version()]

    def heard() -> int:
        seen.append(version())
        return int(seen[-1] != seen[-2])

    return heard
