"""Steps, signals and runs inside a task, on both databases."""

import sqlite3
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from penstock import App, AsyncTaskHandle, ExecutionNotFound, TaskHandle, WaitTimeout
from penstock.engine.requests import Request
from penstock.engine.why import explain
from penstock.model.ids import new_id
from tests.e2e.flows import PATIENCE, work


@dataclass
class Paid:
    amount: int
    by: str


def test_a_step_is_taken_once_however_often_the_task_is_tried(flows: App) -> None:
    taken: list[str] = []

    def charge(amount: int, *, by: str) -> Paid:
        taken.append("charge")
        return Paid(amount, by)

    def ship() -> str:
        taken.append("ship")
        return "shipped"

    @flows.task(retry=[0, 0, 0])
    def order(handle: TaskHandle) -> str:
        paid = handle.step("charge", charge, 7, by="card")
        assert paid == Paid(7, "card")
        if taken.count("trouble") < 2:
            taken.append("trouble")
            raise ConnectionError("again")
        return handle.step("ship", ship)

    execution = order.enqueue()
    work(flows)
    assert execution.result(timeout=PATIENCE) == "shipped"
    assert taken == ["charge", "trouble", "trouble", "ship"]


def test_a_step_comes_back_as_a_class_that_is_local_to_a_function(flows: App) -> None:
    @dataclass
    class Receipt:
        number: int

    def charge() -> "Receipt":
        return Receipt(7)

    @flows.task(retry=[0])
    def order(handle: TaskHandle) -> int:
        receipt = handle.step("charge", charge)
        if handle.attempt == 1:
            raise ConnectionError("again")
        return receipt.number

    execution = order.enqueue()
    work(flows)
    assert execution.result(timeout=PATIENCE) == 7


def test_async_steps_take_plain_and_async_functions(flows: App) -> None:
    taken: list[str] = []

    async def first() -> int:
        taken.append("first")
        return 1

    def second(n: int) -> int:
        taken.append("second")
        return n + 1

    @flows.task(retry=[0])
    async def both(handle: AsyncTaskHandle) -> int:
        one = await handle.step("first", first)
        two = await handle.step("second", second, one)
        if handle.attempt == 1:
            raise ConnectionError("again")
        return one + two

    execution = both.enqueue()
    work(flows)
    assert execution.result(timeout=PATIENCE) == 3
    assert taken == ["first", "second"]


def test_a_task_waits_for_its_signal_without_a_worker(flows: App) -> None:
    @flows.task
    def publish(handle: TaskHandle) -> str:
        answer = handle.wait_for(signal="approved", timeout="7d")
        return f"published by {answer['by']}"

    execution = publish.enqueue()
    work(flows)
    assert execution.refresh().state == "scheduled"
    assert flows.signal(execution.id, "approved", {"by": "the editor"}) == "told"
    assert flows.signal(execution.id, "approved", {"by": "another"}) == "already"
    work(flows)
    assert execution.result(timeout=PATIENCE) == "published by the editor"
    assert execution.refresh().attempt == 1
    assert flows.signal(execution.id, "approved") == "finished"


def test_a_signal_that_is_too_late_for_the_wait_is_an_error(flows: App) -> None:
    @flows.task(retry=None)
    def publish(handle: TaskHandle) -> str:
        try:
            handle.wait_for(signal="approved", timeout=0.05)
        except WaitTimeout as late:
            return str(late)
        return "in time"

    execution = publish.enqueue()
    with flows.worker():
        assert "did not come within 50ms" in execution.result(timeout=PATIENCE)


def test_a_signal_belongs_to_the_transaction_around_it(flows: App, tmp_path: Path) -> None:
    @flows.task
    async def publish(handle: AsyncTaskHandle) -> object:
        return await handle.wait_for(signal="approved")

    execution = publish.enqueue()
    work(flows)
    assert execution.refresh().state == "waiting"
    url = flows.settings.database.url
    connection: sqlite3.Connection | psycopg.Connection[tuple[object, ...]]
    connection = (
        sqlite3.connect(tmp_path / "flows.db") if url.startswith("sqlite") else psycopg.connect(url)
    )
    with flows.using(connection=connection):
        assert flows.signal(execution.id, "approved", 1) == "told"
    connection.rollback()
    work(flows)
    assert execution.refresh().state == "waiting"
    with flows.using(connection=connection):
        assert flows.signal(execution.id, "approved", 2) == "told"
    connection.commit()
    connection.close()
    with flows.worker():
        assert execution.result(timeout=PATIENCE) == 2


