from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.audit import complaints
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sqlite(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "penstock.db")


@pytest.fixture
def postgres(postgres_url: str, postgres_schema: str) -> PostgresDatabase:
    return PostgresDatabase(postgres_url, postgres_schema)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> Database:
    """SQLite, then PostgreSQL: what a test promises, it promises for both."""
    database: Database = request.getfixturevalue(request.param)
    return database


@pytest.fixture
def store(database: Database, clock: ManualClock) -> Iterator[Store]:
    store = database.open(clock)
    store.migrate()
    yield store
    store.close()


@pytest.fixture(autouse=True)
def audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test did, it left the tables consistent."""
    databases: list[Database] = [
        request.getfixturevalue(name)
        for name in ("database", "sqlite", "postgres")
        if name in request.fixturenames
    ]
    yield
    for database in databases:
        assert complaints(database) == []
