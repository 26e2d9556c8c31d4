"""The same contract in one process: rows are dicts or dataclasses, and a lock stands for the rest.

For tests, for prototypes, and for tables that fit into memory. It knows no transactions and
survives nothing.
"""

import copy
import dataclasses
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from penstock.claiming.errors import InvalidClaim, InvalidLimit, UnheldClaim, UnknownColumn

R = TypeVar("R")


class MemoryTable(Generic[R]):
    """Rows by their key, shared between threads.

    What goes in and what comes out are copies: only `claim` and `update` change a row.
    """

    def __init__(
        self, rows: Iterable[R] = (), *, key: str | Sequence[str] = "id", name: str = "memory"
    ) -> None:
        self.name = name
        self._key = (key,) if isinstance(key, str) else tuple(key)
        self._lock = threading.Lock()
        self._rows: dict[tuple[Any, ...], R] = {}
        for row in rows:
            self.add(row)

    def add(self, row: R) -> None:
        """Add a row, unless its key is taken."""
        key = self._key_of(row)
        with self._lock:
            if key in self._rows:
                raise InvalidClaim(
                    "add",
                    table=self.name,
                    because=f"a row with the key {key!r} is there already",
                    next_step="Give each row a key of its own.",
                )
            self._rows[key] = copy.deepcopy(row)

    def rows(self) -> list[R]:
        """Return a copy of every row, in the order in which they were added."""
        with self._lock:
            return [copy.deepcopy(row) for row in self._rows.values()]

    def claim(
        self,
        *,
        where: Callable[[R], bool],
        values: Mapping[str, Any],
        limit: int,
        order_by: str | Sequence[str] = (),
    ) -> list[R]:
        """Set `values` on up to `limit` rows that meet `where`, and return copies of them.

        No row goes to two callers, never more than `limit`, in the order asked (a name with `-`
        before it counts downwards), ties by key. A value that is a function is called with the
        row as it is before the claim.

        Raises:
            ClaimRefused: it was used wrongly. Nothing was claimed.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise InvalidLimit(limit)
        order = (order_by,) if isinstance(order_by, str) else tuple(order_by)
        with self._lock:
            # All of it before anything is stored: an error on the way leaves the table as it was.
            free = [(key, row) for key, row in self._rows.items() if where(row)]
            picked = self._sorted(free, order)[:limit]
            claimed = {key: self._changed(row, values) for key, row in picked}
            if any(where(row) for row in claimed.values()):
                raise UnheldClaim(self.name)
            self._rows |= claimed
            return [copy.deepcopy(row) for row in claimed.values()]

    def update(self, *, where: Callable[[R], bool], values: Mapping[str, Any]) -> int:
        """Set `values` on all rows that meet `where`; return how many those were."""
        with self._lock:
            changed = {
                key: self._changed(row, values) for key, row in self._rows.items() if where(row)
            }
            self._rows |= changed
            return len(changed)

    def _sorted(
        self, rows: list[tuple[tuple[Any, ...], R]], order: Sequence[str]
    ) -> list[tuple[tuple[Any, ...], R]]:
        # Sorting keeps the order of what is equal, so the least important comes first.
        rows = sorted(rows, key=lambda pair: pair[0])
        for name in reversed(order):
            column = name.removeprefix("-")
            rows.sort(key=lambda pair: self._get(pair[1], column), reverse=name != column)
        return rows

    def _changed(self, row: R, values: Mapping[str, Any]) -> R:
        if not values or not set(self._key).isdisjoint(values):
            raise InvalidClaim(
                "values",
                table=self.name,
                because="they set nothing, or part of the key",
                next_step="Set columns that `where` looks at.",
            )
        new: dict[str, Any] = {}
        for name, value in values.items():
            self._get(row, name)
            new[name] = copy.deepcopy(value(row) if callable(value) else value)
        if isinstance(row, dict):
            return {**row, **new}  # type: ignore[return-value]
        return dataclasses.replace(row, **new)  # type: ignore[type-var]

    def _key_of(self, row: R) -> tuple[Any, ...]:
        return tuple(self._get(row, name) for name in self._key)

    def _get(self, row: R, name: str) -> Any:  # noqa: ANN401 - whatever the row holds
        known = list(row) if isinstance(row, dict) else [one.name for one in _fields(row)]
        if name not in known:
            raise UnknownColumn(name, table=self.name, known=known)
        return row[name] if isinstance(row, dict) else getattr(row, name)


def _fields(row: object) -> tuple[dataclasses.Field[Any], ...]:
    if not dataclasses.is_dataclass(row):
        raise InvalidClaim(
            "rows",
            table="memory",
            because=f"{row!r} is neither a dict nor a dataclass",
            next_step="Give dicts, or instances of a dataclass.",
        )
    return dataclasses.fields(row)
