import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store import low_water
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.audit import complaints
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase


@pytest.fixture(autouse=True)
def every_scan_is_thorough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Low-water marks may hide a place in the outbox for a while; the tests are about order.

    `test_low_water.py` lets the marks last, and shows that they lose nothing.
    """
    monkeypatch.setattr(low_water, "RESCAN_EVERY", 0)
    monkeypatch.setattr(low_water, "RESCAN_SHARE", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sqlite(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "penstock.db")


@pytest.fixture
def postgres(postgres_url: str, postgres_schema: str) -> Iterator[PostgresDatabase]:
    """A schema of its own, for tests that want it new or look at its locks."""
    database = PostgresDatabase(postgres_url, postgres_schema)
    yield database
    database.close()


@pytest.fixture(scope="session")
def migrated_postgres(postgres_url: str) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(postgres_url, f"penstock_test_{uuid.uuid4().hex[:12]}")
    store = database.open()
    store.migrate()
    store.close()
    yield database
    database.query(f"DROP SCHEMA {database.schema} CASCADE")
    database.close()


@pytest.fixture
def emptied_postgres(migrated_postgres: PostgresDatabase) -> Iterator[PostgresDatabase]:
    """Tables that were made once and are empty now: making them takes longer than most tests."""
    yield migrated_postgres
    migrated_postgres.empty()


@pytest.fixture(
    params=["sqlite", pytest.param("emptied_postgres", id="postgres", marks=pytest.mark.postgres)]
)
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
