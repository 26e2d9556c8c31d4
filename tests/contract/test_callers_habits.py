"""Callers configure their connections as they like: none of it gets in our way, or is changed."""

import asyncio
import gc
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NoReturn

import asyncpg  # type: ignore[import-untyped]
import psycopg
import pytest
from msgspec.structs import replace
from psycopg.adapt import Dumper, Loader
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from penstock.model.ids import new_id
from penstock.store.contract import Store
from penstock.store.postgres.store import PostgresStore
from penstock.testing.clock import ManualClock
from tests.contract.callers import engine_url, wake_ups
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase, count
from tests.contract.support import MINUTE, enqueue, new

TOO_HIGH = 2**40


@pytest.fixture
def on_sqlite(sqlite: SqliteDatabase, clock: ManualClock) -> Iterator[Store]:
    store = sqlite.open(clock)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def on_postgres(emptied_postgres: PostgresDatabase, clock: ManualClock) -> Iterator[Store]:
    store = emptied_postgres.open(clock)
    yield store
    store.close()


# --- SQLite ---------------------------------------------------------------------------


def test_the_callers_factories_are_the_same_afterwards(
    sqlite: SqliteDatabase, on_sqlite: Store
) -> None:
    with closing(sqlite3.connect(sqlite.path)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        on_sqlite.create_on(connection, [new()])

        assert connection.row_factory is sqlite3.Row
        assert connection.text_factory is bytes


def test_each_way_to_write_an_execution_leaves_the_same_rows(
    sqlite: SqliteDatabase, on_sqlite: Store
) -> None:
    """By itself on our own connection, by itself on a caller's, and among others."""
    asked = new("send_mail", args='{"to":"a"}', queue="mail", priority=-7, max_crashes=5)
    asked = replace(asked, follow_ups='{"on_success":[]}', trace='{"a":"b"}')
    alone, on_callers, first, second = (replace(asked, id=new_id()) for _ in range(4))

    on_sqlite.create([alone])
    with closing(sqlite3.connect(sqlite.path)) as connection:
        on_sqlite.create_on(connection, [on_callers])
        connection.commit()
    on_sqlite.create([first, second])

    with closing(sqlite3.connect(sqlite.path)) as connection:
        rows = [_rows_of(connection, one.id) for one in (alone, on_callers, first, second)]
    assert len(rows[0]) == 4  # the execution, its place in the outbox, two events
    assert all(others == rows[0] for others in rows[1:])


def _rows_of(connection: sqlite3.Connection, execution_id: str) -> list[dict[str, object]]:
    """Return all that is stored of an execution, but for its id and its places in the order."""
    connection.row_factory = sqlite3.Row
    found = [
        dict(row)
        for table, named in (
            ("task_executions", "id"),
            ("task_outbox", "task_execution_id"),
            ("execution_events", "task_execution_id"),
        )
        for row in connection.execute(
            f"SELECT * FROM {table} WHERE {named} = ? ORDER BY rowid",
            (execution_id,),
        )
    ]
    return [
        {name: value for name, value in row.items() if name != "seq" and value != execution_id}
        for row in found
    ]


def test_no_other_writer_can_come_between_our_first_look_and_our_write(
    sqlite: SqliteDatabase, on_sqlite: Store
) -> None:
    """A transaction that has read and lost the race to write fails at once, without waiting."""
    interruptions: list[str] = []

    with (
        closing(sqlite3.connect(sqlite.path, isolation_level=None)) as connection,
        closing(sqlite3.connect(sqlite.path, isolation_level=None, timeout=0)) as other,
    ):

        def interrupt(statement: str) -> None:
            if statement.startswith("SAVEPOINT"):
                with pytest.raises(sqlite3.OperationalError, match="locked"):
                    other.execute("DELETE FROM workers")
                interruptions.append(statement)

        connection.execute("BEGIN")
        connection.set_trace_callback(interrupt)
        on_sqlite.create_on(connection, [new()])
        connection.set_trace_callback(None)
        connection.execute("COMMIT")

    assert len(interruptions) == 1
    assert count(sqlite, "task_executions") == 1


def test_a_batch_that_sqlite_refuses_leaves_the_transaction_without_it(
    sqlite: SqliteDatabase, on_sqlite: Store
) -> None:
    good = new()
    with closing(sqlite3.connect(sqlite.path)) as connection:
        on_sqlite.create_on(connection, [good])
        with pytest.raises(sqlite3.IntegrityError):
            on_sqlite.create_on(connection, [new(), new(priority=TOO_HIGH)])
        connection.commit()

    assert [one.id for one in on_sqlite.find()] == [good.id]


def test_a_class_of_the_callers_own_is_recognised_by_what_it_inherits(
    sqlite: SqliteDatabase, on_sqlite: Store
) -> None:
    class Connection(sqlite3.Connection):
        pass

    with closing(sqlite3.connect(sqlite.path, factory=Connection)) as connection:
        for _ in range(2):
            on_sqlite.create_on(connection, [new()])
        connection.commit()

    assert count(sqlite, "task_executions") == 2


# --- PostgreSQL -----------------------------------------------------------------------


def test_adapters_of_the_callers_own_are_not_used_for_our_statements(
    emptied_postgres: PostgresDatabase, on_postgres: Store
) -> None:
    class Shouting(Dumper):
        def dump(self, obj: str) -> bytes:
            return obj.upper().encode()

    class Nothing(Loader):
        def load(self, data: object) -> None:
            del data

    holder = enqueue(on_postgres, key="order-1")
    with closing(psycopg.connect(emptied_postgres.url)) as connection:
        connection.adapters.register_dumper(str, Shouting)
        for kind in ("text", "bool", "int4", "int8"):
            connection.adapters.register_loader(kind, Nothing)
        requested = new(args='{"to": "ada"}')
        answers = on_postgres.create_on(connection, [requested, new(key="order-1")])
        assert [answer.id for answer in answers] == [requested.id, holder]
        connection.commit()

        assert connection.execute("SELECT %s::text", ["ada"]).fetchall() == [(None,)]

    (stored,) = on_postgres.get([requested.id])
    assert stored.args == '{"to": "ada"}'


@pytest.mark.parametrize("threshold", [0, 5, None])
def test_prepared_statements_make_no_difference(
    emptied_postgres: PostgresDatabase, on_postgres: Store, threshold: int | None
) -> None:
    with closing(psycopg.connect(emptied_postgres.url, prepare_threshold=threshold)) as connection:
        for n in range(12):
            on_postgres.create_on(connection, [new(delay=MINUTE if n % 2 else None)])
        connection.commit()

    assert count(emptied_postgres, "task_outbox") == 6


def test_a_record_class_of_the_callers_own_is_not_used_for_our_rows(
    emptied_postgres: PostgresDatabase, on_postgres: Store
) -> None:
    class Unreadable(asyncpg.Record):  # type: ignore[misc]
        def __iter__(self) -> NoReturn:
            raise NotImplementedError

    async def enqueue_with_it() -> None:
        connection = await asyncpg.connect(emptied_postgres.url, record_class=Unreadable)
        async with connection.transaction():
            await on_postgres.acreate_on(connection, [new()])
        await connection.close()

    asyncio.run(enqueue_with_it())

    assert count(emptied_postgres, "task_outbox") == 1


def test_a_connection_is_asked_only_once_which_database_it_leads_to(
    emptied_postgres: PostgresDatabase, on_postgres: Store
) -> None:
    engine = create_engine(engine_url(emptied_postgres, "psycopg"), pool_size=1, max_overflow=0)
    statements: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        statements.append(statement)

    for _ in range(3):
        with Session(engine) as session, session.begin():
            on_postgres.create_on(session, [new()])
    engine.dispose()

    assert sum("SAVEPOINT penstock_check" in statement for statement in statements) == 2
    assert sum("INSERT INTO" in statement for statement in statements) == 3


def test_what_we_know_of_a_connection_is_forgotten_with_it(
    emptied_postgres: PostgresDatabase, on_postgres: Store
) -> None:
    assert isinstance(on_postgres, PostgresStore)
    with closing(psycopg.connect(emptied_postgres.url)) as connection:
        on_postgres.create_on(connection, [new()])
        assert len(on_postgres._callers._known) == 1
    del connection
    gc.collect()

    assert len(on_postgres._callers._known) == 0


def test_server_side_cursors_are_not_used_for_our_statements(
    emptied_postgres: PostgresDatabase, on_postgres: Store
) -> None:
    engine = create_engine(engine_url(emptied_postgres, "psycopg"), poolclass=NullPool)
    with engine.connect().execution_options(stream_results=True, yield_per=10) as connection:
        on_postgres.create_on(connection, [new()])
        connection.commit()

    assert count(emptied_postgres, "task_outbox") == 1


# --- both -----------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["aiosqlite", "psycopg", "asyncpg"])
def test_a_plain_session_inside_an_async_one_can_be_used_without_await(
    request: pytest.FixtureRequest, by: str
) -> None:
    store: Store = request.getfixturevalue("on_sqlite" if by == "aiosqlite" else "on_postgres")
    database: Database = request.getfixturevalue(
        "sqlite" if by == "aiosqlite" else "emptied_postgres"
    )

    async def enqueue_in_run_sync() -> None:
        engine = create_async_engine(engine_url(database, by), poolclass=NullPool)
        async with AsyncSession(engine) as session, session.begin():
            await session.run_sync(lambda session: store.create_on(session, [new()]))

    asyncio.run(enqueue_in_run_sync())

    assert count(database, "task_outbox") == 1


def test_wake_ups_can_be_switched_off_for_one_call(
    emptied_postgres: PostgresDatabase, on_postgres: Store
) -> None:
    heard: Callable[[], int]
    with (
        wake_ups(emptied_postgres) as heard,
        closing(psycopg.connect(emptied_postgres.url)) as connection,
    ):
        on_postgres.create_on(connection, [new()], notify=False)
        connection.commit()

        assert heard() == 0

    assert count(emptied_postgres, "task_outbox") == 1


def test_an_empty_batch_is_an_empty_answer(store: Store, database: Database) -> None:
    driver = "psycopg" if database.dialect == "postgres" else "pysqlite"
    with create_engine(engine_url(database, driver), poolclass=NullPool).begin() as connection:
        assert store.create_on(connection, []) == []


def test_no_library_is_imported_that_the_caller_has_not_imported() -> None:
    libraries = {"psycopg", "asyncpg", "sqlalchemy", "aiosqlite"}
    program = (
        "import sys, penstock.store.connections.callers\n"
        f"print(sorted({libraries} & sys.modules.keys()))"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert ran.stdout.strip() == "[]"
