"""Which connections an app on PostgreSQL refuses, what it says, and that nothing is written."""

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from penstock.store.connections import refusals
from penstock.store.connections.callers import ConnectionRefused
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.callers import (
    PlainCaller,
    by_async_psycopg,
    by_async_sqlalchemy,
    by_asyncpg,
    by_psycopg,
    by_sqlalchemy,
)
from tests.contract.databases import PostgresDatabase, count
from tests.contract.support import new

pytestmark = pytest.mark.postgres

Open = Callable[[PostgresDatabase], AbstractAsyncContextManager[PlainCaller]]

CALLERS: dict[str, Open] = {
    "psycopg": by_psycopg,
    "psycopg async": by_async_psycopg,
    "asyncpg": by_asyncpg,
    "sqlalchemy Connection": partial(by_sqlalchemy, driver="psycopg", style="Connection"),
    "sqlalchemy Session": partial(by_sqlalchemy, driver="psycopg", style="Session"),
    "sqlalchemy AsyncConnection, psycopg": partial(
        by_async_sqlalchemy, driver="psycopg", style="AsyncConnection"
    ),
    "sqlalchemy AsyncSession, asyncpg": partial(
        by_async_sqlalchemy, driver="asyncpg", style="AsyncSession"
    ),
}
every_caller = pytest.mark.parametrize("opened", CALLERS.values(), ids=CALLERS.keys())


@pytest.fixture
def database(emptied_postgres: PostgresDatabase) -> PostgresDatabase:
    return emptied_postgres


@pytest.fixture
def store(database: PostgresDatabase, clock: ManualClock) -> Iterator[Store]:
    store = database.open(clock)
    yield store
    store.close()


@pytest.fixture(autouse=True)
def nothing_was_written(database: PostgresDatabase) -> Iterator[None]:
    yield
    assert [count(database, table) for table in ("task_executions", "execution_events")] == [0, 0]


@pytest.fixture(scope="module")
def elsewhere(migrated_postgres: PostgresDatabase) -> Iterator[PostgresDatabase]:
    """Another database of the same server, with a schema of the same name and no tables."""
    name = f"penstock_test_{uuid.uuid4().hex[:12]}"
    try:
        migrated_postgres.query(f"CREATE DATABASE {name} TEMPLATE template0")
    except psycopg.errors.InsufficientPrivilege:
        pytest.skip("the user of this server may not create databases")
    url = urlsplit(migrated_postgres.url)._replace(path=f"/{name}").geturl()
    database = PostgresDatabase(url, migrated_postgres.schema)
    yield database
    database.close()
    migrated_postgres.query(f"DROP DATABASE {name}")


def refuse(
    store: Store,
    opened: AbstractAsyncContextManager[PlainCaller],
    *,
    as_: type[ConnectionRefused],
    then: str | None = None,
) -> str:
    """Have a caller's connection refused, write `then` on it, and return what was said."""

    async def enqueue() -> str:
        async with opened as caller:
            with pytest.raises(as_) as caught:
                await caller.enqueue(store, [new()])
            if then is not None:
                await caller.write(then)
                await caller.commit()
        return str(caught.value)

    message = asyncio.run(enqueue())
    assert "Nothing was written." in message
    return message


@asynccontextmanager
async def failed(opened: AbstractAsyncContextManager[PlainCaller]) -> AsyncIterator[PlainCaller]:
    """A caller who has seen an error, and goes on as if nothing had happened."""
    async with opened as caller:
        with suppress(psycopg.Error, asyncpg.PostgresError, DBAPIError):
            await caller.write("SELECT 1 / 0")
        yield caller


@every_caller
def test_a_failed_transaction_is_refused_as_such(
    store: Store, database: PostgresDatabase, opened: Open
) -> None:
    message = refuse(store, failed(opened(database)), as_=refusals.TransactionAborted)

    assert "has failed before: it can only be rolled back" in message
    assert "Roll it back" in message


