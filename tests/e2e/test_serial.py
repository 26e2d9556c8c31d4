"""One serial, many processes: its executions run one at a time, in the order of their commits."""

import multiprocessing
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import combinations
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from penstock import App
from penstock.model.executions import Claimed
from penstock.model.outcomes import Completed
from penstock.model.workers import WorkerInfo
from penstock.store.contract import Store
from penstock.store.opening import sqlite_path

PROCESSES = 8
TASKS = 100
SERIAL = "order-42"
PATIENCE = 60.0


class Committed(NamedTuple):
    """An execution, and the two moments between which its transaction was committed."""

    execution_id: str
    process: int
    asked: float
    answered: float


def commit(app: App, url: str, process: int, number: int) -> Committed:
    """Enqueue one, in turn in a transaction of its own and in the caller's."""
    arguments = {"process": process, "number": number}
    if number % 2:
        asked = time.monotonic()
        execution = app.enqueue("ship", arguments, serial=SERIAL)
        return Committed(execution.id, process, asked, time.monotonic())
    with closing(connect(url)) as connection:
        with app.using(connection=connection):
            execution = app.enqueue("ship", arguments, serial=SERIAL)
        # The clock of all processes is one: it counts from the start of the machine.
        asked = time.monotonic()
        connection.commit()
        return Committed(execution.id, process, asked, time.monotonic())


def connect(url: str) -> Any:  # noqa: ANN401 - one of two drivers
    if url.startswith("sqlite"):
        return sqlite3.connect(sqlite_path(url), timeout=PATIENCE)
    return psycopg.connect(url)


def enqueue_some(
    answers: "multiprocessing.Queue[list[Committed]]",
    together: Barrier,
    url: str,
    schema: str | None,
    process: int,
) -> None:
    app = App(url, schema=schema)
    app.counts()
    together.wait(PATIENCE)
    share = range(process, TASKS, PROCESSES)
    answers.put([commit(app, url, process, number) for number in range(len(share))])
    app.close()


def enqueued_by_all(url: str, schema: str | None) -> list[Committed]:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    together = context.Barrier(PROCESSES)
    started = [
        context.Process(target=enqueue_some, args=(answers, together, url, schema, process))
        for process in range(PROCESSES)
    ]
    for process in started:
        process.start()
    committed = [one for _ in started for one in answers.get(timeout=PATIENCE)]
    for process in started:
        process.join(PATIENCE)
    assert [process.exitcode for process in started] == [0] * PROCESSES
    return committed


@pytest.fixture
def sqlite_app(tmp_path: Path) -> tuple[str, None]:
    return f"sqlite:///{tmp_path / 'orders.db'}", None


@pytest.fixture
def postgres_app(postgres_url: str, postgres_schema: str) -> tuple[str, str]:
    return postgres_url, postgres_schema


@pytest.fixture(
    params=["sqlite_app", pytest.param("postgres_app", marks=pytest.mark.postgres)],
    ids=["sqlite", "postgres"],
)
def place(request: pytest.FixtureRequest) -> tuple[str, str | None]:
    place: tuple[str, str | None] = request.getfixturevalue(request.param)
    return place


def claims_of(store: Store) -> Callable[[], list[Claimed]]:
    """Two workers that ask in turn, each for as much as it can get."""
    workers = ["worker-1", "worker-2"]
    for worker in workers:
        store.register(WorkerInfo(id=worker, queues=("default",), tasks=("ship",), slots=50))

    def claim() -> list[Claimed]:
        workers.reverse()
        return store.claim(workers[0], queues=["default"], tasks=["ship"], limit=50)

    return claim


def run_one_by_one(store: Store) -> Iterator[str]:
    claim = claims_of(store)
    while claimed := claim():
        (only,) = claimed
        assert claim() == []  # the other worker gets nothing while one of the serial runs
        yield only.lease.execution_id
        assert store.settle([Completed(lease=only.lease, serial=only.serial)]) == []


def test_a_hundred_of_one_serial_run_one_at_a_time_in_the_order_of_their_commits(
    place: tuple[str, str | None],
) -> None:
    url, schema = place
    app = App(url, schema=schema, migrate=True)
    assert set(app.counts().values()) == {0}
    committed = {one.execution_id: one for one in enqueued_by_all(url, schema)}
    assert len(committed) == TASKS
    assert (app.counts()["ready"], app.counts()["waiting"]) == (1, TASKS - 1)

    ran = [committed[execution_id] for execution_id in run_one_by_one(app.store)]

    assert app.counts()["completed"] == TASKS
    # Whatever had been committed before another's commit was asked for must have run before it.
    overtaken = [(one, two) for one, two in combinations(ran, 2) if two.answered < one.asked]
    assert overtaken == []
    for process in range(PROCESSES):
        own = [one.asked for one in ran if one.process == process]
        assert own == sorted(own)
    assert len({one.process for one in ran[: TASKS // 2]}) > 1  # they did enqueue side by side
    app.close()
