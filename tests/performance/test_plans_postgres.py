"""The plans of PostgreSQL at depth: 50,000 finished executions, a few live ones.

Every statement runs as the store sends it, with a plan made for its values and with a
prepared plan for any values, on statistics that are right and on statistics from before the
tables filled. What counts is what a plan touched, not what it was expected to cost.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from penstock.model.executions import Swept
from penstock.store.postgres.session import Session
from penstock.store.postgres.store import PostgresStore
from tests.contract.databases import PostgresDatabase
from tests.contract.support import claim, worker
from tests.performance.explaining import ExplainingStore, Step
from tests.performance.filling import add_live, fill_finished, fill_ready, gather_statistics
from tests.performance.living import live_through

FINISHED = 50_000
MOST_ROWS = 16  # all that are live, and the events of one
MOST_BLOCKS = 300  # a walk through the finished ones touches thousands
CLAIMS = 30  # the driver prepares a statement at its fifth time
COUNTS_PLANS = 140_000
CUSTOM_AT_FIRST = 5  # for so long the server plans it for the values that it is given
DEEP = frozenset({"task_executions", "execution_events"})
MUST_BE_SEEN = frozenset(
    {
        "beat", "cancel", "chores", "claim_ready", "create", "create_fresh", "held", "holders",
        "lanes", "lock_outbox", "lock_tasks", "promote", "recover", "request_cancel", "settle",
        "settle_completed", "settled_before", "start", "strangers", "sweep", "roots_to_forget",
    }
)  # fmt: skip

MakePostgres = Callable[[], PostgresDatabase]


@pytest.fixture(params=["force_custom_plan", "force_generic_plan"])
def plan_cache_mode(request: pytest.FixtureRequest) -> str:
    mode: str = request.param
    return mode


def _statistics_of_empty_tables(database: PostgresDatabase) -> None:
    gather_statistics(database)
    fill_finished(database, FINISHED)


def _statistics_of_live_rows(database: PostgresDatabase) -> None:
    with closing(database.open()) as store:
        add_live(store, database)
    gather_statistics(database)
    database.empty()
    fill_finished(database, FINISHED)


def _statistics_up_to_date(database: PostgresDatabase) -> None:
    fill_finished(database, FINISHED)
    gather_statistics(database)


@pytest.fixture(
    scope="module",
    params=[_statistics_of_empty_tables, _statistics_of_live_rows, _statistics_up_to_date],
    ids=lambda fill: fill.__name__.strip("_"),
)
def deep(request: pytest.FixtureRequest, make_postgres: MakePostgres) -> PostgresDatabase:
    database = make_postgres()
    request.param(database)
    return database


@pytest.fixture
def store(deep: PostgresDatabase, plan_cache_mode: str) -> Iterator[ExplainingStore]:
    store = ExplainingStore(deep, plan_cache_mode=plan_cache_mode)
    yield store
    store.close()


def reads(steps: list[Step], *, of: frozenset[str] = DEEP) -> list[Step]:
    return [step for step in steps if step.table in of and step.kind.endswith("Scan")]


def sequential(steps: list[Step]) -> list[Step]:
    return [step for step in steps if step.kind == "Seq Scan"]


def test_no_statement_reads_finished_executions(
    store: ExplainingStore, deep: PostgresDatabase
) -> None:
    live_through(store, deep)

    assert {step.statement for step in store.steps} >= MUST_BE_SEEN
    assert sequential(reads(store.steps)) == []
    assert [step for step in reads(store.steps) if step.rows > MOST_ROWS] == []
    assert [step for step in store.steps if step.blocks > MOST_BLOCKS] == []


@pytest.mark.parametrize("analysed", [False, True], ids=["no_statistics", "statistics"])
def test_a_plan_made_for_empty_tables_still_serves_when_they_have_filled(
    make_postgres: MakePostgres, analysed: bool
) -> None:
    """A worker keeps its prepared plans until the next ANALYZE, however much is enqueued."""
    database = make_postgres()
    if analysed:
        gather_statistics(database)
    with closing(ExplainingStore(database, plan_cache_mode="force_generic_plan")) as store:
        live_through(store, database)
        fill_finished(database, FINISHED)
        store.steps.clear()
        live_through(store, database)

    assert sequential(reads(store.steps)) == []
    assert [step for step in reads(store.steps) if step.rows > MOST_ROWS] == []


@pytest.mark.parametrize("sweep", [PostgresStore.sweep, PostgresStore.sweep_events])
@pytest.mark.parametrize("dry_run", [True, False])
def test_a_sweep_reads_no_more_than_it_removes(
    store: ExplainingStore, sweep: Callable[..., Swept], dry_run: bool
) -> None:
    swept = sweep(store, older_than=timedelta(days=-1), limit=100, dry_run=dry_run)

    assert swept.removed == 100
    assert sequential(reads(store.steps)) == []
    assert max(step.rows for step in reads(store.steps)) <= 100 + MOST_ROWS


def test_a_claim_reads_no_more_of_a_deep_outbox_than_it_takes(
    make_postgres: MakePostgres, plan_cache_mode: str
) -> None:
    database = make_postgres()
    gather_statistics(database)
    fill_ready(database, FINISHED)
    with closing(ExplainingStore(database, plan_cache_mode=plan_cache_mode)) as store:
        worker(store)
        assert [len(claim(store, limit=10)) for _ in range(3)] == [10, 10, 10]

    looked_at = reads(store.steps, of=DEEP | {"task_outbox"})
    assert sequential(looked_at) == []
    assert max(step.rows for step in looked_at) <= 10


def test_a_claim_is_planned_once_whatever_the_statistics_remember(
    make_postgres: MakePostgres,
) -> None:
    """With a backlog in them, a plan for the one lane at hand looks cheaper than one for any."""
    database = make_postgres()
    fill_ready(database, FINISHED)
    gather_statistics(database)
    with closing(PostgresStore(database.url, schema=database.schema)) as store:
        worker(store)
        for _ in range(CLAIMS):
            assert len(claim(store, limit=1)) == 1
        (planned,) = store._run("look at the plans", _plans_of_claims)

    assert planned == CUSTOM_AT_FIRST


def _plans_of_claims(session: Session) -> list[int]:
    if session.connection.info.server_version < COUNTS_PLANS:
        pytest.skip("this server does not count its plans: that begins with PostgreSQL 14")
    told = session.connection.execute(
        "SELECT custom_plans FROM pg_prepared_statements WHERE statement LIKE '%handed_out%'"
    )
    return [row[0] for row in told.fetchall()]
