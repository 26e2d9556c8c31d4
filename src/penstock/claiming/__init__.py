"""Find-and-claim for anybody's table: one contract, a portable floor, a fast path per database.

`claim` and `aclaim` work on SQLAlchemy's tables and mapped classes; `MemoryTable` keeps the same
contract over dicts and dataclasses in one process.
"""

from importlib.util import find_spec

if find_spec("sqlalchemy") is None:  # pragma: no cover - needs an environment without it
    message = (
        "penstock.claiming needs SQLAlchemy, which is not installed. "
        'Install it with Penstock: pip install "penstock[sqlalchemy]".'
    )
    raise ModuleNotFoundError(message, name="sqlalchemy")

from penstock.claiming.asynchronous import aclaim
from penstock.claiming.claims import claim
from penstock.claiming.errors import (
    BindRefused,
    ClaimContended,
    ClaimRefused,
    InTransaction,
    InvalidClaim,
    InvalidLimit,
    NoPrimaryKey,
    NotATable,
    PathUnavailable,
    PendingChanges,
    UnheldClaim,
    UnknownColumn,
)
from penstock.claiming.memory import MemoryTable
from penstock.claiming.paths import Explanation, PathName

__all__ = [
    "BindRefused",
    "ClaimContended",
    "ClaimRefused",
    "Explanation",
    "InTransaction",
    "InvalidClaim",
    "InvalidLimit",
    "MemoryTable",
    "NoPrimaryKey",
    "NotATable",
    "PathName",
    "PathUnavailable",
    "PendingChanges",
    "UnheldClaim",
    "UnknownColumn",
    "aclaim",
    "claim",
]
