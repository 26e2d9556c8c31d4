"""What a claim refuses, and why.

PenstockError
├── ClaimRefused             used wrongly; nothing was claimed
│   ├── BindRefused          no engine, connection or session, or one of the other colour
│   ├── InTransaction        a bind whose transaction would hide the claim from others
│   ├── PendingChanges       a session that still has something to write
│   ├── NotATable            neither a table nor a class mapped to one
│   ├── NoPrimaryKey         rows that cannot be told apart
│   ├── UnknownColumn        a column that the table does not have
│   ├── InvalidLimit         a number of rows that cannot be asked for
│   ├── InvalidClaim         criteria, values or an order that make no claim
│   ├── UnheldClaim          values that leave the rows free to be claimed again
│   └── PathUnavailable      a path that this database does not have
└── ClaimContended           the database undid every try; nothing was claimed
"""

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from penstock.errors import PenstockError

ACCEPTED = "an Engine, a Connection or a Session"
ACCEPTED_ASYNC = "an AsyncEngine, an AsyncConnection or an AsyncSession"


class ClaimRefused(PenstockError):
    """A claim that was used wrongly; nothing was claimed."""

    def __init__(self, why: str, *, next_step: str) -> None:
        self.why = why
        self.next_step = next_step
        super().__init__(f"{why} Nothing was claimed. {next_step}")


class BindRefused(ClaimRefused, TypeError):
    """Something that leads to no database, or one of the other colour."""

    def __init__(self, bind: object, *, because: str | None = None, next_step: str) -> None:
        self.kind = f"{type(bind).__module__.partition('.')[0]}.{type(bind).__name__}"
        reason = because or "it leads to no database that we know how to reach"
        super().__init__(f"A claim was given a {self.kind}: {reason}.", next_step=next_step)


class InTransaction(ClaimRefused):
    """A claim in an open transaction would be invisible to others until that commits."""

    def __init__(self, bind: object) -> None:
        self.kind = type(bind).__name__
        super().__init__(
            f"The {self.kind} is inside a transaction, and others would not see the claim before "
            "that commits: they would wait for it, or it would be rolled back with the rest.",
            next_step="End the transaction first, or pass the engine.",
        )


class PendingChanges(ClaimRefused):
    """A session's own changes would be committed together with the claim."""

    def __init__(self, *, new: int, changed: int, deleted: int) -> None:
        self.new = new
        self.changed = changed
        self.deleted = deleted
        super().__init__(
            f"The session has changes that are not committed ({new} new, {changed} changed, "
            f"{deleted} deleted), and a claim commits.",
            next_step="Commit or roll back first, or pass the engine.",
        )


class NotATable(ClaimRefused, TypeError):
    """Rows are claimed from one table, given as a Table or as a class mapped to it."""

    def __init__(self, given: object, *, because: str) -> None:
        self.given = repr(given)
        super().__init__(
            f"Rows cannot be claimed from {self.given}: {because}.",
            next_step="Pass a Table, or a class that is mapped to one.",
        )


class NoPrimaryKey(ClaimRefused):
    """Without a primary key, the rows of a claim cannot be told apart."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(
            f"Table {table!r} has no primary key, so its rows cannot be told apart.",
            next_step="Declare one: `primary_key=True` on the columns that make a row unique.",
        )


class UnknownColumn(ClaimRefused):
    """`values` names a column that the table does not have."""

    def __init__(self, column: str, *, table: str, known: Collection[str]) -> None:
        self.column = column
        self.table = table
        self.known = tuple(known)
        guess = get_close_matches(column, self.known, n=1)
        super().__init__(
            f"Table {table!r} has no column {column!r}.",
            next_step=f"Did you mean {guess[0]!r}?" if guess else f"It has {', '.join(known)}.",
        )


class InvalidLimit(ClaimRefused, ValueError):
    """`limit` is not a number of rows."""

    def __init__(self, limit: object) -> None:
        self.limit = limit
        super().__init__(
            f"limit={limit!r} is not a number of rows.",
            next_step="Give a whole number, 0 or more.",
        )


class InvalidClaim(ClaimRefused, ValueError):
    """Criteria, values or an order that make no claim; `part` is the argument at fault."""

    def __init__(self, part: str, *, table: str, because: str, next_step: str) -> None:
        self.part = part
        self.table = table
        super().__init__(
            f"`{part}` makes no claim on table {table!r}: {because}.", next_step=next_step
        )


class UnheldClaim(ClaimRefused, ValueError):
    """After the claim a row still meets `where`, so that the next caller would get it too."""

    def __init__(self, table: str) -> None:
        self.table = table
        super().__init__(
            f"A row of {table!r} still meets `where` after `values` were set, so the next caller "
            "would be given it too.",
            next_step="Set a column that `where` looks at, so that claimed rows no longer meet it.",
        )


class PathUnavailable(ClaimRefused, ValueError):
    """The path that was asked for is not one that this database has."""

    def __init__(self, path: str, *, database: str, possible: Sequence[str]) -> None:
        self.path = path
        self.database = database
        self.possible = tuple(possible)
        super().__init__(
            f"There is no path {path!r} on {database}.",
            next_step=f"Possible here: {', '.join(map(repr, possible))}.",
        )


class ClaimContended(PenstockError):
    """The database chose to undo this claim in favour of another, time after time."""

    def __init__(self, table: str, *, tries: int, because: BaseException) -> None:
        self.table = table
        self.tries = tries
        reason = str(because).strip().splitlines()[0].rstrip(".")
        super().__init__(
            f"A claim on {table!r} was undone by the database {tries} times ({reason}). Nothing "
            "was claimed. Claim again later, and look for transactions that lock many rows."
        )
