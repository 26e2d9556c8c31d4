"""The floor: what any database with transactions can do.

Candidates are read without a lock, so another caller may take one before we do. Each is therefore
updated by its key *and* the criteria: the database looks at them again under the row's lock, and
an update that changes no row is a race that was lost.
"""

from typing import Any

from sqlalchemy import bindparam
from sqlalchemy.engine import CursorResult

from penstock.claiming.keyed import read_back
from penstock.claiming.request import Request
from penstock.claiming.target import Key
from penstock.claiming.turn import Turn


def claim_guarded(turn: Turn, request: Request) -> list[Any]:
    candidates: list[Key] = [
        tuple(row) for row in turn.connection.execute(request.candidates()).all()
    ]
    names = [f"penstock_key_{n}" for n in range(len(request.target.key))]
    guarded = (
        request.claiming()
        .where(
            *(
                column == bindparam(name, type_=column.type)
                for column, name in zip(request.target.key, names, strict=True)
            )
        )
        .where(request.where)
    )
    won: set[Key] = set()
    for key in _in_lock_order(candidates):
        updated = turn.connection.execute(guarded, dict(zip(names, key, strict=True)))
        if isinstance(updated, CursorResult) and updated.rowcount == 1:
            won.add(key)
    return read_back(turn, request, [key for key in candidates if key in won])


def _in_lock_order(keys: list[Key]) -> list[Key]:
    # Each update locks its row until the commit. Callers that ask for different orders would
    # lock the same rows in different orders, and wait for each other for ever.
    try:
        return sorted(keys)
    except TypeError:  # keys that Python cannot compare; the database finds the deadlock
        return keys
