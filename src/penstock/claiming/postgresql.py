"""PostgreSQL: one statement picks, claims and returns.

- SKIP LOCKED: callers step over each other's rows instead of waiting for them.
- MATERIALIZED, not `IN (SELECT … LIMIT n)`: a nested-loop plan repeats such a subquery, and each
  repetition steps over the rows that the last one locked and takes n more.
- Keys as unnested arrays, not a join with the CTE: a plan that is kept for many calls does not know
  the limit and may hash the whole table, while arrays are taken for short. Their ordinality is the
  order in which the rows were picked, which RETURNING does not keep.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Label, Update, column, func, select, table

from penstock.claiming.request import Request
from penstock.claiming.target import Target
from penstock.claiming.turn import Turn

PICKED = "penstock_picked"
PLACE = "penstock_place"


def claim_in_one_statement(turn: Turn, request: Request) -> list[Any]:
    statement, extras = one_statement(request)
    rows, found = turn.read(statement, extras)
    request.must_hold([extra[1:] for extra in found])
    places = [extra[0] for extra in found]
    return [row for _, row in sorted(zip(places, rows, strict=True), key=lambda pair: pair[0])]


def one_statement(request: Request) -> tuple[Update, list[ColumnElement[Any]]]:
    """Return the statement, and what it gives besides the columns of the table."""
    lookup = _lookup(request.target)
    picked = (
        request.candidates()
        .with_only_columns(*lookup.labels)
        .with_for_update(skip_locked=True, of=request.target.table)
        .cte(PICKED)
        .prefix_with("MATERIALIZED")
    )
    extras = [lookup.place, *request.checks()]
    statement = request.claiming().add_cte(picked).where(*lookup.joined)
    return statement.returning(*request.target.table.c, *extras), extras


@dataclass(frozen=True)
class _Lookup:
    """How the picked rows are found again, which is the same for all claims on a table."""

    labels: tuple[Label[Any], ...]
    joined: tuple[ColumnElement[bool], ...]
    place: ColumnElement[int]


@lru_cache(maxsize=256)
def _lookup(target: Target) -> _Lookup:
    # Making it anew takes longer than all the rest of the statement; hence the CTE by its name.
    named = {f"key_{n}": one for n, one in enumerate(target.key)}
    picked = table(PICKED, *(column(name, one.type) for name, one in named.items()))
    keys = (
        func.unnest(*(func.array(select(picked.c[name]).scalar_subquery()) for name in named))
        .table_valued(
            *(column(name, one.type) for name, one in named.items()),
            with_ordinality=PLACE,
            name="penstock_keys",
        )
        .render_derived()
    )
    return _Lookup(
        labels=tuple(one.label(name) for name, one in named.items()),
        joined=tuple(one == keys.c[name] for name, one in named.items()),
        place=keys.c[PLACE],
    )
