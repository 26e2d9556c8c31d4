"""What deep tables and long transactions do to our own rate."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.driving import Bench
from benchmarks.figures import Measured
from benchmarks.records import NotOnce
from benchmarks.sizes import Sizes
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase
from tests.performance.filling import fill_scheduled, gather_statistics

AT_ONCE = 50_000
MakeBench = Callable[[str], Bench]


def deep_benches(make: MakeBench, sizes: Sizes) -> dict[str, Bench]:
    """Four databases: one with little in it, the others with many tasks of one state each."""
    benches = {name: make(name) for name in ("shallow", "ready", "finished", "scheduled")}
    for bench in benches.values():
        bench.setup()
    _enqueue(benches["ready"], sizes.deep)
    _schedule(benches["scheduled"], sizes.deep)
    _finish(benches["finished"], sizes.deep)
    for bench in benches.values():
        if bench.system.kind == "postgres":
            _tidy_up(bench.url)
    return benches


def _tidy_up(url: str) -> None:
    """Do what PostgreSQL would do after such a fill, and not while something is measured."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
        connection.execute("CHECKPOINT")


def take_first(benches: Mapping[str, Bench], sizes: Sizes) -> Measured:
    """Compare how fast the first tasks come from each of them, by turns."""
    rates = {}
    for name, bench in benches.items():
        if name != "ready":
            _enqueue(bench, sizes.first)
        rates["shallow" if name == "shallow" else f"among {name}"] = _rate_of_first(
            bench, sizes.first
        )
    return rates


def hold_a_transaction(make: MakeBench, sizes: Sizes, turn: int) -> Measured:
    """Drain with a snapshot that keeps every dead row from being removed, and without one.

    Each on a database of its own: what the first has left behind must not burden the second.
    And another one is first each time.
    """
    rates = {}
    both = [("not held", False), ("held", True)]
    for key, held in both if turn % 2 == 0 else reversed(both):
        bench = make(key)
        with _snapshot(bench.url) if held else _nothing():
            _enqueue(bench, sizes.held)
            rates[key] = _rate_of_first(bench, sizes.held)
    return rates


def _rate_of_first(bench: Bench, count: int) -> float:
    """The rate at which so many handlers began; the worker is stopped then."""
    before = bench.left()
    with bench.workers() as crew:
        crew.wait_for(count)
    # What the worker had claimed and not begun it has given back; the rest is settled.
    settled, once = before - bench.left(), len({one.number for one in crew.ran})
    if not settled == once == len(crew.ran):
        raise NotOnce(
            bench.system.name, lost=settled - once, repeated=len(crew.ran) - once, strange=0
        )
    first = crew.ran[:count]
    return (count - 1) / (first[-1].at - first[0].at)


def _enqueue(bench: Bench, count: int) -> None:
    for first in range(0, count, AT_ONCE):
        bench.ask("bulk", bench.numbers(min(AT_ONCE, count - first)))


def _finish(bench: Bench, count: int) -> None:
    """Have a worker run so many.

    Rows that are written as finished ones lie otherwise: each page of PostgreSQL has room for one
    more row that is not finished yet, so that the next tasks would be strewn over all of them.
    """
    numbers = range(bench.used, bench.used + count)
    _enqueue(bench, count)
    with bench.workers() as crew:
        crew.wait_for(count)
        crew.wait_until_settled()
        crew.check(numbers)


def _schedule(bench: Bench, count: int) -> None:
    """Write what no worker will take straight into the tables, which is quicker."""
    database: Database
    if bench.system.kind == "postgres":
        database = PostgresDatabase(bench.url, "penstock")
    else:
        database = SqliteDatabase(Path(bench.url.removeprefix("sqlite:///")))
    fill_scheduled(database, count)
    gather_statistics(database)
    database.close()


@contextmanager
def _snapshot(url: str) -> Iterator[None]:
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT pg_current_xact_id()")
        yield


@contextmanager
def _nothing() -> Iterator[None]:
    yield
