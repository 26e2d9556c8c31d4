"""How a connection to a SQLite file is opened, what we wait for, and what its errors mean."""

import random
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from penstock.errors import (
    FileMisplaced,
    NotSqlite,
    PenstockError,
    StoreBusy,
    StoreError,
    StoreRefused,
    StoreTakesNoWrites,
    StoreUnavailable,
)
from penstock.store.sql import Statement

T = TypeVar("T")
C = TypeVar("C", bound=sqlite3.Connection)

CACHED_STATEMENTS = 512
LONGEST_PAUSE = 0.01

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_NO_ANSWER = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_NO_WRITES = {
    sqlite3.SQLITE_FULL: "Make room on its disk",
    sqlite3.SQLITE_READONLY: (
        "Look whether the file is still there, and whether this user may write to it and to its "
        "directory"
    ),
}


class Writer(sqlite3.Connection):
    """A connection with a cursor at hand: to make one takes as long as a short statement."""

    hand: sqlite3.Cursor


def open_reader(path: str, *, busy_timeout: float) -> sqlite3.Connection:
    connection = _connect(path, timeout=busy_timeout, kind=sqlite3.Connection)
    connection.execute("PRAGMA query_only = ON")
    return connection


def open_writer(path: str, *, busy_timeout: float, prepare: Iterable[Statement] = ()) -> Writer:
    # No timeout of SQLite's own: its pauses grow to a tenth of a second, ours do not.
    connection = _connect(path, timeout=0, kind=Writer)
    try:
        _first(connection, "PRAGMA journal_mode = WAL", path, busy_timeout)
        # What has been committed survives a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        # What a statement would undo if it failed need not go through a file.
        connection.execute("PRAGMA temp_store = MEMORY")
        # Four times what it is by itself: a batch of hundreds changes as many pages.
        connection.execute("PRAGMA cache_size = -8000")
        # Half of what it is by itself, or fifty executions: a commit that makes the log longer
        # takes half as long again as one that writes over what is there.
        connection.execute("PRAGMA wal_autocheckpoint = 500")
        # They are for those who write by hand: to compare the state of every row with eight words,
        # which we know to be one of them, would take a twelfth of a worker's time here.
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in prepare:
            _first(connection, statement.sql, path, busy_timeout)
        connection.hand = connection.cursor()
    except BaseException:
        connection.close()
        raise
    return connection


def _first(connection: sqlite3.Connection, sql: str, path: str, timeout: float) -> None:
    patiently(lambda: connection.execute(sql), doing=f"open {path}", timeout=timeout)


def keep_long_log(writer: sqlite3.Connection) -> None:
    """Let the log grow to 16 MB before it is written back, instead of 2.

    For a worker's batches: the pages that all of them change are then written back once instead
    of after each of them. For single writes it would not pay.
    """
    writer.execute("PRAGMA wal_autocheckpoint = 4000")


def _connect(path: str, *, timeout: float, kind: type[C]) -> C:
    return sqlite3.connect(
        path,
        timeout=timeout,
        isolation_level=None,  # transactions begin and end where we say so
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
        factory=kind,
    )


def patiently(attempt: Callable[[], T], *, doing: str, timeout: float) -> T:
    """Try again while another connection has the lock; raise StoreBusy after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    pause = 0.0002
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if time.monotonic() >= deadline:
                raise StoreBusy(doing, waited=timeout, because=error) from error
        # At random, so that processes that wait for each other do not stay in step.
        time.sleep(random.uniform(0, pause))  # noqa: S311
        pause = min(2 * pause, LONGEST_PAUSE)


def meaning(error: BaseException, *, doing: str, path: str, waited: float) -> BaseException:
    """Return what an error from SQLite means to the caller of the store.

    Mistakes in our own SQL mean nothing to callers, and stay what they are.
    """
    meant: StoreError
    match error:
        case StoreBusy():
            # Whoever led the group met it; each of the group was doing something of its own.
            meant = StoreBusy(doing, waited=error.waited, because=error)
        case PenstockError():
            return error
        case (
            sqlite3.DataError() | sqlite3.IntegrityError() | OverflowError() | UnicodeEncodeError()
        ):
            meant = StoreRefused(doing, because=error)
        case Exception() if is_busy(error):
            meant = StoreBusy(doing, waited=waited, because=error)
        case Exception() if instead := _NO_WRITES.get(_code(error)):
            meant = StoreTakesNoWrites(f"{doing} in {path}", instead=instead, because=error)
        case Exception() if _code(error) in _NO_ANSWER:
            meant = _misplaced(path, error) or StoreUnavailable(f"{doing} in {path}", because=error)
        case Exception():
            return error
        case _:
            meant = StoreUnavailable(doing, because=error)
    meant.__cause__ = error
    return meant


def _misplaced(path: str, error: BaseException) -> StoreError | None:
    if _code(error) == sqlite3.SQLITE_NOTADB:
        return NotSqlite(path, because=error)
    if _code(error) != sqlite3.SQLITE_CANTOPEN:
        return None
    directory = Path(path).absolute().parent
    if Path(path).is_dir():
        why, instead = "that is a directory", "Name a file in it"
    elif not directory.exists():
        why = f"the directory {directory} does not exist"
        instead = (
            "Make the directory, or correct the URL: three slashes before a path from the "
            "current directory, four before an absolute one"
        )
    elif not directory.is_dir():
        why, instead = f"{directory} is no directory", "Name a file in a directory"
    else:
        return None
    return FileMisplaced(path, why=why, instead=instead, because=error)


def is_busy(error: BaseException) -> bool:
    """Whether another connection has the lock."""
    return _code(error) in _BUSY


def _code(error: BaseException) -> int:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return sqlite3.SQLITE_OK if code is None else code & 0xFF
