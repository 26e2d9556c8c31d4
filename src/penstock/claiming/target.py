"""What rows are claimed from: a table, or a class that is mapped to one."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Column, ColumnElement, Table, inspect
from sqlalchemy.exc import NoInspectionAvailable
from sqlalchemy.orm import Mapper, QueryableAttribute

from penstock.claiming.errors import InvalidClaim, NoPrimaryKey, NotATable, UnknownColumn

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Target:
    """One table with a primary key; with a mapper when its rows come back as instances."""

    table: Table
    mapper: Mapper[Any] | None = None

    @cached_property
    def key(self) -> tuple[Column[Any], ...]:
        return tuple(self.table.primary_key.columns)

    @cached_property
    def _places(self) -> tuple[int, ...]:
        columns = list(self.table.c)
        return tuple(columns.index(column) for column in self.key)

    @property
    def name(self) -> str:
        return self.table.fullname

    @property
    def criterion(self) -> ColumnElement[bool] | None:
        """What tells the rows of this class from those of others in the same table."""
        mapper = self.mapper
        if mapper is None or not mapper.single or mapper.polymorphic_on is None:
            return None
        identities = [below.polymorphic_identity for below in mapper.self_and_descendants]
        return mapper.polymorphic_on.in_(identities)

    def key_of(self, row: Any) -> Key:  # noqa: ANN401 - a row or an instance of the user's class
        if self.mapper is not None:
            return tuple(self.mapper.primary_key_from_instance(row))
        return tuple(row[place] for place in self._places)

    def columns_of(self, values: Mapping[Any, Any]) -> dict[Column[Any], Any]:
        """Return `values` by column; keys may be names, columns or mapped attributes.

        Raises:
            UnknownColumn: a key is none of this table's columns.
            InvalidClaim: there are no values, or one would change the primary key.
        """
        if not values:
            raise InvalidClaim(
                "values",
                table=self.name,
                because="there is nothing to set, so the next caller would get the same rows",
                next_step="Set what makes a claimed row no longer meet `where`.",
            )
        found = {self._column(key): value for key, value in values.items()}
        for column in self.key:
            if column in found:
                raise InvalidClaim(
                    "values",
                    table=self.name,
                    because=f"{column.key!r} is part of the primary key, by which rows are known",
                    next_step="Set other columns.",
                )
        return found

    def _column(self, key: object) -> Column[Any]:
        known = self._named()
        if isinstance(key, str) and key in known:
            return known[key]
        if isinstance(key, QueryableAttribute):
            key = key.expression
        if isinstance(key, Column) and self.table.c.contains_column(key):
            # An expression of a mapped class carries notes of the ORM; the table's own does not.
            return self.table.c[key.key]
        name = getattr(key, "key", None)
        raise UnknownColumn(str(name or key), table=self.name, known=list(known))

    def _named(self) -> dict[str, Column[Any]]:
        if self.mapper is None:
            return dict(self.table.c.items())
        attributes = {attribute.key: attribute.columns[0] for attribute in self.mapper.column_attrs}
        return {name: column for name, column in attributes.items() if isinstance(column, Column)}


def target_of(given: object) -> Target:
    """Return what `given` stands for.

    Raises:
        NotATable: it is neither a table nor a class mapped to exactly one.
        NoPrimaryKey: the table has none.
    """
    target = Target(given) if isinstance(given, Table) else _mapped(given)
    if not target.key:
        raise NoPrimaryKey(target.name)
    return target


def _mapped(given: object) -> Target:
    try:
        mapper = inspect(given)
    except NoInspectionAvailable:
        raise NotATable(given, because="it is no table") from None
    if not isinstance(mapper, Mapper) or not isinstance(given, type):
        raise NotATable(given, because="it is an alias, a query or an instance") from None
    if not isinstance(mapper.persist_selectable, Table):
        raise NotATable(given, because="it is spread over several tables, and a claim takes one")
    return Target(mapper.persist_selectable, mapper)
