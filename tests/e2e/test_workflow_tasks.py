"""Retries, deferral, processes and completion in the handler's transaction, inside a workflow."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import App, AsyncTaskHandle, Context, TaskHandle, WorkflowFailed
from penstock.engine.workflow_errors import InvalidInputs
from penstock.store.opening import sqlite_path
from tests.e2e.flows import PATIENCE, events, order_of, states, work


@dataclass
class Count:
    number: int


@contextmanager
def transaction(app: App) -> Iterator[Any]:
    """A connection of the caller's own, committed at the end of the block."""
    url = app.settings.database.url
    connect = (
        sqlite3.connect(sqlite_path(url), timeout=PATIENCE)
        if url.startswith("sqlite")
        else psycopg.connect(url)
    )
    with closing(connect) as connection:
        yield connection
        connection.commit()


# --- attempts ---------------------------------------------------------------------------------


def test_a_task_is_retried_and_its_dependents_wait_for_the_last_attempt(flows: App) -> None:
    flow = flows.workflow("retried")

    @flow.task(retry=["10ms", "10ms"])
    def flaky(handle: TaskHandle, context: Context) -> int:
        context["tries"] = [handle.attempt]
        if handle.attempt < 3:
            raise ConnectionError
        return handle.attempt

    @flow.task
    def after(n: int = flaky.output) -> int:
        return n

    run = flow.start()
    with flows.worker(slots=2):
        assert run.result(PATIENCE) == {"flaky": 3, "after": 3}
    assert run.context == {"tries": [3]}
    assert events(run)["task.retry_scheduled"] == 2
    assert order_of(run, "task.claimed") == ["flaky"] * 3 + ["after"]


def test_a_deferred_task_holds_up_its_dependents_and_no_slot(flows: App) -> None:
    flow = flows.workflow("deferred")
    opened = threading.Event()

    @flow.task
    def waits(handle: TaskHandle, context: Context) -> int:
        handle.defer_until(opened.is_set, every="10ms")
        context["waited"] = True
        return 1

    @flow.task
    def opens() -> None:
        opened.set()

    @flow.task
    async def durably(handle: AsyncTaskHandle, n: int = waits.output) -> int:
        if handle.attempt == 1 and not opened.is_set():
            handle.defer_for("10ms")
        return n + 1

    run = flow.start()
    with flows.worker(slots=1):
        assert run.result(PATIENCE) == {"waits": 1, "opens": None, "durably": 2}
    assert run.context == {"waited": True}


def test_a_task_completed_in_a_callers_transaction_lets_its_dependents_go(flows: App) -> None:
    flow = flows.workflow("completing")

    @flow.task
    def books(handle: TaskHandle, context: Context) -> int:
        context["booked"] = True
        with transaction(flows) as connection:
            return handle.complete(42, connection=connection)

    @flow.task
    def after(context: Context, n: int = books.output) -> list[object]:
        return [n, context["booked"]]

    run = flow.start()
    with flows.worker(slots=2):
        assert run.result(PATIENCE) == {"books": 42, "after": [42, True]}
    assert run.context == {"booked": True}


def test_a_completion_that_is_rolled_back_lets_nothing_go(flows: App) -> None:
    flow = flows.workflow("undone")

    @flow.task(retry=None)
    def books(handle: TaskHandle) -> int:
        with transaction(flows) as connection:
            handle.complete(42, connection=connection)
            connection.rollback()
        return 42

    @flow.task(after=[books])
    def after() -> None: ...

    run = flow.start()
    with flows.worker(slots=2), pytest.raises(WorkflowFailed, match="was rolled back"):
        run.result(PATIENCE)
    assert states(run) == {"books": "failed", "after": "skipped"}


MODULE = """
import os
from penstock import Context, Registry, TaskHandle

tasks = Registry(prefix="shop.")
flow = tasks.workflow("apart")


@flow.task(executor="process")
def compute(handle: TaskHandle, context: Context) -> int:
    context["pid"] = os.getpid()
    return handle.attempt


@flow.task
def after(n: int = compute.output) -> int:
    return n + 1
"""


def test_a_task_in_a_process_of_its_own_shares_the_context(
    flows: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "apart_shop.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    flows.include("apart_shop")
    flows.import_included()
    flow = flows.workflows["shop.apart"]
    run = flow.start()
    with flows.worker(slots=2):
        assert run.result(PATIENCE) == {"compute": 1, "after": 2}
    assert run.context["pid"] > 1
    assert run.workflow == "shop.apart"


# --- starting ---------------------------------------------------------------------------------


def test_a_run_starts_with_the_callers_transaction_or_not_at_all(flows: App) -> None:
    flow = flows.workflow("joint", inputs=Count)

    @flow.task
    def only(number: int) -> int:
        return number

    flows.counts()  # opened: SQLite's tables are there before anybody else begins
    with transaction(flows) as connection:
        with flows.using(connection=connection):
            committed = flow.start(number=1)
        flow.using(connection=connection).start(number=2)
        assert flow.find() == []
    with transaction(flows) as connection:
        flow.using(connection=connection).start(number=3)
        connection.rollback()
    work(flows)
    assert [run.inputs["number"] for run in flow.find(state="completed")] == [2, 1]
    assert committed.result(PATIENCE) == {"only": 1}


def test_a_run_starts_from_a_loop_too(flows: App) -> None:
    flow = flows.workflow("awaited", inputs=Count)

    @flow.task
    async def only(number: int) -> int:
        return number

    async def main() -> dict[str, int]:
        run = await flow.astart(number=3)
        async with flows.worker(slots=1):
            return await run.aresult(PATIENCE)

    assert asyncio.run(main()) == {"only": 3}


def test_inputs_that_do_not_fit_write_nothing(flows: App) -> None:
    flow = flows.workflow("picky", inputs=Count)

    @flow.task
    def only(number: bool) -> bool:
        return number

    with pytest.raises(InvalidInputs, match="as the parameter 'number' of its task 'only' has it"):
        flow.start(number=3)
    with pytest.raises(InvalidInputs, match="number='3' does not fit int"):
        flow.start(number="3")  # type: ignore[arg-type]
    assert flow.find() == []
    assert sum(flows.counts().values()) == 0
