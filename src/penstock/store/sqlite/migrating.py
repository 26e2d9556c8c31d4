"""Bringing a SQLite file to this version. It happens by itself, on the first use."""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

from penstock.errors import SchemaError
from penstock.store.batches import encode_strings
from penstock.store.migrations import Applied, Migration, load_migrations, missing
from penstock.store.scripts import Script, Step
from penstock.store.sql import Statement

PACKAGE = "penstock.store.sqlite"

_CREATED = re.compile(r"^CREATE (?:TABLE|(?:UNIQUE )?INDEX) (\w+)", re.MULTILINE)
_OUR_COLUMNS = {"version", "checksum", "min_compatible", "database_id"}


class TablesTaken(SchemaError):
    """The file has tables with our names that are not ours."""

    def __init__(self, where: str, *, tables: Sequence[str]) -> None:
        self.where = where
        self.tables = tuple(tables)
        super().__init__(
            f"There are no Penstock tables in {where}, but others with names that Penstock needs: "
            f"{', '.join(self.tables)}. Nothing was created. Give Penstock a file of its own."
        )


def shipped() -> tuple[Migration, ...]:
    return load_migrations(PACKAGE)


def applied(statements: Mapping[str, Statement]) -> Script[list[Applied]]:
    """Return the migrations that have run; none when there are no tables of ours."""
    columns = {row[0] for row in (yield Step(statements["columns_of_schema_version"], {}))}
    # Other programs have a table of this name too.
    if not columns >= _OUR_COLUMNS:
        return []
    return [Applied(*row) for row in (yield Step(statements["versions"], {}))]


def migrate(statements: Mapping[str, Statement], *, where: str, now: int) -> Script[list[int]]:
    """Run what is missing, on our connection or in a caller's transaction.

    Needs the write lock, so another process waits and finds nothing to do.
    """
    done = yield from applied(statements)
    to_run = missing(shipped(), done, where=where)
    if not done:
        yield from _refuse_taken_names(statements, to_run, where=where)
    database_id = done[0].database_id if done else str(uuid4())
    for migration in to_run:
        for sql in _statements_of(migration):
            yield Step(Statement(migration.name, sql), {})
        yield Step(
            statements["record_migration"],
            {
                "version": migration.version,
                "name": migration.name,
                "checksum": migration.checksum,
                "min_compatible": migration.min_compatible,
                "database_id": database_id,
                "now": now,
            },
        )
    return [migration.version for migration in to_run]


def _refuse_taken_names(
    statements: Mapping[str, Statement], migrations: Sequence[Migration], *, where: str
) -> Script[None]:
    names = [name for migration in migrations for name in _CREATED.findall(migration.sql)]
    rows = yield Step(statements["taken_names"], {"names": encode_strings(names)})
    if rows:
        raise TablesTaken(where, tables=[row[0] for row in rows])


def _statements_of(migration: Migration) -> Iterator[str]:
    """Split a migration: `executescript` would commit before it begins."""
    statement = ""
    for line in migration.sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
