"""The plans of PostgreSQL at depth: 50,000 finished executions, seven live ones.

Each statement runs as the store sends it, prepared, with a plan made for its values and with
a plan made for any, on statistics that are right and on statistics from before the tables
filled. What counts is what a plan touched, not what it was expected to cost.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from psycopg import sql

from penstock.model.executions import Lease
from penstock.model.outcomes import Completed, Released
from penstock.store.batches import encode_leases, encode_new, encode_outcomes, encode_strings
from penstock.store.decoding import ABANDONED, HIGHEST_ID, LOWEST_ID
from penstock.store.postgres.store import PACKAGE
from penstock.store.sql import load_statements
from tests.contract.databases import PostgresDatabase
from tests.contract.support import QUEUE, TASK, TASKS, WORKER, new
from tests.performance.filling import (
    KEY,
    LINE,
    LIVE,
    add_live,
    fill_finished,
    gather_statistics,
)

FINISHED = 50_000
DEEP = frozenset({"task_executions", "execution_events"})
MOST_BLOCKS = 400  # a walk through the finished ones touches thousands

Parameters = Mapping[str, object]


class Deep(NamedTuple):
    """A schema with all those executions, and who the live ones are."""

    database: PostgresDatabase
    live: dict[str, list[str]]
    finished: str

    def leases(self) -> list[Lease]:
        return [Lease(id_, 1, WORKER) for id_ in self.live["running"]]


def _before_anything(database: PostgresDatabase) -> dict[str, list[str]]:
    gather_statistics(database)
    live = _add_live(database)
    fill_finished(database, FINISHED)
    return live


def _while_all_were_live(database: PostgresDatabase) -> dict[str, list[str]]:
    live = _add_live(database)
    gather_statistics(database)
    fill_finished(database, FINISHED)
    return live


def _up_to_date(database: PostgresDatabase) -> dict[str, list[str]]:
    fill_finished(database, FINISHED)
    live = _add_live(database)
    gather_statistics(database)
    return live


def _add_live(database: PostgresDatabase) -> dict[str, list[str]]:
    store = database.open()
    try:
        return add_live(store, database)
    finally:
        store.close()


@pytest.fixture(
    scope="module",
    params=[_before_anything, _while_all_were_live, _up_to_date],
    ids=["statistics-of-empty-tables", "statistics-of-live-rows", "statistics-up-to-date"],
)
def deep(
    request: pytest.FixtureRequest, make_postgres: Callable[[], PostgresDatabase]
) -> Iterator[Deep]:
    database = make_postgres()
    live = request.param(database)
    ((finished,),) = database.query(
        "SELECT id::text FROM task_executions WHERE state = 'completed' ORDER BY id LIMIT 1"
    )
    states = database.query("SELECT state, count(*) FROM task_executions GROUP BY state")
    assert dict(states) == {"completed": FINISHED, **LIVE}
    yield Deep(database, live, finished)
    database.query(f"DROP SCHEMA {database.schema} CASCADE")


class Expected(NamedTuple):
    """What to run a statement with, and the most rows that one step of it may read.

    That many rows are all that the statement is about, so none of them is a finished one.
    """

    most_rows: int
    parameters: Callable[[Deep], Parameters]


def _outcomes(deep: Deep) -> Parameters:
    first, second = deep.leases()
    outcomes = [Completed(lease=first, serial=LINE), Released(lease=second)]
    return {"batch": encode_outcomes(outcomes), "now": None, "notify": True}


def _claim(_deep: Deep) -> Parameters:
    return {
        "worker_id": WORKER,
        "queues": [QUEUE],
        "priorities": [0],
        "suspects": [False],
        "low_waters": [0],
        "most": [10],
        "tasks": list(TASKS),
        "limit": 10,
        "now": None,
    }


def _sweep(older_than: timedelta, limit: int) -> Parameters:
    return {"older_than": older_than, "after": LOWEST_ID, "limit": limit, "now": None}


EXPECTED: dict[str, Expected] = {
    "lanes": Expected(2, lambda _: {}),
    "claim_ready": Expected(2, _claim),
    "start": Expected(2, lambda deep: {"batch": encode_leases(deep.leases()), "now": None}),
    "settle": Expected(2, _outcomes),
    "settled_before": Expected(2, lambda deep: {"batch": _outcomes(deep)["batch"]}),
    "held": Expected(2, lambda deep: {"batch": encode_leases(deep.leases())}),
    "change_sub_state": Expected(
        2,
        lambda deep: {
            "batch": encode_leases(deep.leases()),
            "sub_state": "deferred",
            "event": "task.deferred",
            "data": None,
            "now": None,
        },
    ),
    "strangers": Expected(
        2, lambda deep: {"worker_id": WORKER, "batch": encode_leases(deep.leases()[:1])}
    ),
    "recover": Expected(
        3,
        lambda _: {
            "observer": WORKER,
            "abandoned": ABANDONED,
            "limit": 1000,
            "now": None,
            "notify": True,
        },
    ),
    "promote": Expected(1, lambda _: {"limit": 1000, "now": None, "notify": True}),
    "chores": Expected(3, lambda _: {"now": None}),
    "beat": Expected(2, lambda _: {"worker_id": WORKER, "now": None}),
    "sweep": Expected(0, lambda _: _sweep(timedelta(hours=1), 1000)),
    "lock_outbox": Expected(2, lambda deep: {"ids": deep.live["ready"]}),
    "lock_tasks": Expected(2, lambda deep: {"ids": deep.live["ready"]}),
    "cancel": Expected(2, lambda deep: {"ids": deep.live["ready"], "data": None, "now": None}),
    "request_cancel": Expected(2, lambda deep: {"ids": deep.live["running"]}),
    "create": Expected(
        2,
        lambda _: {
            "batch": encode_new([new(), new(serial=LINE), new(key="order-new")]),
            "now": None,
            "notify": "yes",
        },
    ),
    "holders": Expected(1, lambda _: {"batch": encode_new([new(key=KEY)])}),
    "advance_serials": Expected(
        1, lambda _: {"serials": encode_strings([LINE]), "now": None, "notify": "yes"}
    ),
    "forget_empty_serials": Expected(1, lambda _: {"serials": [LINE]}),
    "find_failed": Expected(
        0,
        lambda _: {"before": HIGHEST_ID, "task": TASK, "queue": None, "key": None, "limit": 100},
    ),
}


class Step(NamedTuple):
    """One node of a plan, after it ran."""

    kind: str
    table: str | None
    rows: int
    blocks: int


def explain(deep: Deep, name: str, parameters: Parameters, *, mode: str) -> list[Step]:
    """Run a statement of the store, prepared, and undo it; return what each step touched."""
    statement = load_statements(PACKAGE, schema=deep.database.schema)[name]
    values = sql.SQL(", ").join(sql.Literal(parameters[name]) for name in statement.parameters)
    call = sql.SQL("explained({})").format(values) if parameters else sql.SQL("explained")
    with deep.database.connect() as connection:
        connection.execute(f"SET LOCAL plan_cache_mode = {mode}".encode())
        connection.execute(f"PREPARE explained AS {statement.dollar}".encode())
        explained = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {}").format(call)
        row = connection.execute(explained).fetchone()
        connection.rollback()
    assert row is not None
    return list(_steps(row[0][0]["Plan"]))


def _steps(node: Mapping[str, Any]) -> Iterator[Step]:
    seen = (
        node["Actual Rows"]
        + node.get("Rows Removed by Filter", 0)
        + node.get("Rows Removed by Index Recheck", 0)
        + node.get("Rows Removed by Join Filter", 0)
    )
    yield Step(
        kind=node["Node Type"],
        table=node.get("Relation Name"),
        rows=round(seen * node["Actual Loops"]),
        blocks=node["Shared Hit Blocks"] + node["Shared Read Blocks"],
    )
    for inner in node.get("Plans", ()):
        yield from _steps(inner)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_statement_reads_no_finished_execution(deep: Deep, name: str, mode: str) -> None:
    expected = EXPECTED[name]

    steps = explain(deep, name, expected.parameters(deep), mode=mode)

    assert steps
    assert [step for step in steps if step.kind == "Seq Scan" and step.table in DEEP] == []
    reads = [step for step in steps if step.kind.endswith("Scan") and step.table in DEEP]
    assert [step for step in reads if step.rows > expected.most_rows] == []
    assert max(step.blocks for step in steps) <= MOST_BLOCKS


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
def test_a_sweep_reads_no_more_than_it_removes(deep: Deep, mode: str) -> None:
    steps = explain(deep, "sweep", _sweep(timedelta(days=-1), 100), mode=mode)

    assert [step for step in steps if step.kind == "Seq Scan" and step.table in DEEP] == []
    reads = [step.rows for step in steps if step.kind == "Index Scan" and step.table in DEEP]
    assert max(reads) <= 100 + sum(LIVE.values())
