"""One transaction in which one claim is made, on whatever the caller has.

A claim begins its own transaction and commits it: a bind that is already inside one is refused.
How a transaction has to begin differs by database, and does not depend on the path.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Executable, select
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from penstock.claiming.errors import ACCEPTED, BindRefused, InTransaction, PendingChanges
from penstock.claiming.target import Target

Bind = Engine | Connection | Session | scoped_session[Any]

# Above it, a row that somebody changed since the transaction began is an error instead of a row
# that is looked at again. A driver in autocommit mode leaves it, too: row locks would not last.
_LEVELS = {"postgresql": "READ COMMITTED", "mssql": "READ COMMITTED"}


@dataclass(frozen=True)
class Turn:
    """An open transaction, and how to read rows in it."""

    target: Target
    connection: Connection
    session: Session | None

    def read(
        self, statement: Executable, extras: Sequence[ColumnElement[Any]] = ()
    ) -> tuple[list[Any], list[Sequence[Any]]]:
        """Return what the columns of the table stand for, and apart from it the `extras`.

        The statement gives all columns of the table, and then the extras.
        """
        mapper = self.target.mapper
        if mapper is not None and self.session is not None:
            loading = select(mapper.entity, *extras).from_statement(statement)  # type: ignore[arg-type]
            found = self.session.execute(
                loading, execution_options={"populate_existing": True}
            ).freeze()
            return list(found().scalars()), [row[1:] for row in found.data]
        result = self.connection.execute(statement)
        if not extras:
            return list(result.all()), []
        kept = result.freeze()
        width = len(self.target.table.c)
        return list(kept().columns(*range(width)).all()), [row[width:] for row in kept.data]


@contextmanager
def turn(bind: Bind, target: Target) -> Iterator[Turn]:
    """Open a transaction on `bind`, commit it at the end, or roll it back on an error.

    Raises:
        ClaimRefused: the bind is no bind, is in a transaction, or has changes to write.
    """
    checked = check_bind(bind)
    if isinstance(checked, Session):
        with _in_session(checked, target) as opened:
            yield opened
    elif target.mapper is not None:
        with Session(checked, expire_on_commit=False) as own, _in_session(own, target) as opened:
            yield opened
    elif isinstance(checked, Connection):
        with _level_kept(checked), checked.begin():
            _begin(checked)
            yield Turn(target, checked, None)
    else:
        with checked.connect() as connection:
            level = _LEVELS.get(connection.dialect.name)
            if level is not None:
                # Undone by the pool when the connection returns to it.
                connection.execution_options(isolation_level=level)
            with connection.begin():
                _begin(connection)
                yield Turn(target, connection, None)


def check_bind(bind: object) -> Engine | Connection | Session:
    """Return what leads to the database, unless a claim on it would not be seen at once."""
    if isinstance(bind, scoped_session):
        bind = bind()
    if isinstance(bind, Session):
        new, changed, deleted = len(bind.new), len(bind.dirty), len(bind.deleted)
        if new or changed or deleted:
            raise PendingChanges(new=new, changed=changed, deleted=deleted)
        if bind.in_transaction():
            raise InTransaction(bind)
        return bind
    if isinstance(bind, Connection):
        if bind.closed:
            raise BindRefused(bind, because="it is closed", next_step="Pass an open one.")
        if bind.in_transaction():
            raise InTransaction(bind)
        return bind
    if isinstance(bind, Engine):
        return bind
    raise _refusal(bind)


def _refusal(bind: object) -> BindRefused:
    if type(bind).__module__.startswith("sqlalchemy.ext.asyncio"):
        next_step = "`await aclaim(…)` takes it."
        return BindRefused(bind, because="it is asynchronous", next_step=next_step)
    if isinstance(bind, sessionmaker):
        next_step = "Call it, and pass the session that it makes."
        return BindRefused(bind, because="it makes sessions and is none", next_step=next_step)
    return BindRefused(bind, next_step=f"Pass {ACCEPTED}.")


@contextmanager
def _in_session(session: Session, target: Target) -> Iterator[Turn]:
    wanted: dict[str, Any] = {"clause": target.table}
    if target.mapper is not None:
        wanted["mapper"] = target.mapper
    reached = session.get_bind(**wanted)
    options: dict[str, Any] = {}
    level = _LEVELS.get(reached.dialect.name)
    if isinstance(reached, Connection):
        check_bind(reached)
    elif level is not None:
        options["isolation_level"] = level
    with (
        _level_kept(reached) if isinstance(reached, Connection) else nullcontext(),
        _unexpired(session),
        session.begin(),
    ):
        connection = session.connection(bind_arguments=wanted, execution_options=options)
        _begin(connection)
        yield Turn(target, connection, session)


@contextmanager
def _unexpired(session: Session) -> Iterator[None]:
    # The commit would expire what was just claimed: each instance would then be read again, one
    # by one, in a transaction that the session opens for it and leaves open.
    configured = session.expire_on_commit
    session.expire_on_commit = False
    try:
        yield
    finally:
        session.expire_on_commit = configured


@contextmanager
def _level_kept(connection: Connection) -> Iterator[None]:
    """Give the caller's connection back with the isolation level that it came with."""
    level = _LEVELS.get(connection.dialect.name)
    if level is None:
        yield
        return
    options = connection.get_execution_options()
    before = options.get("isolation_level") or connection.get_isolation_level()
    if before != level:
        connection.execution_options(isolation_level=level)
    try:
        yield
    finally:
        if before != level and not connection.invalidated:
            connection.execution_options(isolation_level=before)


def _begin(connection: Connection) -> None:
    """Begin in the way that the database needs, which SQLAlchemy has no word for."""
    match connection.dialect.name:
        case "sqlite":
            _leave_deferred(connection)
            # Two transactions that read first and write later cannot both go on: one of them
            # would fail at once, without waiting.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        case "mysql" | "mariadb":
            # For one transaction only: SQLAlchemy's own switch takes two round trips to set and
            # two to reset.
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            if _commits_by_itself(connection):
                connection.exec_driver_sql("START TRANSACTION")
        case _:
            pass


def _commits_by_itself(connection: Connection) -> bool:
    ask = getattr(connection.connection.driver_connection, "get_autocommit", None)
    return bool(ask()) if ask is not None else True


def _leave_deferred(connection: Connection) -> None:
    driver: Any = connection.connection.driver_connection
    if not driver.in_transaction:
        return
    by_driver = getattr(driver, "autocommit", None) is False
    by_listener = driver.isolation_level is None
    if not by_driver and not by_listener:
        # In-memory databases share one connection: this is somebody else's transaction.
        raise InTransaction(connection)
    connection.exec_driver_sql("ROLLBACK")