def test_a_session_whose_flush_failed_is_refused_as_such(
    store: Store, database: PostgresDatabase
) -> None:
    engine = create_engine(_url(database, "psycopg"), poolclass=NullPool)
    with Session(engine) as session:
        session.begin_nested()
        with pytest.raises(DBAPIError):
            session.execute(text("SELECT 1 / 0"))

        with pytest.raises(refusals.TransactionAborted):
            store.create_on(session, [new()])


@every_caller
def test_a_database_without_our_tables_is_refused_and_its_transaction_lives_on(
    store: Store, elsewhere: PostgresDatabase, opened: Open
) -> None:
    table = f"orders_{uuid.uuid4().hex[:12]}"

    message = refuse(
        store, opened(elsewhere), as_=refusals.TablesMissing, then=f"CREATE TABLE {table} ()"
    )

    assert "leads to a database without Penstock tables." in message
    assert elsewhere.query(
        "SELECT to_regclass(:name) IS NOT NULL", {"name": f"public.{table}"}
    ) == [(True,)]


def test_tables_that_may_not_be_read_are_refused_and_the_transaction_lives_on(
    store: Store, database: PostgresDatabase
) -> None:
    with closing(psycopg.connect(database.url)) as connection:
        connection.execute("SET LOCAL ROLE pg_read_all_settings")
        with pytest.raises(refusals.TablesMissing) as caught:
            store.create_on(connection, [new()])

        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS

    assert "permission denied" in str(caught.value)


@every_caller
def test_the_database_of_another_app_is_refused(
    store: Store, database: PostgresDatabase, elsewhere: PostgresDatabase, opened: Open
) -> None:
    others = elsewhere.open()
    others.migrate()
    others.close()

    message = refuse(store, opened(elsewhere), as_=refusals.OtherDatabase, then="SELECT 1")

    assert "leads to another database than the app's" in message
    for there in (database, elsewhere):
        ((known_as,),) = there.query("SELECT DISTINCT database_id::text FROM schema_version")
        assert known_as in message
    assert count(elsewhere, "task_executions") == 0
    elsewhere.query(f"DROP SCHEMA {elsewhere.schema} CASCADE")


def test_a_connection_to_sqlite_is_refused(store: Store) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(refusals.OtherDialect) as caught:
            store.create_on(connection, [new()])

        assert not connection.in_transaction

    assert "speaks SQLite, and this app keeps its tasks in PostgreSQL" in str(caught.value)


@pytest.mark.parametrize(
    ("opened", "remedy"),
    [
        (by_psycopg, "`with connection.transaction():`"),
        (by_async_psycopg, "`async with connection.transaction():`"),
    ],
    ids=["psycopg", "psycopg async"],
)
def test_autocommit_without_a_transaction_is_refused(
    store: Store,
    database: PostgresDatabase,
    opened: Callable[..., AbstractAsyncContextManager[PlainCaller]],
    remedy: str,
) -> None:
    message = refuse(store, opened(database, autocommit=True), as_=refusals.ConnectionInAutocommit)

    assert "is in autocommit mode with no transaction open" in message
    assert remedy in message


def test_asyncpg_without_a_transaction_is_autocommit(
    store: Store, database: PostgresDatabase
) -> None:
    @asynccontextmanager
    async def idle() -> AsyncIterator[PlainCaller]:
        async with by_asyncpg(database) as caller:
            await caller.write("ROLLBACK")
            yield caller

    message = refuse(store, idle(), as_=refusals.ConnectionInAutocommit)

    assert "Enqueue inside `async with connection.transaction():`" in message


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("by", ["the engine", "an option"])
def test_sqlalchemys_autocommit_is_refused(
    store: Store, database: PostgresDatabase, driver: str, by: str
) -> None:
    level: Any = {"isolation_level": "AUTOCOMMIT"}

    async def enqueue() -> str:
        engine = create_async_engine(
            _url(database, driver), poolclass=NullPool, **(level if by == "the engine" else {})
        )
        if by == "an option":
            engine = engine.execution_options(**level)
        async with AsyncSession(engine) as session:
            with pytest.raises(refusals.ConnectionInAutocommit) as caught:
                await store.acreate_on(session, [new()])
        return str(caught.value)

    assert "isolation level, or whose engine's, is not 'AUTOCOMMIT'" in asyncio.run(enqueue())


