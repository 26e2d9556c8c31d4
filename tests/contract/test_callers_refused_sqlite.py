"""Which connections an app on SQLite refuses, what it says, and that nothing is written."""

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from penstock.errors import PenstockError, SchemaError
from penstock.model.states import State
from penstock.store.connections import refusals
from penstock.store.connections.callers import ConnectionRefused
from penstock.store.contract import Store
from penstock.store.sqlite.store import SqliteStore
from penstock.testing.clock import ManualClock
from tests.contract.databases import SqliteDatabase, count
from tests.contract.support import new

UNUSED_SERVER = "postgresql://nobody@localhost:1/none"


@pytest.fixture
def store(sqlite: SqliteDatabase, clock: ManualClock) -> Iterator[Store]:
    store = sqlite.open(clock)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def connection(sqlite: SqliteDatabase, store: Store) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(sqlite.path)) as connection:
        yield connection


@pytest.fixture(autouse=True)
def nothing_was_written(sqlite: SqliteDatabase, store: Store) -> Iterator[None]:
    yield
    assert [count(sqlite, table) for table in ("task_executions", "execution_events")] == [0, 0]


def refuse(store: Store, connection: object) -> str:
    with pytest.raises(ConnectionRefused) as caught:
        store.create_on(connection, [new()])
    assert "Nothing was written." in str(caught.value)
    return str(caught.value)


def arefuse(store: Store, connection: object) -> str:
    with pytest.raises(ConnectionRefused) as caught:
        asyncio.run(_enqueue(store, connection))
    assert "Nothing was written." in str(caught.value)
    return str(caught.value)


async def _enqueue(store: Store, connection: object) -> None:
    await store.acreate_on(connection, [new()])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (None, "was given None, which is no connection"),
        ("sqlite:///app.db", "was given a str, which is no connection"),
        (object(), "was given an object, which is no connection"),
        (sqlite3.Connection, "was given a type, which is no connection"),
    ],
)
def test_what_is_no_connection_is_named_and_the_accepted_ones_are_listed(
    store: Store, given: object, says: str
) -> None:
    for message in (refuse(store, given), arefuse(store, given)):
        assert says in message
        assert "Pass a connection of sqlite3, psycopg or asyncpg, or a SQLAlchemy" in message


def test_a_cursor_is_no_connection(store: Store, connection: sqlite3.Connection) -> None:
    assert "was given a sqlite3.Cursor" in refuse(store, connection.cursor())


@pytest.mark.parametrize(
    ("make", "refusal", "says", "next_step"),
    [
        pytest.param(
            lambda: create_engine("sqlite://"),
            refusals.EngineGiven,
            "was given a sqlalchemy.Engine: an engine makes connections",
            "`with engine.begin() as connection:`",
            id="Engine",
        ),
        pytest.param(
            lambda: create_async_engine("sqlite+aiosqlite://"),
            refusals.EngineGiven,
            "was given a sqlalchemy.AsyncEngine: an engine makes connections",
            "`async with engine.begin() as connection:`",
            id="AsyncEngine",
        ),
        pytest.param(
            sessionmaker,
            refusals.SessionMakerGiven,
            "was given a sqlalchemy.sessionmaker, which makes sessions",
            "`with maker.begin() as session:`",
            id="sessionmaker",
        ),
        pytest.param(
            async_sessionmaker,
            refusals.SessionMakerGiven,
            "was given a sqlalchemy.async_sessionmaker, which makes sessions",
            "`async with maker.begin() as session:`",
            id="async_sessionmaker",
        ),
        pytest.param(
            lambda: create_engine("sqlite://").pool,
            refusals.PoolGiven,
            "Pool: a pool lends connections",
            "`with engine.begin() as connection:`",
            id="SQLAlchemy's pool",
        ),
        pytest.param(
            lambda: ConnectionPool(UNUSED_SERVER, open=False),
            refusals.PoolGiven,
            "was given a psycopg_pool.ConnectionPool: a pool lends connections",
            "`with pool.connection() as connection:`",
            id="psycopg's pool",
        ),
        pytest.param(
            lambda: AsyncConnectionPool(UNUSED_SERVER, open=False),
            refusals.PoolGiven,
            "was given a psycopg_pool.AsyncConnectionPool: a pool lends connections",
            "`async with pool.connection() as connection:`",
            id="psycopg's async pool",
        ),
    ],
)
def test_what_only_makes_or_lends_connections_is_refused_with_the_way_to_get_one(
    store: Store, make: Callable[[], object], refusal: type, says: str, next_step: str
) -> None:
    given = make()
    for call in (store.create_on, lambda *args: asyncio.run(store.acreate_on(*args))):
        with pytest.raises(refusal) as caught:
            call(given, [new()])
        assert isinstance(caught.value, ConnectionRefused)
        assert isinstance(caught.value, TypeError)
        assert says in str(caught.value)
        assert next_step in str(caught.value)


