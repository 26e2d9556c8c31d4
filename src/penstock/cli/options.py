"""Which database a command works on: `--database` over the environment over penstock.toml."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.app import App
from penstock.engine.requests import checked_text
from penstock.errors import FileMisplaced, StoreError, StoreUnavailable, first_line
from penstock.settings import Settings, hide_password, load_settings
from penstock.store.contract import Store
from penstock.store.opening import open_store, sqlite_path

CONNECT_TIMEOUT = 5  # seconds; a person is waiting
INSUFFICIENT_PRIVILEGE = "42501"  # as PostgreSQL writes it
_REFUSED = "unsupported startup parameter"  # as PgBouncer writes it
# As PostgreSQL writes it, and PgBouncer; there is no code for it where a connection is refused.
_FULL = ("too many c", "connection slots", "no more connections allowed")

Command = Callable[..., Any]


class NoSuchFile(StoreError):
    """A SQLite file that does not exist, named to be read."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"There is no SQLite file {path!r}, so there is nothing to look at. Check the URL; "
            "`penstock admin migrate` makes a new file."
        )


class NothingInMemory(StoreError):
    """A database in memory, which no other process can see."""

    def __init__(self) -> None:
        super().__init__(
            "A database in memory is seen by its own process alone, so a command would find an "
            "empty one. Name a file, as in `sqlite:///orders.db`, or a PostgreSQL database."
        )


class NoAnswer(StoreUnavailable):
    """Nothing was asked of the database yet: it cannot be reached at all."""

    def __init__(self, url: str, *, because: BaseException) -> None:
        super().__init__("connect", because=because)
        self.url = hide_password(url)
        told = first_line(because)
        if any(words in told for words in _FULL):
            sentence = (
                f"The database {self.url} takes no more connections: {told}. Close some that "
                "nobody needs, or let the server allow more."
            )
        else:
            sentence = (
                f"The database {self.url} does not answer: {told}. Check the URL, and whether the "
                "server runs."
            )
        self.args = (sentence,)


class FileForbidden(StoreError):
    """A SQLite file that this user may not use as a database must be used."""

    def __init__(self, path: str, because: str) -> None:
        self.path = path
        self.because = because
        super().__init__(
            f"The SQLite file {path!r} cannot be used: {because}. Run the command as the user "
            "whose workers use it, or have the permissions changed."
        )


class RoleForbidden(StoreError):
    """A PostgreSQL role without the rights on our tables."""

    def __init__(self, url: str, *, to_migrate: bool, because: BaseException) -> None:
        self.url = hide_password(url)
        next_step = (
            "Only the owner of the tables can change them: use that role, or one that may create "
            "a schema if there are none yet."
            if to_migrate
            else "Let the owner of the tables grant it what "
            "docs/how-to/operate/grant-privileges.md lists, or use a role that has it."
        )
        super().__init__(
            f"The role that {self.url} names may not do this: {first_line(because)}. {next_step}"
        )


class PoolerRefuses(StoreError):
    """A pooler that does not let connections ask for what ours need."""

    def __init__(self, url: str, *, because: BaseException) -> None:
        self.url = hide_password(url)
        told = first_line(because)
        super().__init__(
            f"The pooler at {self.url} refuses our connections: {told[told.find(_REFUSED) :]}. "
            "Write `ignore_startup_parameters = options` in pgbouncer.ini, and give the role the "
            "settings that docs/how-to/operate/run-behind-pgbouncer.md lists; or name the server "
            "itself."
        )


class NoDatabaseNamed(StoreError):
    """Nobody named a database, and the default one does not answer."""

    def __init__(self, url: str, *, because: StoreUnavailable) -> None:
        self.url = hide_password(url)
        super().__init__(
            f"No database was named, and the default, {self.url}, does not answer "
            f"({first_line(because.__cause__ or because)}). Pass --database URL, set "
            "PENSTOCK_DATABASE_URL, or write `url` below [database] in penstock.toml."
        )


