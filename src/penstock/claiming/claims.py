"""`claim`: take up to so many rows of a table for yourself."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

from sqlalchemy import Connection, Row, Table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from penstock.claiming.errors import ClaimContended
from penstock.claiming.paths import Explanation, PathName, choose, explain
from penstock.claiming.request import Order, Request, Where, request_of
from penstock.claiming.target import target_of
from penstock.claiming.turn import Bind, check_bind, turn

T = TypeVar("T")

TRIES = 10

_SQLSTATES = {"40001", "40P01"}  # could not serialise; deadlock
_MYSQL_CODES = {1205, 1213, 1020}  # waited too long for a lock; deadlock; changed since last read
_SQLITE_CODES = {5, 6}  # busy; locked


class Claim:
    """The type of `claim`, a function with one attribute."""

    @overload
    def __call__(
        self,
        bind: Bind,
        table: Table,
        *,
        where: Where,
        values: Mapping[Any, Any],
        limit: int,
        order_by: Order | Sequence[Order] | None = None,
        path: PathName | None = None,
    ) -> list[Row[Any]]: ...

    @overload
    def __call__(
        self,
        bind: Bind,
        table: type[T],
        *,
        where: Where,
        values: Mapping[Any, Any],
        limit: int,
        order_by: Order | Sequence[Order] | None = None,
        path: PathName | None = None,
    ) -> list[T]: ...

    def __call__(
        self,
        bind: Bind,
        table: Table | type[Any],
        *,
        where: Where,
        values: Mapping[Any, Any],
        limit: int,
        order_by: Order | Sequence[Order] | None = None,
        path: PathName | None = None,
    ) -> list[Any]:
        """Set `values` on up to `limit` rows that meet `where`, and return these rows.

        No row goes to two callers: once claimed it no longer meets `where`, because `values` see
        to that, until somebody sets it back. Never more than `limit` rows. They come back as they
        are after the claim, in the order asked (as it was before the claim), ties by primary key.
        When the call returns, the claim is committed.

        Rows of a Table come back as rows; those of a mapped class as instances, which belong to
        the session if `bind` is one, and are detached otherwise. `values` may be expressions
        (`table.c.tries + 1`). `path="portable"` forces the way that any database can go.

        Not promised: that it never waits (only some paths step over locked rows), that it
        returns as many as there are, or that an empty list means that no row meets `where`:
        another caller may be holding the rest at this moment.

        Raises:
            ClaimRefused: it was used wrongly. Nothing was claimed.
            ClaimContended: the database undid it time after time. Nothing was claimed.
            sqlalchemy.exc.DBAPIError: what else the database says. If the connection broke
                during the commit, rows may have been claimed that nobody was told of: only a
                lease that ends brings these back.
        """
        target = target_of(table)
        request = request_of(target, where=where, values=values, limit=limit, order_by=order_by)
        check_bind(bind)
        if limit == 0:
            return []
        for _ in range(TRIES - 1):
            try:
                return _claimed(bind, request, path)
            except DBAPIError as error:
                if not _undone(error):
                    raise
        try:
            return _claimed(bind, request, path)
        except DBAPIError as error:
            if not _undone(error):
                raise
            raise ClaimContended(target.name, tries=TRIES, because=error) from error

    def explain(self, bind: Bind, *, path: PathName | None = None) -> Explanation:
        """Say which path a claim on `bind` takes, and why. Connects, because versions matter.

        Raises:
            BindRefused: it leads to no database.
            PathUnavailable: `path` is not one that this database has.
        """
        checked = check_bind(bind)
        reached = checked.get_bind() if isinstance(checked, Session) else checked
        if not isinstance(reached, Connection):
            with reached.connect():
                pass
        return explain(reached.dialect, path)


claim = Claim()


def _claimed(bind: Bind, request: Request, path: PathName | None) -> list[Any]:
    with turn(bind, request.target) as opened:
        return choose(opened.connection.dialect, path).claim(opened, request)


def _undone(error: DBAPIError) -> bool:
    """Did the database undo the transaction for the sake of another, so that it can be repeated?"""
    cause: Any = error.orig
    if cause is None or error.connection_invalidated:
        return False
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    code = cause.args[0] if cause.args else None
    sqlite_code = getattr(cause, "sqlite_errorcode", None) or 0
    return (
        state in _SQLSTATES
        or code in _SQLSTATES
        or code in _MYSQL_CODES
        or sqlite_code & 0xFF in _SQLITE_CODES
    )
