"""Which database is at the other end of a caller's connection, asked without leaving a trace."""

from collections.abc import Mapping

from penstock.store.connections.refusals import TablesMissing
from penstock.store.migrations import Applied
from penstock.store.scripts import Script, Step
from penstock.store.sql import Statement

_SAVEPOINT = Step(Statement("savepoint", "SAVEPOINT penstock_check"), {})
_BACK_TO_SAVEPOINT = Step(Statement("back", "ROLLBACK TO SAVEPOINT penstock_check"), {})
_RELEASE = Step(Statement("release", "RELEASE SAVEPOINT penstock_check"), {})

# Changes nothing, and gets the write lock. Reading first would be a mistake: in a transaction
# that began as a read, SQLite does not wait for another writer but fails at once.
_TAKE_WRITE_LOCK = Step(
    Statement("lock", "UPDATE schema_version SET database_id = database_id WHERE false"), {}
)


def database_id_on_postgres(statements: Mapping[str, Statement], kind: str) -> Script[str]:
    """Read the id of the database over a caller's connection, or raise TablesMissing.

    A table that may not be read is an error, and an error ends a transaction: the savepoint
    keeps it alive for the caller.
    """
    yield _SAVEPOINT
    try:
        ((has_tables,),) = yield Step(statements["has_tables"], {})
        rows = (yield Step(statements["versions"], {})) if has_tables else []
    except Exception as error:
        yield _BACK_TO_SAVEPOINT
        yield _RELEASE
        raise TablesMissing(kind, reason=str(error).strip().partition("\n")[0]) from error
    yield _RELEASE
    if not rows:
        raise TablesMissing(kind)
    return Applied(*rows[0]).database_id


def database_id_on_sqlite(statements: Mapping[str, Statement], kind: str) -> Script[str]:
    """Read the id of the database over a caller's connection, or raise TablesMissing."""
    try:
        yield _TAKE_WRITE_LOCK
        rows = yield Step(statements["versions"], {})
    except Exception as error:
        columns = yield Step(statements["columns_of_schema_version"], {})
        if ("database_id",) in columns:
            raise  # our tables: the lock was taken by others, or the file is read-only
        raise TablesMissing(kind) from error
    if not rows:
        raise TablesMissing(kind)
    return Applied(*rows[0]).database_id
