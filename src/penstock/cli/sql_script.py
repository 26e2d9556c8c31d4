"""The SQL that makes the tables, for someone else to run."""

import re
from collections.abc import Iterator

from penstock.store.migrations import Migration, load_migrations
from penstock.store.sql import in_schema, load_statements

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")

_POSTGRES = "penstock.store.postgres"
_SQLITE = "penstock.store.sqlite"

# All rows of one database carry the same id, and no other database has it.
_POSTGRES_ID = (
    "coalesce((SELECT database_id FROM penstock.schema_version LIMIT 1), gen_random_uuid())"
)
_SQLITE_ID = (
    "coalesce((SELECT database_id FROM schema_version LIMIT 1), lower(hex(randomblob(16))))"
)
_SQLITE_NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000"


def postgres_script(schema: str) -> Iterator[str]:
    statements = load_statements(_POSTGRES, schema=schema)
    yield "BEGIN;"
    yield f"{statements['lock_migrations'].sql};"
    yield f"{statements['create_schema'].sql};"
    for migration in load_migrations(_POSTGRES):
        yield in_schema(migration.sql, schema)
        record = statements["record_migration"].sql
        yield _recorded(record, migration, database_id=in_schema(_POSTGRES_ID, schema))
    yield "COMMIT;"


def sqlite_script() -> Iterator[str]:
    record = load_statements(_SQLITE)["record_migration"].sql
    yield "BEGIN IMMEDIATE;"
    for migration in load_migrations(_SQLITE):
        yield migration.sql
        yield _recorded(record, migration, database_id=_SQLITE_ID, now=_SQLITE_NOW)
    yield "COMMIT;"


def _recorded(record: str, migration: Migration, **expressions: str) -> str:
    values = {
        "version": str(migration.version),
        "name": _literal(migration.name),
        "checksum": _literal(migration.checksum),
        "min_compatible": str(migration.min_compatible),
        **{name: f"({expression})" for name, expression in expressions.items()},
    }
    return _PARAMETER.sub(lambda match: values[match[1]], record) + ";"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