def test_a_signal_to_nobody_says_so(flows: App) -> None:
    with pytest.raises(ExecutionNotFound):
        flows.signal(new_id(), "approved")
    with pytest.raises(ValueError, match="name of a signal"):
        flows.signal(new_id(), "")


def test_a_task_gets_the_results_of_the_run_that_it_started(flows: App) -> None:
    @dataclass
    class Pages:
        count: int

    child = flows.workflow("child", inputs=Pages)

    @child.task
    def render(count: int) -> list[str]:
        return [f"page {n}" for n in range(count)]

    @flows.task
    def parent(handle: TaskHandle) -> list[str]:
        first = handle.run(child, count=1)
        second = handle.run(child, count=2)
        return [*first["render"], *second["render"]]

    @flows.task
    async def aparent(handle: AsyncTaskHandle) -> dict[str, object]:
        return await handle.run(child, count=1)

    executions: list[Request[object]] = [parent.request(), aparent.request()]
    one, other = flows.enqueue_many(executions)
    with flows.worker():
        assert one.result(timeout=PATIENCE) == ["page 0", "page 0", "page 1"]
        assert other.result(timeout=PATIENCE) == {"render": ["page 0"]}
    assert len(flows.find_runs(workflow=child)) == 3


def test_no_step_can_have_the_name_of_a_wait_or_a_run(flows: App) -> None:
    """Each would be given what the other one has remembered."""
    child = flows.workflow("child")

    @child.task
    def only() -> int:
        return 1

    @flows.task
    def order(handle: TaskHandle) -> dict[str, object]:
        handle.run(child)
        handle.wait_for(signal="approved", timeout="7d")
        return {}

    execution = order.enqueue()
    work(flows)
    names = sorted(flows.store.memory(execution.id).steps)
    assert names == ["run child 1", "signal:approved"]

    @flows.task(retry=None)
    def charge(handle: TaskHandle, name: str) -> str:
        return handle.step(name, lambda: "charged")

    @flows.task(retry=None)
    async def acharge(handle: AsyncTaskHandle, name: str) -> str:
        return await handle.step(name, lambda: "charged")

    refused = [one.enqueue(name) for one in (charge, acharge) for name in names]
    similar = [charge.enqueue(name) for name in ("signals: 1", "Signal:approved", "run child")]
    work(flows)
    for one in refused:
        assert (one.refresh().error or {})["type"].endswith("InvalidName")
        assert "such names. Name what happens" in (one.error or {})["message"]
    assert [one.result(timeout=PATIENCE) for one in similar] == ["charged"] * 3


def test_why_says_what_a_task_waits_for_without_a_worker(flows: App) -> None:
    slow = flows.workflow("slow")

    @slow.task
    def step(handle: TaskHandle) -> object:
        return handle.wait_for(signal="go")

    @flows.task
    def parent(handle: TaskHandle) -> object:
        return handle.run(slow)

    @flows.task
    def publish(handle: TaskHandle) -> object:
        return handle.wait_for(signal="approved", timeout="1h")

    waits = [publish.enqueue().id, parent.enqueue().id]
    work(flows)
    told = []
    for execution_id in waits:
        facts = flows.store.explain_waiting(execution_id)
        assert facts is not None
        (reason,) = explain(facts, lease=timedelta(seconds=15))
        told.append(reason)
    assert [reason.code for reason in told] == ["signal", "child"]
    assert "'approved'" in told[0].sentence
    assert "until" in told[0].sentence
    (child,) = flows.find_runs(workflow=slow)
    assert child.id in told[1].sentence
