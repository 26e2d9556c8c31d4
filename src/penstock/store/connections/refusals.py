"""Why a caller's connection cannot carry an execution.

ConnectionRefused
├── NotAConnection               nothing that we know how to write on (a TypeError)
│   ├── EngineGiven              an engine makes connections, and has no transaction itself
│   ├── SessionMakerGiven        so does a sessionmaker
│   └── PoolGiven                and a pool lends them
├── AsyncConnectionGiven         its I/O must be awaited, and the call was not (a TypeError)
├── SyncConnectionGiven          the other way round (a TypeError)
├── DriverUnknown                SQLAlchemy speaks through a driver that we do not know
├── ConnectionClosed
├── ConnectionUnusable           its own library will not let it work
├── ConnectionBusy               in the middle of another command
├── PipelineOpen                 its answers come later than ours has to
├── ConnectionInAutocommit       there is no transaction to be part of
├── TransactionAborted           there is one, and it can only be rolled back
├── OtherThread                  SQLite's connections belong to the thread that made them
├── OtherDialect                 SQLite for an app on PostgreSQL, or the reverse
├── TablesMissing                a database without Penstock's tables
└── OtherDatabase                the tables of another app

Each of them is raised before anything is written.
"""

from penstock.errors import PenstockError

ACCEPTED = (
    "a connection of sqlite3, psycopg or asyncpg, or a SQLAlchemy Connection, Session, "
    "scoped_session, AsyncConnection or AsyncSession"
)


class ConnectionRefused(PenstockError):
    """A caller's connection cannot carry an execution; nothing was written.

    `kind` names what was given, as `library.Class`.
    """

    def __init__(self, kind: str, why: str, *, next_step: str) -> None:
        self.kind = kind
        super().__init__(f"{why} Nothing was written. {next_step}")


class NotAConnection(ConnectionRefused, TypeError):
    """Something that we do not know how to write on."""

    def __init__(self, kind: str, *, why: str | None = None, next_step: str | None = None) -> None:
        super().__init__(
            kind,
            why or f"`connection=` was given {_a(kind)}, which is no connection that we know.",
            next_step=next_step or f"Pass {ACCEPTED}.",
        )


class EngineGiven(NotAConnection):
    """An engine, which has no transaction that an execution could be part of."""

    def __init__(self, kind: str) -> None:
        opening = "async with" if _is_async(kind) else "with"
        super().__init__(
            kind,
            why=f"`connection=` was given {_a(kind)}: an engine makes connections and has no "
            "transaction itself.",
            next_step=f"Open one, `{opening} engine.begin() as connection:`, and pass that.",
        )


class SessionMakerGiven(NotAConnection):
    """A maker of sessions instead of one of its sessions."""

    def __init__(self, kind: str) -> None:
        opening = "async with" if _is_async(kind) else "with"
        super().__init__(
            kind,
            why=f"`connection=` was given {_a(kind)}, which makes sessions and is none itself.",
            next_step=f"Make one, `{opening} maker.begin() as session:`, and pass that.",
        )


class PoolGiven(NotAConnection):
    """A pool instead of one of its connections."""

    def __init__(self, kind: str) -> None:
        if kind.startswith("asyncpg."):
            borrow = "async with pool.acquire() as connection, connection.transaction():"
        elif _is_async(kind):
            borrow = "async with pool.connection() as connection:"
        elif kind.startswith("sqlalchemy."):
            borrow = "with engine.begin() as connection:"
        else:
            borrow = "with pool.connection() as connection:"
        super().__init__(
            kind,
            why=f"`connection=` was given {_a(kind)}: a pool lends connections and has no "
            "transaction itself.",
            next_step=f"Borrow one, `{borrow}`, and pass that.",
        )


class AsyncConnectionGiven(ConnectionRefused, TypeError):
    """An async connection in a call that does not await."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            kind,
            f"{_capital(_a(kind))} has to be awaited, and this call does not.",
            next_step="Use the async twin: `await task.using(connection=…).aenqueue(…)`.",
        )


class SyncConnectionGiven(ConnectionRefused, TypeError):
    """A plain connection in an async call, where it would block the whole loop."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            kind,
            f"{_capital(_a(kind))} cannot be awaited: writing on it would stop the event loop.",
            next_step="Use the plain twin, `task.using(connection=…).enqueue(…)`, in the thread "
            "that uses the connection.",
        )


