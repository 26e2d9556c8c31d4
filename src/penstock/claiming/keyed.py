"""Two steps in one transaction: pick and lock rows, then claim them by their keys.

Between the steps nobody else can take the rows: SQLite has no other writer meanwhile, and the
others hold row locks until the commit. Outside of a transaction the same two steps claim twice.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Select, Update

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
    keys = _keys(turn, request.candidates())
    checks = request.checks()
    rows: list[Any] = []
    for some in _portions(keys):
        statement = request.claiming().where(request.among(some))
        found, answers = turn.read(statement.returning(*request.target.table.c, *checks), checks)
        request.must_hold(answers)
        rows += found
    return _arranged(request, keys, rows)


def claim_by_locking(turn: Turn, request: Request) -> list[Any]:
    """MariaDB and MySQL: there is no UPDATE … RETURNING, so the rows are read back."""
    keys = _keys(turn, skipping_locked(request))
    for some in _portions(keys):
        turn.connection.execute(request.claiming().where(request.among(some)))
    return read_back(turn, request, keys)


def claim_by_output(turn: Turn, request: Request) -> list[Any]:
    """SQL Server: table hints lock, OUTPUT returns."""
    keys = _keys(turn, past_locked(request))
    rows: list[Any] = []
    for some in _portions(keys):
        found, _ = turn.read(with_output(request, some))
        rows += found
    return _arranged(request, keys, rows)


def skipping_locked(request: Request) -> Select[Any]:
    return request.candidates().with_for_update(skip_locked=True)


def past_locked(request: Request) -> Select[Any]:
    return request.candidates().with_hint(request.target.table, SQL_SERVER_LOCKS, "mssql")


def with_output(request: Request, keys: Sequence[Key]) -> Update:
    # SQL Server has no row values, and no truth values among columns: what other databases check
    # after the claim, whether it holds, cannot be asked here.
    statement = request.claiming().where(request.among(keys, row_values=False))
    return statement.returning(*request.target.table.c)


def read_back(turn: Turn, request: Request, keys: Sequence[Key]) -> list[Any]:
    """Read the claimed rows as they are now, in the order of their keys."""
    checks = request.checks()
    rows: list[Any] = []
    for some in _portions(keys):
        statement = request.row().add_columns(*checks).where(request.among(some))
        found, answers = turn.read(statement, checks)
        request.must_hold(answers)
        rows += found
    return _arranged(request, keys, rows)


def _keys(turn: Turn, statement: Select[Any]) -> list[Key]:
    return [tuple(row) for row in turn.connection.execute(statement).all()]


def _portions(keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
    for start in range(0, len(keys), KEYS_AT_ONCE):
        yield keys[start : start + KEYS_AT_ONCE]


def _arranged(request: Request, keys: Sequence[Key], rows: list[Any]) -> list[Any]:
    places = {key: place for place, key in enumerate(keys)}
    return sorted(rows, key=lambda row: places[request.target.key_of(row)])
