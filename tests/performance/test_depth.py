"""A claim takes as long as what it hands out, whatever else is in the tables."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import psycopg
import pytest

from penstock.store.contract import Store
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase
from tests.contract.support import claim, finish, worker
from tests.performance.filling import fill_ready, fill_scheduled
from tests.performance.measuring import COMPARISONS, least, slowdown

MILLION = 1_000_000
CLAIMS = 200
LIMIT = 10
WARM_UP = 20
NEEDED = (CLAIMS * COMPARISONS + WARM_UP) * LIMIT
MOST = 1.5

MakeDatabase = Callable[[], Database]
Slowdown = Callable[[Database, Database], float]

pytestmark = [pytest.mark.performance, pytest.mark.slow, pytest.mark.timeout(300)]


@contextmanager
def ready_to_claim(database: Database) -> Iterator[Callable[[], None]]:
    """Give a claim that finds something, as often as a comparison needs it."""
    fill_ready(database, NEEDED)
    store = database.open()
    worker(store)
    try:
        yield lambda: _claim(store)
    finally:
        store.close()


def _claim(store: Store) -> None:
    assert len(claim(store, limit=LIMIT)) == LIMIT


@pytest.fixture
def slowdown_of_claims(note: Callable[[float], None]) -> Slowdown:

    def compare(without: Database, with_: Database) -> float:
        measured = _slowdown_of_claims(without, with_)
        note(measured)
        return measured

    return compare


def _slowdown_of_claims(without: Database, with_: Database) -> float:
    with ready_to_claim(without) as first, ready_to_claim(with_) as second:
        _write_back(without)
        slowdown(first, second, rounds=WARM_UP)
        return least(lambda: slowdown(first, second, rounds=CLAIMS), enough=MOST)


def _write_back(database: Database) -> None:
    """Have what was just filled written to disk now, and not in the middle of a comparison."""
    if database.dialect == "postgres":
        with suppress(psycopg.errors.InsufficientPrivilege):
            database.query("CHECKPOINT")


def test_a_million_tasks_for_tomorrow_do_not_slow_a_claim(
    make_database: MakeDatabase, slowdown_of_claims: Slowdown
) -> None:
    without, with_ = make_database(), make_database()
    fill_scheduled(with_, MILLION)

    assert slowdown_of_claims(without, with_) < MOST


def test_a_million_ready_tasks_that_a_worker_does_not_know_do_not_slow_its_claims(
    make_database: MakeDatabase, slowdown_of_claims: Slowdown
) -> None:
    without, with_ = make_database(), make_database()
    fill_ready(with_, MILLION, task="of-another-service")

    assert slowdown_of_claims(without, with_) < MOST


@contextmanager
def transaction_held_open(database: Database) -> Iterator[None]:
    """Keep a view of the database as it is now: nothing that it shows can be tidied up."""
    with ExitStack() as stack:
        match database:
            case PostgresDatabase():
                connection = stack.enter_context(database.connect())
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.execute("SELECT count(*) FROM workers")
            case SqliteDatabase():
                reader = sqlite3.connect(database.path, isolation_level=None)
                stack.callback(reader.close)
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM workers")
            case _:
                raise TypeError(database)
        yield


def test_a_transaction_held_open_during_60_000_claims_does_not_slow_them(
    make_database: MakeDatabase, slowdown_of_claims: Slowdown
) -> None:
    without, with_ = make_database(), make_database()
    fill_ready(with_, 60_000)
    store = with_.open()
    worker(store)
    with transaction_held_open(with_):
        for _ in range(600):
            claimed = claim(store, limit=100)
            assert store.settle([finish(one) for one in claimed]) == []
        store.close()

        assert slowdown_of_claims(without, with_) < MOST
