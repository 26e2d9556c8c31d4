"""Two steps in one transaction: pick and lock rows, then claim them by their keys.

Between the steps nobody else can take the rows: SQLite has no other writer meanwhile, and the
others hold row locks until the commit. Outside of a transaction the same two steps claim twice.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Select

from penstock.claiming.held import held
from penstock.claiming.request import Request
from penstock.claiming.target import Key
from penstock.claiming.turn import Turn

# Below the smallest number of parameters that a database takes in one statement, and few enough
# for its planner to look each key up.
KEYS_AT_ONCE = 500

# ROWLOCK: a lock on a page would make others step over rows that nobody claims.
SQL_SERVER_LOCKS = "WITH (UPDLOCK, READPAST, ROWLOCK)"


def claim_after_reading(turn: Turn, request: Request) -> list[Any]:
    """SQLite: the transaction is the lock."""
    return _claim_returning(turn, request, request.candidates(), row_values=True, checked=True)


def claim_by_output(turn: Turn, request: Request) -> list[Any]:
    """SQL Server: table hints lock, OUTPUT returns.

    It has no row values, and no truth values among columns, so that here nothing checks whether
    the claim holds.
    """
    locking = request.candidates().with_hint(request.target.table, SQL_SERVER_LOCKS, "mssql")
    return _claim_returning(turn, request, locking, row_values=False, checked=False)


def claim_by_locking(turn: Turn, request: Request) -> list[Any]:
    """MariaDB and MySQL: there is no UPDATE … RETURNING, so the rows are read back."""
    keys = _keys(turn, request.candidates().with_for_update(skip_locked=True))
    for some in _portions(keys):
        turn.connection.execute(request.claiming().where(request.among(some)))
    return read_back(turn, request, keys)


def read_back(turn: Turn, request: Request, keys: Sequence[Key]) -> list[Any]:
    """Read the claimed rows as they are now, in the order of their keys."""
    checks = request.checks()
    rows: list[Any] = []
    for some in _portions(keys):
        statement = request.row().add_columns(*checks).where(request.among(some))
        found, answers = turn.read(statement, checks)
        held(request, answers)
        rows += found
    return _arranged(request, keys, rows)


def _claim_returning(
    turn: Turn, request: Request, locking: Select[Any], *, row_values: bool, checked: bool
) -> list[Any]:
    checks = request.checks() if checked else []
    keys = _keys(turn, locking)
    rows: list[Any] = []
    for some in _portions(keys):
        statement = request.claiming().where(request.among(some, row_values=row_values))
        found, answers = turn.read(statement.returning(*request.target.table.c, *checks), checks)
        held(request, answers)
        rows += found
    return _arranged(request, keys, rows)


def _keys(turn: Turn, statement: Select[Any]) -> list[Key]:
    return [tuple(row) for row in turn.connection.execute(statement)]


def _portions(keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
    for start in range(0, len(keys), KEYS_AT_ONCE):
        yield keys[start : start + KEYS_AT_ONCE]


def _arranged(request: Request, keys: Sequence[Key], rows: list[Any]) -> list[Any]:
    places = {key: place for place, key in enumerate(keys)}
    return sorted(rows, key=lambda row: places[request.target.key_of(row)])
