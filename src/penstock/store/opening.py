"""From a URL to a store; the driver is imported only when it is needed."""

from penstock.errors import PenstockError, StoreError
from penstock.model.clock import Clock
from penstock.store.contract import Store


class InvalidDatabaseUrl(PenstockError, ValueError):
    """A URL that names no database that we can use."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        super().__init__(
            f"A database URL that begins with {scheme!r} is not one of ours. Write "
            '"sqlite:///file.db", "sqlite:///:memory:" or "postgresql://user@host/database".'
        )


class DriverMissing(StoreError):
    """The driver for this database is not installed."""

    def __init__(self, database: str, extra: str, *, because: ImportError) -> None:
        self.database = database
        self.extra = extra
        super().__init__(
            f"{database} needs a driver that is not installed ({because}). "
            f'Install it with `pip install "penstock[{extra}]"`; or, if you meant another '
            "database, name it with --database, PENSTOCK_DATABASE_URL or in penstock.toml, "
            "for example sqlite:///orders.db."
        )


def open_store(
    url: str,
    *,
    schema: str = "penstock",
    notify: bool = True,
    listen_url: str = "",
    clock: Clock | None = None,
) -> Store:
    """Make the store that `url` names. Nothing is connected yet."""
    # Not urlsplit: it stumbles over characters in a password, and quotes them.
    scheme, colon, rest = url.partition("://")
    match scheme:
        case "sqlite":
            from penstock.store.sqlite.store import SqliteStore  # noqa: PLC0415 - only when used

            return SqliteStore(sqlite_path(url), clock=clock)
        case "postgresql" | "postgres":
            try:
                from penstock.store.postgres.store import PostgresStore  # noqa: PLC0415
            except ImportError as error:
                where = f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
                raise DriverMissing(where, "postgres", because=error) from error
            return PostgresStore(
                url, schema=schema, clock=clock, notify=notify, listen_url=listen_url or None
            )
        case _:
            raise InvalidDatabaseUrl(scheme if colon else "")


def sqlite_url(path: str) -> str:
    """Return the URL of a file, whatever characters are in its name."""
    from urllib.parse import quote  # noqa: PLC0415 - only when used

    return f"sqlite:///{quote(path, errors='surrogateescape')}"


def sqlite_path(url: str) -> str:
    """`sqlite:///name` is relative, `sqlite:////name` absolute, `sqlite:///:memory:` in memory."""
    from urllib.parse import unquote  # noqa: PLC0415 - only when used

    quoted = url.removeprefix("sqlite://").split("?")[0]
    path = unquote(quoted, errors="surrogateescape")  # a name need not be text
    return path.removeprefix("/") or ":memory:"
