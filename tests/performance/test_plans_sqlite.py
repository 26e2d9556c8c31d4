"""The plans of SQLite at depth: 50,000 finished executions, a few live ones."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest

from penstock.model.executions import Swept
from penstock.store.contract import Store
from penstock.store.sql import Statement, load_statements
from penstock.store.sqlite import statistics
from penstock.store.sqlite.migrating import PACKAGE
from penstock.store.sqlite.store import SqliteStore
from tests.contract.databases import SqliteDatabase
from tests.contract.support import claim, worker
from tests.performance.counting import Counter
from tests.performance.filling import add_live, fill_finished, fill_ready, gather_statistics
from tests.performance.living import live_through

FEW, MANY = 500, 50_000
DEEP = ("task_executions", "task_outbox", "execution_events")
PLANNED = ("WITH", "SELECT", "INSERT", "UPDATE", "DELETE")
MAY_SCAN = frozenset({"counts", "inspect_backlog", "ready_tasks"})  # count them all, and say so

# From here on SQLite uses no index for a table that ANALYZE has seen almost empty, until a worker
# has had that forgotten.
NEEDS_A_WORKER = (3, 41)

MakeSqlite = Callable[[], SqliteDatabase]
Fill = Callable[[SqliteDatabase, int], None]


def _no_statistics(database: SqliteDatabase, finished: int) -> None:
    fill_finished(database, finished)


def _statistics_of_empty_tables(database: SqliteDatabase, finished: int) -> None:
    gather_statistics(database)
    fill_finished(database, finished)


def _statistics_of_live_rows(database: SqliteDatabase, finished: int) -> None:
    with _open(database) as store:
        add_live(store, database)
    gather_statistics(database)
    database.empty()
    fill_finished(database, finished)


def _statistics_up_to_date(database: SqliteDatabase, finished: int) -> None:
    fill_finished(database, finished)
    gather_statistics(database)


@contextmanager
def _open(database: SqliteDatabase) -> Iterator[Store]:
    store = database.open()
    try:
        yield store
    finally:
        store.close()


@pytest.fixture(
    scope="module",
    params=[
        _no_statistics,
        _statistics_of_empty_tables,
        _statistics_of_live_rows,
        _statistics_up_to_date,
    ],
    ids=lambda fill: fill.__name__.strip("_"),
)
def fill(request: pytest.FixtureRequest) -> Fill:
    fill: Fill = request.param
    return fill


@pytest.fixture(scope="module")
def deep(fill: Fill, make_sqlite: MakeSqlite) -> SqliteDatabase:
    database = make_sqlite()
    fill(database, MANY)
    return database


def _connected(database: SqliteDatabase) -> sqlite3.Connection:
    connection = sqlite3.connect(database.path, isolation_level=None)
    if sqlite3.sqlite_version_info >= NEEDS_A_WORKER:
        connection.execute("BEGIN IMMEDIATE")
        statistics.forget(connection)
        connection.execute("COMMIT")
    return connection


LOADED = load_statements(PACKAGE)
STATEMENTS = [
    statement
    for name, statement in LOADED.items()
    if statement.sql.startswith(PLANNED) and name not in MAY_SCAN
]


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.name)
def test_no_statement_scans_a_table_that_grows(deep: SqliteDatabase, statement: Statement) -> None:
    with closing(_connected(deep)) as connection:
        for form in ("one_at_once_form", "one_at_once_rule"):
            connection.execute(LOADED[form].sql)
        plan = connection.execute(
            f"EXPLAIN QUERY PLAN {statement.sql}", dict.fromkeys(statement.parameters)
        ).fetchall()

    names = {
        name
        for table in DEEP
        for alias in re.findall(rf"\b{table}\b(?: AS (\w+))?", statement.sql)
        for name in (table, alias)
        if name
    }
    scans = [
        detail
        for *_, detail in plan
        for name in names
        if re.match(rf"SCAN {name}\b(?! USING (COVERING )?INDEX task_executions_)", detail)
    ]
    assert scans == []


def _steps_of_a_life(
    database: SqliteDatabase, finished: int, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> int:
    fill(database, finished)
    counter = Counter()
    with monkeypatch.context() as patch:
        counter.watch(patch)
        with _open(database) as store:
            store.migrate()
            counter.forget()
            live_through(store, database)
    return counter.steps


def test_the_work_for_a_few_live_tasks_does_not_grow_with_the_finished_ones(
    fill: Fill, make_sqlite: MakeSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = _steps_of_a_life(make_sqlite(), FEW, fill, monkeypatch)
    many = _steps_of_a_life(make_sqlite(), MANY, fill, monkeypatch)

    assert few > 100
    assert many <= few * 1.02


@pytest.mark.parametrize("sweep", [SqliteStore.sweep, SqliteStore.sweep_events])
def test_a_sweep_reads_no_more_than_it_removes(
    fill: Fill,
    make_sqlite: MakeSqlite,
    monkeypatch: pytest.MonkeyPatch,
    sweep: Callable[..., Swept],
) -> None:
    steps: list[int] = []
    for finished in (FEW, MANY):
        database = make_sqlite()
        fill(database, finished)
        counter = Counter()
        with monkeypatch.context() as patch:
            counter.watch(patch)
            with _open(database) as store:
                store.migrate()
                if sqlite3.sqlite_version_info >= NEEDS_A_WORKER:
                    worker(store)
                counter.forget()
                swept = sweep(store, older_than=timedelta(days=-1), limit=100)
        assert swept.removed == 100
        steps.append(counter.steps)

    assert steps[1] <= steps[0] * 1.02


def test_a_claim_reads_no_more_of_a_deep_outbox_than_it_takes(
    make_sqlite: MakeSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    for ready in (FEW, MANY):
        database = make_sqlite()
        gather_statistics(database)
        fill_ready(database, ready)
        counter = Counter()
        with monkeypatch.context() as patch:
            counter.watch(patch)
            with _open(database) as store:
                worker(store)
                counter.forget()
                assert len(claim(store, limit=10)) == 10
        steps.append(counter.steps)

    assert steps[1] <= steps[0] * 1.02
