"""What a caller asks for, checked, and the statements that every path has in common."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    ColumnClause,
    ColumnElement,
    ColumnExpressionArgument,
    Select,
    TextClause,
    Update,
    and_,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql import Subquery, visitors
from sqlalchemy.sql.selectable import SelectBase

from penstock.claiming.errors import InvalidClaim, InvalidLimit, UnheldClaim
from penstock.claiming.target import Key, Target

Where = ColumnExpressionArgument[bool]
Order = ColumnExpressionArgument[Any]

STILL_FREE = "penstock_still_free"


@dataclass(frozen=True)
class Request:
    """One claim: which rows, what to set on them, how many, and which first."""

    target: Target
    where: ColumnElement[bool]
    values: dict[Column[Any], Any]
    limit: int
    order: tuple[ColumnElement[Any], ...]

    def candidates(self) -> Select[Any]:
        """Select the keys of the rows to claim, in the order asked; ties by primary key."""
        return (
            select(*self.target.key)
            .where(self.where)
            .order_by(*self.order, *self._ties())
            .limit(self.limit)
        )

    def _ties(self) -> Iterator[Column[Any]]:
        ordered = [getattr(one, "element", one) for one in self.order]
        for column in self.target.key:
            # Twice the same column keeps some databases from reading it off an index.
            if not any(column is one for one in ordered):
                yield column

    def claiming(self) -> Update:
        """Set the values, on all rows as yet."""
        return update(self.target.table).values(self.values)

    def row(self) -> Select[Any]:
        """Select whole rows, all of them as yet."""
        return select(*self.target.table.c)

    def among(self, keys: Sequence[Key], *, row_values: bool = True) -> ColumnElement[bool]:
        """Is the row one of these?"""
        columns = self.target.key
        if len(columns) == 1:
            return columns[0].in_([key[0] for key in keys])
        if row_values:
            return tuple_(*columns).in_(keys)
        return or_(*(and_(*map(_equal, columns, key)) for key in keys))

    def checks(self) -> list[ColumnElement[Any]]:
        """What a claimed row is asked besides its columns: would the next caller get it too?

        Nothing where `where` contains a query of its own, which databases do not all accept, or
        evaluate alike, among the columns of a claimed row.
        """
        if isinstance(self.where, TextClause) or any(
            isinstance(part, SelectBase | Subquery) for part in visitors.iterate(self.where)
        ):
            return []
        return [self.where.label(STILL_FREE)]

    def must_hold(self, answers: Iterable[Sequence[Any]]) -> None:
        """Refuse a claim after which a row is still free; `answers` are those to the checks.

        Raised inside the transaction, the refusal rolls the claim back.
        """
        if any(any(answer) for answer in answers):
            raise UnheldClaim(self.target.name)


def request_of(
    target: Target,
    *,
    where: Where,
    values: Mapping[Any, Any],
    limit: int,
    order_by: Order | Sequence[Order] | None,
) -> Request:
    """Check what a caller asks for, without touching the database.

    Raises:
        ClaimRefused: it makes no claim; the error says what is wrong.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidLimit(limit)
    columns = target.columns_of(values)
    wanted = _expression(target, "where", where)
    if target.criterion is not None:
        wanted = and_(target.criterion, wanted)
    order = tuple(_expression(target, "order_by", one) for one in _as_sequence(order_by))
    return Request(target, wanted, columns, limit, order)


def _as_sequence(order_by: Order | Sequence[Order] | None) -> Sequence[Any]:
    if order_by is None:
        return ()
    if isinstance(order_by, Sequence) and not isinstance(order_by, str):
        return order_by
    return (order_by,)


def _expression(target: Target, part: str, given: Any) -> ColumnElement[Any]:  # noqa: ANN401
    """Return `given` as an expression about the table, and about no other."""
    clause = given.__clause_element__() if hasattr(given, "__clause_element__") else given
    if not isinstance(clause, ColumnElement | TextClause):
        raise InvalidClaim(
            part,
            table=target.name,
            because=f"{given!r} is no expression about the table's columns",
            next_step="Compare columns, as in `invoices.c.state == 'new'`.",
        )
    others = _other_sources(target, clause)
    if others:
        raise InvalidClaim(
            part,
            table=target.name,
            because=f"it also reads {', '.join(others)}",
            next_step=f"Name columns of {target.name!r} only; ask others with `exists(…)`.",
        )
    return clause  # type: ignore[return-value]  # text() is taken as it is


def _other_sources(target: Target, clause: ColumnElement[Any] | TextClause) -> list[str]:
    named = [part for part in visitors.iterate(clause) if isinstance(part, ColumnClause)]
    if all(target.table.c.contains_column(one) for one in named):
        return []
    # A query inside the expression may read what it likes; asking SQLAlchemy takes longer.
    froms = select(*target.key).where(clause.self_group()).get_final_froms()
    return [str(source) for source in froms if source is not target.table]


def _equal(column: Column[Any], value: object) -> ColumnElement[bool]:
    return column == value