def test_asyncpgs_pool_is_refused_with_the_way_to_get_a_connection(store: Store) -> None:
    async def enqueue_on_a_pool() -> None:
        await store.acreate_on(asyncpg.create_pool(UNUSED_SERVER), [new()])

    with pytest.raises(refusals.PoolGiven) as caught:
        asyncio.run(enqueue_on_a_pool())

    assert "async with pool.acquire() as connection, connection.transaction()" in str(caught.value)


def test_a_refusal_is_one_of_our_errors() -> None:
    assert issubclass(ConnectionRefused, PenstockError)


def test_a_closed_connection_is_refused(store: Store, connection: sqlite3.Connection) -> None:
    connection.close()

    assert "This sqlite3.Connection is closed." in refuse(store, connection)


def test_a_connection_of_another_thread_is_refused(
    store: Store, connection: sqlite3.Connection
) -> None:
    messages: list[str] = []
    thread = threading.Thread(target=lambda: messages.append(refuse(store, connection)))
    thread.start()
    thread.join()

    (message,) = messages
    assert "was made by another thread" in message
    assert "check_same_thread=False" in message


def test_autocommit_without_a_transaction_is_refused(sqlite: SqliteDatabase, store: Store) -> None:
    with closing(sqlite3.connect(sqlite.path, isolation_level=None)) as connection:
        message = refuse(store, connection)
        assert not connection.in_transaction

    assert "is in autocommit mode with no transaction open" in message
    assert "Execute BEGIN first" in message


if sys.version_info >= (3, 12):  # which added the attribute

    def test_the_autocommit_attribute_is_refused_too(sqlite: SqliteDatabase, store: Store) -> None:
        with closing(sqlite3.connect(sqlite.path, autocommit=True)) as connection:
            assert "is in autocommit mode with no transaction open" in refuse(store, connection)


def test_a_database_without_our_tables_is_refused(store: Store, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        message = refuse(store, connection)
        assert not connection.in_transaction

    assert "leads to a database without Penstock tables" in message


def test_a_table_of_somebody_elses_under_our_name_is_not_ours(store: Store, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER)")

        assert "leads to a database without Penstock tables" in refuse(store, connection)


def test_the_database_of_another_app_is_refused(store: Store, tmp_path: Path) -> None:
    other = SqliteDatabase(tmp_path / "other.db")
    others = other.open()
    others.migrate()
    others.close()

    with closing(sqlite3.connect(other.path)) as connection:
        message = refuse(store, connection)
        assert not connection.in_transaction

    assert "leads to another database than the app's" in message
    assert str(other.path) in message
    assert count(other, "task_executions") == 0


def test_a_copy_of_our_file_is_another_database(
    store: Store, sqlite: SqliteDatabase, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(sqlite.path)) as ours, closing(sqlite3.connect(copy)) as theirs:
        ours.backup(theirs)

    with closing(sqlite3.connect(copy)) as connection:
        assert "leads to another database than the app's" in refuse(store, connection)


def test_tables_that_are_missing_are_made_in_the_callers_transaction(tmp_path: Path) -> None:
    """The first use of an app may be inside a transaction that has the only write lock."""
    path = tmp_path / "new.db"
    store = SqliteStore(path, busy_timeout=0.5)
    for end in ("rollback", "commit"):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER)")
            connection.execute("INSERT INTO orders VALUES (1)")
            for _ in range(2):
                (created,) = store.create_on(connection, [new()])
                assert created.created
            getattr(connection, end)()

    assert store.counts()[State.READY] == 2
    store.close()


def test_a_refusal_for_the_tables_leaves_no_transaction_open(tmp_path: Path) -> None:
    """Whoever did not begin it would not end it, and nobody else could write to the file."""
    path = tmp_path / "crowded.db"
    with closing(sqlite3.connect(path)) as connection, closing(SqliteStore(path)) as store:
        connection.execute("CREATE TABLE workers (name TEXT)")
        with pytest.raises(SchemaError, match="workers"):
            store.create_on(connection, [new()])
        assert not connection.in_transaction

        connection.execute("INSERT INTO workers VALUES ('ada')")
        with pytest.raises(SchemaError, match="workers"):
            store.create_on(connection, [new()])
        connection.commit()
        assert connection.execute("SELECT name FROM workers").fetchall() == [("ada",)]


