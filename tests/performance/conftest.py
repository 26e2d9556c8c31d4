import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

from penstock.store.contract import Store
from tests.contract.databases import (
    ONLY_ON_POSTGRES,
    TABLES,
    Database,
    PostgresDatabase,
    SqliteDatabase,
)

MakeDatabase = Callable[[], Database]

MEASURED = "measured"


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[float], None]:
    """Shows what a test has measured at the end of the run, whether it passed or not."""
    # With the report, which also arrives from another process of the run.
    return lambda figure: request.node.user_properties.append((MEASURED, figure))


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    figures = {
        report.nodeid.rpartition("::")[2]: figure
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, figure in getattr(report, "user_properties", ())
        if name == MEASURED
    }
    if figures:
        terminalreporter.section("measured")
        for name, figure in figures.items():
            terminalreporter.line(f"{figure:5.2f}  {name}")


@pytest.fixture(scope="module")
def make_postgres(postgres_url: str) -> Iterator[Callable[[], PostgresDatabase]]:
    """Makes databases with empty tables, which nobody tidies up or counts behind a test's back."""
    made: list[PostgresDatabase] = []

    def make() -> PostgresDatabase:
        database = PostgresDatabase(postgres_url, f"penstock_test_{uuid.uuid4().hex[:12]}")
        made.append(database)
        store = database.open()
        store.migrate()
        store.close()
        for table in TABLES + ONLY_ON_POSTGRES:
            database.query(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        return database

    yield make
    for database in made:
        database.query(f"DROP SCHEMA IF EXISTS {database.schema} CASCADE")
        database.close()


@pytest.fixture(scope="module")
def make_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], SqliteDatabase]:
    def make() -> SqliteDatabase:
        path: Path = tmp_path_factory.mktemp("sqlite") / "penstock.db"
        database = SqliteDatabase(path)
        store = database.open()
        store.migrate()
        store.close()
        return database

    return make


@pytest.fixture(
    scope="module",
    params=["make_sqlite", pytest.param("make_postgres", marks=pytest.mark.postgres)],
    ids=["sqlite", "postgres"],
)
def make_database(request: pytest.FixtureRequest) -> MakeDatabase:
    """Makes databases with empty tables: SQLite files, then PostgreSQL schemas."""
    make: MakeDatabase = request.getfixturevalue(request.param)
    return make


@pytest.fixture
def database(make_database: MakeDatabase) -> Database:
    return make_database()


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    store = database.open()
    yield store
    store.close()
