"""`enqueued` sees what is on a connection and not committed yet, and nothing that was undone."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from penstock import App, TaskHandle
from penstock.testing import ManualApp
from penstock.testing.schemas import SchemaInUse

app = App()


@app.task
def send(order_id: int) -> None: ...


@app.task
def pay(handle: TaskHandle, path: str, commits: bool) -> str:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO payments VALUES (1)")
        result = handle.complete("paid", connection=connection)
        if commits:
            connection.commit()
        return result


def found(manual: ManualApp) -> list[int]:
    return [execution.args["order_id"] for execution in manual.enqueued(send)]


async def afound(manual: ManualApp) -> list[int]:
    return [execution.args["order_id"] for execution in await manual.aenqueued(send)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def on_sqlite(file: Path) -> Iterator[ManualApp]:
    with ManualApp(app, database=f"sqlite:///{file}") as manual:
        yield manual


@pytest.fixture
def on_postgres(postgres_url: str) -> Iterator[ManualApp]:
    with ManualApp(app, database=postgres_url) as manual:
        yield manual


def test_sqlite3_uncommitted_then_rolled_back_then_committed(
    on_sqlite: ManualApp, file: Path
) -> None:
    with closing(sqlite3.connect(file)) as connection:
        send.using(connection=connection).enqueue(1)
        assert found(on_sqlite) == [1]
        connection.rollback()
        assert found(on_sqlite) == []
        assert not connection.in_transaction  # the look has opened none
        send.using(connection=connection).enqueue(2)
        connection.commit()
    assert found(on_sqlite) == [2]


def test_what_a_savepoint_takes_back_is_not_seen(on_postgres: ManualApp, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        send.using(connection=connection).enqueue(1)
        with connection.transaction(force_rollback=True):
            send.using(connection=connection).enqueue(2)
            assert found(on_postgres) == [1, 2]
        assert found(on_postgres) == [1]
        connection.rollback()
    assert found(on_postgres) == []


def test_a_session_is_looked_through_and_left_as_it_is(on_sqlite: ManualApp, file: Path) -> None:
    engine = create_engine(f"sqlite:///{file}")
    with Session(engine) as session:
        with on_sqlite.app.using(connection=session):
            send.enqueue(1)
        assert found(on_sqlite) == [1]
        session.rollback()
        assert found(on_sqlite) == []
        assert not session.in_transaction()
    engine.dispose()
    assert found(on_sqlite) == []


def test_async_connections_are_asked_too(on_postgres: ManualApp, postgres_url: str) -> None:
    async def with_asyncpg() -> None:
        connection = await asyncpg.connect(postgres_url)
        transaction = connection.transaction()
        await transaction.start()
        await send.using(connection=connection).aenqueue(1)
        assert await afound(on_postgres) == [1]
        await transaction.rollback()
        assert await afound(on_postgres) == []
        await connection.close()
        assert await afound(on_postgres) == []

    async def with_sqlalchemy() -> None:
        url = urlsplit(postgres_url)._replace(scheme="postgresql+asyncpg").geturl()
        engine = create_async_engine(url)
        async with AsyncSession(engine) as session:
            await send.using(connection=session).aenqueue(2)
            assert await afound(on_postgres) == [2]
            await session.commit()
        await engine.dispose()
        assert await afound(on_postgres) == [2]

    async def both() -> None:
        await with_asyncpg()
        await with_sqlalchemy()

    asyncio.run(both())


def test_a_completion_in_the_handlers_transaction_is_decided_by_the_commit(
    on_sqlite: ManualApp, file: Path
) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE payments (id INTEGER)")
    undone, done = pay.enqueue(str(file), commits=False), pay.enqueue(str(file), commits=True)
    on_sqlite.run_until_idle()
    assert done.result(timeout=0) == "paid"
    assert undone.refresh().state == "scheduled"
    assert undone.error is not None
    assert undone.error["type"].endswith("CompletionUndone")
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT count(*) FROM payments").fetchone() == (1,)


def test_a_schema_of_its_own_is_gone_afterwards(postgres_url: str) -> None:
    with ManualApp(app, database=postgres_url) as manual:
        send.enqueue(1)
        schema = manual.app.settings.database.schema
        assert schema_exists(postgres_url, schema)
    assert not schema_exists(postgres_url, schema)


def test_a_named_schema_stays(postgres_url: str, postgres_schema: str) -> None:
    with ManualApp(app, database=postgres_url, schema=postgres_schema):
        send.enqueue(1)
    assert schema_exists(postgres_url, postgres_schema)


def test_a_transaction_left_open_is_named(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.testing.schemas._PATIENCE", "50ms")
    with psycopg.connect(postgres_url) as connection:
        manual = ManualApp(app, database=postgres_url).__enter__()
        send.using(connection=connection).enqueue(1)
        schema = manual.app.settings.database.schema
        with pytest.raises(SchemaInUse, match="roll it back"):
            manual.__exit__(None, None, None)
        connection.rollback()
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


def schema_exists(url: str, schema: str) -> bool:
    with psycopg.connect(url) as connection:
        asking = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
        return connection.execute(asking, [schema]).fetchone() == (1,)