def test_a_connection_that_is_busy_in_autocommit_mode_is_refused(
    store: Store, database: PostgresDatabase
) -> None:
    with (
        closing(psycopg.connect(database.url, autocommit=True)) as connection,
        connection.cursor() as cursor,
        cursor.copy("COPY (SELECT 1) TO STDOUT") as copy,
    ):
        with pytest.raises(refusals.ConnectionBusy) as caught:
            store.create_on(connection, [new()])
        assert list(copy.rows()) == [("1",)]

    assert "in the middle of another command" in str(caught.value)


@pytest.mark.parametrize("autocommit", [False, True])
def test_pipeline_mode_is_refused(
    store: Store, database: PostgresDatabase, autocommit: bool
) -> None:
    with (
        closing(psycopg.connect(database.url, autocommit=autocommit)) as connection,
        connection.pipeline(),
        connection.transaction(),
    ):
        with pytest.raises(refusals.PipelineOpen) as caught:
            store.create_on(connection, [new()])
        assert connection.execute("SELECT 1").fetchall() == [(1,)]

    assert "Enqueue before or after the pipeline block" in str(caught.value)


def test_closed_connections_are_refused(store: Store, database: PostgresDatabase) -> None:
    with psycopg.connect(database.url) as connection:
        connection.close()
    with pytest.raises(refusals.ConnectionClosed, match=r"This psycopg\.Connection is closed\."):
        store.create_on(connection, [new()])

    async def use_closed_ones() -> None:
        by_psycopg = await psycopg.AsyncConnection.connect(database.url)
        await by_psycopg.close()
        by_asyncpg = await asyncpg.connect(database.url)
        await by_asyncpg.close()
        by_sqlalchemy = await create_async_engine(_url(database, "asyncpg")).connect()
        await by_sqlalchemy.close()
        await by_sqlalchemy.engine.dispose()
        for closed in (by_psycopg, by_asyncpg, by_sqlalchemy):
            with pytest.raises(refusals.ConnectionClosed, match="is closed"):
                await store.acreate_on(closed, [new()])

    asyncio.run(use_closed_ones())


def test_a_connection_that_went_back_to_its_pool_is_refused(
    store: Store, database: PostgresDatabase
) -> None:
    async def use_it_too_late() -> None:
        async with asyncpg.create_pool(database.url, min_size=1, max_size=1) as pool:
            async with pool.acquire() as connection:
                pass
            with pytest.raises(refusals.ConnectionClosed, match="given back to its pool"):
                await store.acreate_on(connection, [new()])

    asyncio.run(use_it_too_late())


def test_async_connections_have_to_be_awaited_and_plain_ones_cannot(
    store: Store, database: PostgresDatabase
) -> None:
    async def confuse() -> None:
        async with by_async_psycopg(database) as caller, by_asyncpg(database) as other:
            for connection in (caller.connection, other.connection):
                with pytest.raises(refusals.AsyncConnectionGiven, match="has to be awaited"):
                    store.create_on(connection, [new()])
        async with by_psycopg(database) as caller:
            with pytest.raises(refusals.SyncConnectionGiven, match=r"A psycopg\.Connection cannot"):
                await store.acreate_on(caller.connection, [new()])

    asyncio.run(confuse())


def _url(database: PostgresDatabase, driver: str) -> str:
    return database.url.replace("postgresql:", f"postgresql+{driver}:")
