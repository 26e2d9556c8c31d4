"""What ANALYZE has stored about our tables is removed.

It may have seen them almost empty. For such tables newer versions of SQLite use no index, and go on
so when there are millions of rows; without statistics every statement of ours enters by an index.
ANALYZE may come at any time, and `PRAGMA optimize` runs it: so workers look for it now and then.
"""

import sqlite3
from contextlib import suppress
from uuid import uuid4

GROWING = ("task_executions", "workflow_executions", "task_outbox", "execution_events")

_ABOUT_OURS = f"tbl IN ({', '.join(map(repr, GROWING))})"


def forget(connection: sqlite3.Connection) -> None:
    """Remove it, in the transaction that is open, and have all connections notice."""
    stored = _stored(connection)
    if not stored:
        return
    for table in stored:
        connection.execute(f"DELETE FROM {table} WHERE {_ABOUT_OURS}")  # noqa: S608
    # Other connections read statistics again when the schema changes; this one, when it is told.
    nothing = f"penstock_{uuid4().hex}"
    connection.execute(f"CREATE TABLE {nothing} (id INTEGER)")
    connection.execute(f"DROP TABLE {nothing}")
    connection.execute("ANALYZE sqlite_schema")


def _stored(connection: sqlite3.Connection) -> list[str]:
    """Return the tables of SQLite's own that say something about ours."""
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE name IN ('sqlite_stat1', 'sqlite_stat4')"
    ).fetchall()
    stored = []
    for (table,) in tables:
        # They can be damaged, by hand at least, and nobody's work depends on them.
        with suppress(sqlite3.OperationalError):
            select = f"SELECT tbl FROM {table} WHERE {_ABOUT_OURS} LIMIT 1"  # noqa: S608
            if connection.execute(select).fetchall():
                stored.append(table)
    return stored