class DatabaseOptions(msgspec.Struct, frozen=True):
    """The database as the command line names it; None leaves it to the settings."""

    url: str | None = None
    schema: str | None = None

    def settings(self) -> Settings:
        return load_settings(
            command_line={"database.url": self.url, "database.schema": self.schema}
        )

    @contextmanager
    def opened(self) -> Iterator[Store]:
        """Open what exists already. PostgreSQL is not migrated; SQLite migrates itself.

        Raises:
            StoreError: there is nothing there, it does not answer, or its tables do not fit.
        """
        with self._open(must_exist=True) as store:
            store.check_schema()
            yield store

    @contextmanager
    def opened_to_migrate(self) -> Iterator[Store]:
        """Open a database that may have no tables yet, or a file that is not there yet."""
        with self._open(must_exist=False) as store:
            yield store

    @contextmanager
    def opened_to_inspect(self, settings: Settings) -> Iterator[Store]:
        """Open what these settings name, whatever state its tables are in."""
        with self._open(must_exist=True, settings=settings) as store:
            yield store

    @contextmanager
    def _open(self, *, must_exist: bool, settings: Settings | None = None) -> Iterator[Store]:
        settings = settings or self.settings()
        database = settings.database
        with default_explained(settings):
            if database.url.startswith("sqlite:"):
                _refuse_nothing(sqlite_path(database.url), must_exist=must_exist)
            else:
                _refuse_silence(database.url)
        store = open_store(
            database.url,
            schema=database.schema,
            notify=database.notify,
            listen_url=database.listen_url,
        )
        try:
            with _cause_named(database.url, to_migrate=not must_exist):
                yield store
        finally:
            store.close()

    def configure(self, app: App) -> None:
        """Let an App use this database, whatever it was made with."""
        if self.url is not None or self.schema is not None:
            app.configure(database=self.url, schema=self.schema)


@contextmanager
def default_explained(settings: Settings) -> Iterator[None]:
    """Say what a person can do about a database that does not do what was asked.

    Also where the URL came from, if nobody has written one and nothing answers there.
    """
    try:
        with _cause_named(settings.database.url):
            yield
    except StoreUnavailable as error:
        if settings.source_of("database.url") != "default":
            raise
        raise NoDatabaseNamed(settings.database.url, because=error) from error


def _refuse_nothing(path: str, *, must_exist: bool) -> None:
    if path == ":memory:":
        raise NothingInMemory
    try:
        exists = Path(path).exists()
    except PermissionError as error:
        raise FileForbidden(path, "its directory may not be looked into") from error
    if must_exist and not exists:
        raise NoSuchFile(path)


@contextmanager
def _cause_named(url: str, *, to_migrate: bool = False) -> Iterator[None]:
    """Say what a person can do about it, where the driver only says that it did not work."""
    try:
        yield
    except StoreUnavailable as error:
        trouble: StoreError | None = None
        if url.startswith("sqlite:"):
            trouble = _trouble_with_file(sqlite_path(url), error)
        elif _REFUSED in str(error.__cause__):
            trouble = PoolerRefuses(url, because=error.__cause__ or error)
        elif isinstance(error.__cause__, ConnectionError):
            trouble = NoAnswer(url, because=error.__cause__)
        if trouble is None:
            raise
        raise trouble from error.__cause__
    except Exception as error:
        if getattr(error, "sqlstate", None) != INSUFFICIENT_PRIVILEGE:
            raise
        raise RoleForbidden(url, to_migrate=to_migrate, because=error) from error


def _trouble_with_file(path: str, error: StoreUnavailable) -> StoreError | None:
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
    if isinstance(error, FileMisplaced) or code not in {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }:
        return None
    directory = Path(path).resolve().parent
    exists = Path(path).exists()
    checks = (
        (exists and not _may(path, os.R_OK), "you may not read it"),
        (exists and not _may(path, os.W_OK), "you may not write to it"),
        (not _may(directory, os.W_OK), f"you may not write to its directory {directory}"),
    )
    return next((FileForbidden(path, because) for is_so, because in checks if is_so), None)


def _may(path: str | Path, what: int) -> bool:
    return os.access(path, what, effective_ids=os.access in os.supports_effective_ids)


def _refuse_silence(url: str) -> None:
    """Ask once: the store's pool would go on asking for half a minute, which suits a worker."""
    try:
        import psycopg  # noqa: PLC0415 - only for PostgreSQL
    except ImportError:
        return  # opening the store says what to install
    try:
        psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT).close()
    except psycopg.Error as error:
        raise NoAnswer(url, because=error) from error


def database_options(command: Command) -> Command:
    """Add --database and --schema, and hand them over as `database`."""

    @wraps(command)
    def with_options(*, database_url: str | None, schema: str | None, **rest: object) -> object:
        return command(database=DatabaseOptions(database_url, schema), **rest)

    database = click.option(
        "--database",
        "database_url",
        metavar="URL",
        help="The database. Otherwise PENSTOCK_DATABASE_URL or penstock.toml says which.",
    )
    schema = click.option("--schema", metavar="NAME", help="The PostgreSQL schema of the tables.")
    return database(schema(with_options))


def storable(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """As the callback of an option: refuse what no database can be asked about."""
    del ctx
    return checked_text(option.opts[0], value)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, in the shape that the reference describes."
)
