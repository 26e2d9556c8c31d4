"""What a create costs beside bare INSERTs of the same rows, in the same run."""

from collections.abc import Callable, Iterator

import pytest

from penstock.store.contract import Store
from tests.contract.databases import Database
from tests.contract.support import new
from tests.performance.inserting import COLUMNS, Inserter, Rows, inserter, rows_of_new_tasks
from tests.performance.measuring import least, slowdown

BULK_SHARE = 0.4
SINGLE_SHARE = 0.6

MakeDatabase = Callable[[], Database]
Note = Callable[[float], None]

pytestmark = pytest.mark.performance


@pytest.fixture
def bare_database(make_database: MakeDatabase) -> Database:
    return make_database()


@pytest.fixture
def bare(bare_database: Database) -> Iterator[Inserter]:
    with inserter(bare_database) as bare:
        yield bare


def test_a_create_writes_the_rows_that_it_is_compared_with(
    store: Store, database: Database, bare: Inserter, bare_database: Database
) -> None:
    store.create([new() for _ in range(10)])
    bare.many(rows_of_new_tasks(bare_database, 10))

    for table, columns in COLUMNS.items():
        known = [
            column
            for column in columns
            if column not in {"id", "root_id", "task_execution_id", "created_at", "at"}
        ]
        written = f"SELECT {', '.join(known)} FROM {table} ORDER BY {', '.join(known)}"
        assert database.query(written) == bare_database.query(written)


def share_of_the_rate(
    bare: Callable[[Rows], None],
    store: Store,
    at: Database,
    *,
    tasks: int,
    rounds: int,
    enough: float,
) -> float:
    """Create so many tasks in one call and insert as many bare, by turns; compare the rates."""

    def compare() -> float:
        # Made before the clock runs: only writing them is compared.
        rows = iter([rows_of_new_tasks(at, tasks) for _ in range(rounds)])
        executions = iter([[new() for _ in range(tasks)] for _ in range(rounds)])
        return slowdown(
            lambda: bare(next(rows)), lambda: store.create(next(executions)), rounds=rounds
        )

    return 1 / least(compare, enough=1 / enough)


def test_a_bulk_create_reaches_two_fifths_of_the_rate_of_bare_inserts(
    store: Store, bare: Inserter, bare_database: Database, note: Note
) -> None:
    share = share_of_the_rate(
        bare.many, store, bare_database, tasks=10_000, rounds=3, enough=BULK_SHARE
    )

    note(share)
    assert share >= BULK_SHARE


def test_a_single_create_reaches_three_fifths_of_the_rate_of_bare_inserts(
    store: Store, bare: Inserter, bare_database: Database, note: Note
) -> None:
    share = share_of_the_rate(
        bare.one, store, bare_database, tasks=1, rounds=200, enough=SINGLE_SHARE
    )

    note(share)
    assert share >= SINGLE_SHARE
