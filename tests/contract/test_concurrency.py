from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from penstock.model.executions import Created
from penstock.model.rules import Both, TaskEnded
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.store.contract import Store
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase, count
from tests.contract.flows import graph, new_run, node
from tests.contract.processes import (
    claim_and_complete,
    complete_one_side,
    in_processes,
    migrate,
)
from tests.contract.support import claim, enqueue_many, finish, ids, new, worker
from tests.contract.threads import in_threads

TASKS_TO_CLAIM = 20_000


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    """A store on the database's own clock: the threads and processes have no other in common."""
    store = database.open()
    store.migrate()
    yield store
    store.close()


def _drained_by(processes: int, database: Database) -> None:
    """Check that so many processes run each of the tasks once, and that the history says so."""
    store = database.open()
    store.migrate()
    created: set[str] = set()
    for _ in range(TASKS_TO_CLAIM // 5000):
        created |= set(enqueue_many(store, 5000))

    shares = in_processes(processes, claim_and_complete, database)

    claimed = Counter(task_id for share in shares for task_id in share)
    assert set(claimed) == created
    assert set(claimed.values()) == {1}
    assert count(database, "task_outbox") == 0
    assert store.counts()[State.COMPLETED] == TASKS_TO_CLAIM
    told = database.query(
        "SELECT type, worker_id, count(*) FROM execution_events GROUP BY type, worker_id"
    )
    per_worker = {f"process-{n}": len(share) for n, share in enumerate(shares) if share}
    for event in ("task.claimed", "task.completed"):
        assert {who: rows for type_, who, rows in told if type_ == event} == per_worker
    for event in ("task.created", "task.marked_ready"):
        assert [rows for type_, _, rows in told if type_ == event] == [TASKS_TO_CLAIM]
    store.close()


@pytest.mark.slow
def test_eight_processes_on_postgres_claim_each_task_once(postgres: PostgresDatabase) -> None:
    _drained_by(8, postgres)


@pytest.mark.slow
def test_four_processes_on_sqlite_claim_each_task_once(sqlite: SqliteDatabase) -> None:
    _drained_by(4, sqlite)


@pytest.mark.parametrize("name", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_two_processes_that_migrate_at_once_both_succeed(
    request: pytest.FixtureRequest, name: str
) -> None:
    database: Database = request.getfixturevalue(name)

    ran = in_processes(2, migrate, database)

    assert sum(1 in versions for versions in ran) == 1
    ((databases,),) = database.query("SELECT count(DISTINCT database_id) FROM schema_version")
    assert databases == 1


def test_threads_of_one_process_claim_each_task_once(store: Store, database: Database) -> None:
    created = enqueue_many(store, 1000)
    for n in range(8):
        worker(store, f"thread-{n}")

    def run(n: int) -> list[str]:
        done: list[str] = []
        while batch := claim(store, f"thread-{n}", limit=7):
            assert store.settle([finish(one) for one in batch]) == []
            done += ids(batch)
        return done

    shares = in_threads([partial(run, n) for n in range(8)])

    assert sorted(task_id for share in shares for task_id in share) == sorted(created)
    assert count(database, "task_outbox") == 0


def test_fifty_creates_of_one_key_are_one_execution(store: Store) -> None:
    requested = [new(key="order-1") for _ in range(50)]

    answers = in_threads([partial(store.create, [one]) for one in requested])

    created = [answer for (answer,) in answers if answer.created]
    assert len(created) == 1
    assert {answer.id for (answer,) in answers} == {created[0].id}
    assert [one.id for one in store.find()] == [created[0].id]


def test_bulk_creates_with_opposite_orders_of_keys_do_not_block_each_other(
    store: Store,
) -> None:
    keys = [f"key-{n:02}" for n in range(40)]

    def create(order: list[str]) -> list[list[Created]]:
        answers = []
        for round_ in range(15):
            batch = [new(key=f"{round_}-{key}", serial=f"{round_}-{key}") for key in order]
            answers.append(store.create(batch))
        return answers

    forwards, backwards = in_threads([partial(create, keys), partial(create, keys[::-1])])

    for there, back in zip(forwards, backwards, strict=True):
        assert [answer.id for answer in there] == [answer.id for answer in back[::-1]]
        assert sum(answer.created for answer in there + back) == len(keys)


def test_a_serial_that_many_add_to_at_once_runs_one_at_a_time(store: Store) -> None:
    worker(store)
    in_threads([lambda: [store.create([new(serial="line")]) for _ in range(10)] for _ in range(5)])

    for _ in range(50):
        (only,) = claim(store)
        assert store.settle([finish(only)]) == []
    assert claim(store) == []


def test_one_that_is_created_twice_at_once_is_written_once(
    store: Store, database: Database
) -> None:
    for _ in range(20):
        requested = [new(), new(serial="line")]
        first, second = in_threads([partial(store.create, requested)] * 2)
        assert [answer.id for answer in first] == [answer.id for answer in second]
        assert all(answer.created for answer in first + second)
    assert count(database, "task_executions") == 40


FAN_INS = 1000


def test_a_child_whose_parents_end_at_the_same_time_elsewhere_is_released_once(
    database: Database, store: Store
) -> None:
    both_ended = Both(TaskEnded("left", "completed"), TaskEnded("right", "completed"))
    shape = graph(
        node("left", queue="side-0"),
        node("right", queue="side-1"),
        node("join", 0, 1, rule=both_ended, outputs={"left": 0, "right": 1}),
    )
    runs = [new_run(shape) for _ in range(FAN_INS)]
    store.start_runs(runs)

    in_processes(2, complete_one_side, database)

    worker(store)
    children: Counter[str | None] = Counter()
    while claimed := claim(store, limit=500):
        children.update(one.run_id for one in claimed)
        assert {one.args for one in claimed} == {'{"left":"done","right":"done"}'}
        assert store.settle([finish(one) for one in claimed]) == []
    assert children == Counter(run.id for run in runs)
    ended = {run.state for run in store.runs([run.id for run in runs])}
    assert ended == {RunState.COMPLETED}
