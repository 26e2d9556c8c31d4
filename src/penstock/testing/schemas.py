"""A PostgreSQL schema of a test's own."""

from penstock.errors import PenstockError

CONNECTED_WITHIN = 5  # seconds
_PATIENCE = "5s"
_LONGEST_ANSWER = 20.0  # of a server that may have been stopped or cut off


class SchemaInUse(PenstockError):
    """A test has ended with a transaction open that it began."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        super().__init__(
            f"The schema {schema!r} of a ManualApp could not be dropped: a transaction that used "
            "it is still open. Commit it, roll it back or close its connection before the "
            "ManualApp's block ends."
        )


def drop_schema(url: str, schema: str) -> None:
    """Drop it with all that it holds.

    Raises:
        SchemaInUse: somebody has a transaction open that used it.
    """
    # An extra: there is no driver where only SQLite is used.
    from psycopg import errors, sql  # noqa: PLC0415

    from penstock.store.postgres.deadlines import WatchedConnection  # noqa: PLC0415

    with WatchedConnection.connect(
        url, autocommit=True, connect_timeout=CONNECTED_WITHIN
    ) as connection:
        connection.patience = _LONGEST_ANSWER
        # Not IF EXISTS, which is an error too where nothing may be written.
        its_name = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema])
        if its_name.fetchone() is None:
            return
        connection.execute(sql.SQL("SET lock_timeout = {}").format(_PATIENCE))
        dropping = sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema))
        try:
            connection.execute(dropping)
        except errors.LockNotAvailable as error:
            raise SchemaInUse(schema) from error