def test_a_refusal_leaves_the_callers_own_transaction_alone(store: Store, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        connection.execute("INSERT INTO orders VALUES (1)")
        refuse(store, connection)
        connection.commit()

        assert connection.execute("SELECT id FROM orders").fetchall() == [(1,)]


def test_a_plain_connection_cannot_be_awaited(store: Store, connection: sqlite3.Connection) -> None:
    message = arefuse(store, connection)

    assert "A sqlite3.Connection cannot be awaited" in message
    assert "`task.using(connection=…).enqueue(…)`" in message


def test_an_async_connection_has_to_be_awaited(sqlite: SqliteDatabase, store: Store) -> None:
    connection = create_async_engine(f"sqlite+aiosqlite:///{sqlite.path}").connect()

    message = refuse(store, connection)

    assert "has to be awaited" in message
    assert ".aenqueue(…)`" in message


@pytest.mark.parametrize("where", ["engine", "connection"])
def test_sqlalchemys_autocommit_is_refused(
    sqlite: SqliteDatabase, store: Store, where: str
) -> None:
    engine = create_engine(f"sqlite:///{sqlite.path}", poolclass=NullPool)
    options = {"isolation_level": "AUTOCOMMIT"}
    engine = engine.execution_options(**options) if where == "engine" else engine
    with engine.connect() as connection:
        if where == "connection":
            connection = connection.execution_options(**options)  # noqa: PLW2901
        message = refuse(store, connection)

    assert "is in autocommit mode" in message


def test_an_engine_made_for_autocommit_is_refused(sqlite: SqliteDatabase, store: Store) -> None:
    engine = create_engine(
        f"sqlite:///{sqlite.path}", poolclass=NullPool, isolation_level="AUTOCOMMIT"
    )
    with Session(engine) as session:
        assert "This sqlalchemy.Session is in autocommit mode" in refuse(store, session)


def test_an_application_that_emits_begin_itself_is_not_in_autocommit(
    sqlite: SqliteDatabase, store: Store
) -> None:
    """SQLAlchemy's documents recommend it, because the driver begins too late for savepoints."""
    engine = create_engine(f"sqlite:///{sqlite.path}", poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def let_us_begin(connection: sqlite3.Connection, record: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    with engine.connect() as connection:
        store.create_on(connection, [new()])
        assert connection.execute(text("SELECT count(*) FROM task_executions")).scalar() == 1
        connection.rollback()


def test_a_driver_that_we_do_not_know_is_named(sqlite: SqliteDatabase, store: Store) -> None:
    engine = create_engine(f"sqlite:///{sqlite.path}", poolclass=NullPool)
    engine.dialect.driver = "somebody_elses"
    with engine.connect() as connection:
        message = refuse(store, connection)

    assert "works through the driver 'somebody_elses'" in message
    assert "psycopg, psycopg2, asyncpg, pysqlite, aiosqlite" in message


def test_a_session_that_cannot_find_its_engine_says_so(store: Store) -> None:
    message = refuse(store, Session())

    assert "This sqlalchemy.Session gives no connection" in message
    assert "Pass a SQLAlchemy Connection" in message


def test_a_session_that_was_closed_for_good_is_refused(
    sqlite: SqliteDatabase, store: Store
) -> None:
    session = Session(create_engine(f"sqlite:///{sqlite.path}"), close_resets_only=False)
    session.close()

    assert "permanently closed" in refuse(store, session)


def test_a_closed_connection_of_sqlalchemy_is_refused(sqlite: SqliteDatabase, store: Store) -> None:
    connection = create_engine(f"sqlite:///{sqlite.path}", poolclass=NullPool).connect()
    connection.close()

    assert "This sqlalchemy.Connection is closed." in refuse(store, connection)


def test_an_async_connection_that_was_never_opened_is_refused(
    sqlite: SqliteDatabase, store: Store
) -> None:
    message = arefuse(store, create_async_engine(f"sqlite+aiosqlite:///{sqlite.path}").connect())

    assert "it has not been opened yet" in message


@pytest.mark.postgres
def test_a_connection_to_postgresql_is_refused(store: Store, postgres_url: str) -> None:
    url = postgres_url.replace("postgresql:", "postgresql+psycopg:")
    with create_engine(url, poolclass=NullPool).connect() as connection:
        message = refuse(store, connection)

    assert "speaks PostgreSQL, and this app keeps its tasks in SQLite" in message