class DriverUnknown(ConnectionRefused):
    """SQLAlchemy on a driver that we have no way of writing through."""

    def __init__(self, kind: str, *, driver: str, known: str) -> None:
        self.driver = driver
        super().__init__(
            kind,
            f"This {kind} works through the driver {driver!r}, which we do not know.",
            next_step=f"Make its engine with one of {known}.",
        )


class ConnectionClosed(ConnectionRefused):
    """A connection that has been closed, lost, or given back to its pool."""

    def __init__(self, kind: str, *, how: str = "is closed") -> None:
        super().__init__(
            kind, f"This {kind} {how}.", next_step="Pass one that is open, inside its block."
        )


class ConnectionUnusable(ConnectionRefused):
    """A connection or session whose own library refuses to let it work."""

    def __init__(self, kind: str, *, reason: str, next_step: str) -> None:
        self.reason = reason
        super().__init__(kind, f"This {kind} gives no connection: {reason}.", next_step=next_step)


class ConnectionBusy(ConnectionRefused):
    """A connection in the middle of a command, so that its transaction cannot be seen."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            kind,
            f"This {kind} is in autocommit mode and in the middle of another command (a COPY or a "
            "stream), so nobody can tell whether a transaction is open.",
            next_step="Finish that first.",
        )


class PipelineOpen(ConnectionRefused):
    """A connection in pipeline mode, in which answers and errors come later than we need them."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            kind,
            f"This {kind} is in pipeline mode, in which an error may come after the answer that "
            "we have to give.",
            next_step="Enqueue before or after the pipeline block, in the same transaction; "
            "`enqueue_many` writes any number of executions in one statement.",
        )


class ConnectionInAutocommit(ConnectionRefused):
    """A connection on which every statement would commit by itself."""

    def __init__(self, kind: str, *, next_step: str) -> None:
        super().__init__(
            kind,
            f"This {kind} is in autocommit mode with no transaction open: the execution would "
            "be there even if the rest of your work is not.",
            next_step=next_step,
        )


class TransactionAborted(ConnectionRefused):
    """A transaction that an earlier error has ended in all but name."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            kind,
            f"The transaction of this {kind} has failed before: it can only be rolled back.",
            next_step="Roll it back, as a whole or to a savepoint, and enqueue after that.",
        )


class OtherThread(ConnectionRefused):
    """An SQLite connection that another thread made."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            kind,
            f"This {kind} was made by another thread, and SQLite keeps it there.",
            next_step="Enqueue in that thread, or connect with `check_same_thread=False` and let "
            "one thread at a time use it.",
        )


class OtherDialect(ConnectionRefused):
    """A connection to a database of another kind than the app's."""

    def __init__(self, kind: str, *, dialect: str, wanted: str) -> None:
        self.dialect = dialect
        self.wanted = wanted
        super().__init__(
            kind,
            f"This {kind} speaks {_dialect(dialect)}, and this app keeps its tasks in "
            f"{_dialect(wanted)}.",
            next_step="Pass a connection to the app's own database, or none: then the execution "
            "has a transaction of its own.",
        )


class TablesMissing(ConnectionRefused):
    """A database in which this connection finds no tables of Penstock."""

    def __init__(self, kind: str, *, reason: str | None = None) -> None:
        self.reason = reason
        why = f" that it may read ({reason})" if reason else ""
        super().__init__(
            kind,
            f"This {kind} leads to a database without Penstock tables{why}.",
            next_step="Pass a connection to the database that the app was configured with.",
        )


class OtherDatabase(ConnectionRefused):
    """A database with Penstock's tables, but not those of this app."""

    def __init__(self, kind: str, *, found: str, wanted: str) -> None:
        self.found = found
        self.wanted = wanted
        super().__init__(
            kind,
            f"This {kind} leads to another database than the app's: the tables there are those "
            f"of {found}, the app's are those of {wanted}, and its workers would never see the "
            "execution.",
            next_step="Pass a connection to the database that the app was configured with.",
        )


def _a(kind: str) -> str:
    if kind == "None":
        return kind
    return f"an {kind}" if kind[0].lower() in "aeiou" else f"a {kind}"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _is_async(kind: str) -> bool:
    return kind.rpartition(".")[2].lower().startswith("async")


def _dialect(name: str) -> str:
    return {"postgresql": "PostgreSQL", "sqlite": "SQLite"}.get(name, name)
