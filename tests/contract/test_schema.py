import pytest

from penstock.errors import SchemaAhead, SchemaChanged
from penstock.store.contract import Store
from tests.contract.databases import Database, count
from tests.contract.support import enqueue, get


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> Database:
    """Tables that nobody else has: these tests change the versions that they carry."""
    database: Database = request.getfixturevalue(request.param)
    return database


def test_migrating_again_does_nothing(store: Store, database: Database) -> None:
    task_id = enqueue(store)

    assert store.migrate() == []

    store.check_schema()
    assert get(store, task_id).id == task_id


def test_every_migration_is_recorded_with_the_id_of_the_database(
    store: Store, database: Database
) -> None:
    store.check_schema()
    other = database.open()
    try:
        assert other.migrate() == []
    finally:
        other.close()

    ((databases,),) = database.query("SELECT count(DISTINCT database_id) FROM schema_version")
    assert databases == 1
    assert count(database, "schema_version") >= 1


def _add_version(database: Database, *, min_compatible: int) -> None:
    """Record a migration of a later release, as it would have done itself."""
    database.query(
        "INSERT INTO schema_version"
        " (version, name, checksum, min_compatible, database_id, applied_at)"
        " SELECT version + 1000, 'future', 'x', :least, database_id, applied_at"
        " FROM schema_version ORDER BY version DESC LIMIT 1",
        {"least": min_compatible},
    )


def test_tables_that_are_too_new_are_refused(store: Store, database: Database) -> None:
    _add_version(database, min_compatible=1001)
    later = database.open()
    try:
        with pytest.raises(SchemaAhead):
            later.check_schema()
    finally:
        later.close()


def test_newer_tables_that_say_they_are_compatible_are_taken(
    store: Store, database: Database
) -> None:
    _add_version(database, min_compatible=1)
    later = database.open()
    try:
        later.check_schema()
        enqueue(later)
    finally:
        later.close()


def test_tables_made_by_a_changed_copy_are_refused(store: Store, database: Database) -> None:
    database.query("UPDATE schema_version SET checksum = 'changed'")
    later = database.open()
    try:
        with pytest.raises(SchemaChanged):
            later.check_schema()
    finally:
        later.close()
