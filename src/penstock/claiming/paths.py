"""Which path a claim takes on which database, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Dialect

from penstock.claiming.errors import PathUnavailable
from penstock.claiming.keyed import claim_after_reading, claim_by_locking, claim_by_output
from penstock.claiming.portable import claim_guarded
from penstock.claiming.postgresql import claim_in_one_statement
from penstock.claiming.request import Request
from penstock.claiming.turn import Turn

PathName = Literal["postgresql", "sqlite", "mariadb", "mysql", "mssql", "portable"]
Version = tuple[int, ...]


@dataclass(frozen=True)
class Path:
    """One way to make a claim; all of them keep the same contract."""

    name: PathName
    claim: Callable[[Turn, Request], list[Any]]
    shape: str
    since: Version = ()
    steps_over: bool = False
    run_in_tests: bool = True


PORTABLE = Path(
    "portable",
    claim_guarded,
    "reads candidates, then updates each by its key if it still meets the criteria, in one "
    "transaction; a row that another caller took meanwhile is skipped, and one that another "
    "caller is taking is waited for",
)
_LOCK_THEN_UPDATE = (
    "locks free rows (SKIP LOCKED), updates them and reads them back, in one READ COMMITTED "
    "transaction"
)
_FAST: dict[str, Path] = {
    path.name: path
    for path in (
        Path(
            "postgresql",
            claim_in_one_statement,
            "one statement: rows are picked with SKIP LOCKED in a materialised CTE, updated and "
            "returned",
            since=(12,),
            steps_over=True,
        ),
        Path(
            "sqlite",
            claim_after_reading,
            "UPDATE … RETURNING in an IMMEDIATE transaction: SQLite has one writer at a time",
            since=(3, 35),
        ),
        Path("mariadb", claim_by_locking, _LOCK_THEN_UPDATE, since=(10, 6), steps_over=True),
        Path(
            "mysql",
            claim_by_locking,
            _LOCK_THEN_UPDATE,
            since=(8, 0, 1),
            steps_over=True,
            run_in_tests=False,
        ),
        Path(
            "mssql",
            claim_by_output,
            "locks free rows (UPDLOCK, READPAST), updates them and returns them (OUTPUT), in one "
            "READ COMMITTED transaction",
            since=(11,),
            steps_over=True,
            run_in_tests=False,
        ),
    )
}


@dataclass(frozen=True)
class Explanation:
    """Which path a claim takes here, and why. As text, one sentence for each."""

    path: PathName
    database: str
    why: str
    steps_over_locked_rows: bool
    run_in_tests: bool

    def __str__(self) -> str:
        tested = "" if self.run_in_tests else " The project compiles this path, and has not run it."
        return f"{self.database} takes the path {self.path!r}: {self.why}.{tested}"


def choose(dialect: Dialect, wanted: PathName | None = None) -> Path:
    """Return the path for a database that a connection has been made to.

    Raises:
        PathUnavailable: `wanted` is not a path of this database.
    """
    fast = _fast_path(dialect)
    if wanted is None:
        return fast or PORTABLE
    if wanted == PORTABLE.name:
        return PORTABLE
    if fast is None or fast.name != wanted:
        possible = [path.name for path in (fast, PORTABLE) if path is not None]
        raise PathUnavailable(wanted, database=database_of(dialect), possible=possible)
    return fast


def explain(dialect: Dialect, wanted: PathName | None = None) -> Explanation:
    """Say which path `choose` returns, and why."""
    path = choose(dialect, wanted)
    known = _FAST.get(kind_of(dialect))
    if path is not PORTABLE:
        why = path.shape
    elif wanted is not None:
        why = f"it was asked for. It {path.shape}"
    elif known is None:
        why = f"there is no faster one for it. It {path.shape}"
    else:
        why = f"the faster one needs {_dotted(known.since)} or newer. It {path.shape}"
    return Explanation(
        path=path.name,
        database=database_of(dialect),
        why=why,
        steps_over_locked_rows=path.steps_over,
        run_in_tests=path.run_in_tests,
    )


def kind_of(dialect: Dialect) -> str:
    if dialect.name == "mysql" and getattr(dialect, "is_mariadb", False):
        return "mariadb"
    return dialect.name


def database_of(dialect: Dialect) -> str:
    return f"{kind_of(dialect)} {_dotted(_version(dialect))}".strip()


def _fast_path(dialect: Dialect) -> Path | None:
    path = _FAST.get(kind_of(dialect))
    return path if path is not None and _version(dialect) >= path.since else None


def _version(dialect: Dialect) -> Version:
    found = getattr(dialect, "server_version_info", None) or ()
    if not found and dialect.name == "sqlite" and dialect.dbapi is not None:
        found = getattr(dialect.dbapi, "sqlite_version_info", ())
    return tuple(part for part in found if isinstance(part, int))


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
