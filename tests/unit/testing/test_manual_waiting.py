"""ManualApp: what waits for the clock goes on when it has moved, on threads and on loops."""

import asyncio
import threading
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from penstock import (
    App,
    AsyncTaskHandle,
    Defer,
    DeferTimeout,
    TaskHandle,
)
from penstock.engine.remembering import WaitTimeout
from penstock.testing import ManualApp
from penstock.testing.manual import LoopRunning

# --- deferral ---------------------------------------------------------------------------------


def test_a_deferred_task_is_checked_when_the_clock_says_so(app: App, manual: ManualApp) -> None:
    checks: list[bool] = []
    arrived = threading.Event()

    @app.task(timeout="1s")
    def load(handle: TaskHandle) -> int:
        def is_there() -> bool:
            checks.append(arrived.is_set())
            return arrived.is_set()

        handle.defer_until(is_there, every="5s", reason="no file yet")
        return len(checks)

    execution = load.enqueue()
    manual.run_until_idle()
    assert (execution.refresh().state, execution.sub_state) == ("running", "deferred")
    manual.advance("4s")
    manual.run_until_idle()
    assert checks == [False]
    manual.advance("1s")
    manual.run_until_idle()
    assert checks == [False, False]

    arrived.set()
    manual.run_for("5s")
    assert execution.result(timeout=0) == 3
    assert [event.type for event in execution.history()][-4:] == [
        "task.started", "task.deferred", "task.resumed", "task.completed",
    ]  # fmt: skip


@pytest.mark.parametrize("hours", [1, 1.1, 0.3])
def test_a_deferral_ends_with_its_timeout_to_the_microsecond(
    app: App, manual: ManualApp, hours: float
) -> None:
    @app.task(retry=None)
    def load(handle: TaskHandle) -> str:
        try:
            handle.defer_until(lambda: False, every="7m", timeout=timedelta(hours=hours))
        except DeferTimeout:
            return "gave up"
        return "never"

    execution = load.enqueue()
    manual.run_until_idle()
    manual.advance(timedelta(hours=hours) - timedelta(milliseconds=1))
    manual.run_until_idle()
    assert execution.refresh().state == "running"
    manual.advance("1ms")
    manual.run_until_idle()
    assert execution.result(timeout=0) == "gave up"


def test_a_timeout_is_exact_although_sums_of_fractions_are_not(app: App, manual: ManualApp) -> None:
    @app.task(retry=None)
    def load(handle: TaskHandle) -> str:
        manual.advance("100ms")  # 0.1 + 0.2 is a little more than 0.3
        try:
            handle.defer_until(lambda: False, timeout="200ms")
        except DeferTimeout:
            return "gave up"
        return "never"

    execution = load.enqueue()
    manual.run_until_idle()
    manual.advance("200ms")
    manual.run_until_idle()
    assert execution.result(timeout=0) == "gave up"


def test_others_run_while_one_waits(app: App, manual: ManualApp) -> None:
    gate = threading.Event()

    @app.task(max_running=1)
    def wait(handle: TaskHandle) -> None:
        handle.defer_until(gate.is_set)

    @app.task
    def note() -> None: ...

    first, second = wait.enqueue(), wait.enqueue()
    other = note.enqueue()
    assert manual.run_until_idle() == [first, other]
    assert second.refresh().state == "ready"  # max_running counts those that wait
    gate.set()
    manual.advance(5)
    assert manual.run_until_idle() == [first, second]


def test_a_durable_deferral_comes_back_after_its_delay(app: App, manual: ManualApp) -> None:
    begin = manual.clock.now()

    @app.task
    def ask(handle: TaskHandle) -> str:
        if manual.clock.now() - begin < timedelta(hours=2):
            handle.defer_for("2h", reason="not yet")
        return "there"

    @app.task
    def wait() -> str:
        if manual.clock.now() - begin < timedelta(hours=1):
            raise Defer(until=begin + timedelta(hours=1))
        return "there"

    asked, waited = ask.enqueue(), wait.enqueue()
    manual.run_until_idle()
    assert asked.refresh().state == waited.refresh().state == "scheduled"
    manual.advance("1h")
    assert manual.run_until_idle() == [waited]
    manual.advance("1h")
    assert manual.run_until_idle() == [asked]
    assert (asked.result(timeout=0), asked.attempt, waited.result(timeout=0)) == (
        "there",
        1,
        "there",
    )


def test_a_waiting_task_hears_that_it_is_cancelled(app: App, manual: ManualApp) -> None:
    @app.task
    def wait(handle: TaskHandle) -> None:
        handle.defer_until(lambda: False)

    @app.task
    async def await_(handle: AsyncTaskHandle) -> None:
        await handle.defer_until(lambda: False)

    executions = wait.enqueue(), await_.enqueue()
    manual.run_until_idle()
    for execution in executions:
        assert execution.cancel("enough") == "requested"
    manual.run_until_idle()
    assert [execution.refresh().state for execution in executions] == ["cancelled", "cancelled"]


def test_a_running_task_hears_that_it_is_cancelled(app: App, manual: ManualApp) -> None:
    @app.task
    def work(handle: TaskHandle) -> None:
        assert not handle.cancelled
        app.get(handle.execution_id).cancel()
        handle.raise_if_cancelled()

    execution = work.enqueue()
    manual.run_until_idle()
    assert execution.refresh().state == "cancelled"


def test_what_still_waits_at_the_end_is_given_back(app: App, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'tests.db'}"
    ended: list[str] = []

    @app.task
    def wait(handle: TaskHandle) -> None:
        try:
            handle.defer_until(lambda: False)
        finally:
            ended.append("thread")

    @app.task
    async def await_(handle: AsyncTaskHandle) -> None:
        try:
            await handle.defer_until(lambda: False)
        finally:
            ended.append("loop")

    with ManualApp(app, database=url) as manual:
        wait.enqueue()
        await_.enqueue()
        manual.run_until_idle()
        assert ended == []
    assert sorted(ended) == ["loop", "thread"]
    with closing(App(url)) as later:
        assert later.counts()["ready"] == 2


# --- workflows ----------------------------------------------------------------------------------


@dataclass
class Daily:
    day: str


def test_a_workflow_runs_to_its_end_with_the_clock(app: App, manual: ManualApp) -> None:
    daily = app.workflow("daily", inputs=Daily)
    opens_at = manual.clock.now() + timedelta(hours=1)

    @daily.task
    def fetch(day: str) -> list[int]:
        return [len(day), 2, 3]

    @daily.task
    async def total(handle: AsyncTaskHandle, ids: list[int] = fetch.output) -> int:
        await handle.defer_until(lambda: manual.clock.now() >= opens_at, every="10m")
        return sum(ids)

    @daily.task(retry=["1m"])
    def report(handle: TaskHandle, number: int = total.output) -> str:
        if handle.attempt == 1:
            raise ConnectionError("down")
        return f"total {number}"

    run = daily.start(day="2026-11-15")
    manual.run_until_idle()
    assert manual.enqueued(fetch, day="2026-11-15")
    assert run.refresh().state == "running"
    manual.run_for("59m")
    assert run.tasks["total"].sub_state == "deferred"
    manual.run_for("2m")
    assert run.result(timeout=0) == {"fetch": [10, 2, 3], "total": 15, "report": "total 15"}


def test_steps_signals_and_their_timeouts_go_by_the_clock(app: App, manual: ManualApp) -> None:
    calls: list[str] = []

    @app.task(retry=None)
    def order(handle: TaskHandle, name: str) -> str:
        handle.step("reserve", calls.append, name)
        try:
            return str(handle.wait_for(signal="paid", timeout="1h"))
        except WaitTimeout:
            return "never paid"

    paid, late = order.enqueue("paid"), order.enqueue("late")
    manual.run_until_idle()
    app.signal(paid.id, "paid", "in full")
    manual.run_until_idle()
    assert paid.result(timeout=0) == "in full"
    manual.advance("59m")
    manual.run_until_idle()
    assert late.refresh().state == "scheduled"
    manual.advance("1m")
    manual.run_until_idle()
    assert late.result(timeout=0) == "never paid"
    assert calls == ["paid", "late"]


def test_what_was_told_too_late_can_be_rerun_and_told_in_time(app: App, manual: ManualApp) -> None:
    @app.task(retry=None)
    def order(handle: TaskHandle) -> str:
        return str(handle.wait_for(signal="paid", timeout="1h"))

    execution = order.enqueue()
    manual.run_for("1h")
    assert "did not come within 1h. Handle this" in (execution.refresh().error or {})["message"]
    assert execution.rerun() == "rerun"
    manual.run_for("59m")
    assert app.signal(execution.id, "paid", "in full") == "told"
    manual.run_until_idle()
    assert execution.result(timeout=0) == "in full"


# --- crashes ------------------------------------------------------------------------------------


def test_after_a_crash_the_execution_is_recovered_when_a_lease_has_passed(
    app: App, manual: ManualApp
) -> None:
    effects: list[int] = []

    @app.task
    def act(handle: TaskHandle) -> int:
        effects.append(handle.attempt)
        return handle.attempt

    execution = act.enqueue()
    manual.crash_after(act)
    manual.run_until_idle()
    assert (effects, execution.refresh().state) == ([1], "running")
    manual.advance("14s")
    manual.run_until_idle()
    assert effects == [1]
    manual.advance("1s")
    manual.run_until_idle()
    assert effects == [1, 2]
    assert execution.result(timeout=0) == 2
    assert "task.recovered" in [event.type for event in execution.history()]


def test_who_waits_in_a_worker_that_dies_begins_again(app: App, manual: ManualApp) -> None:
    begun: list[int] = []
    gate = threading.Event()

    @app.task
    def wait(handle: TaskHandle) -> str:
        begun.append(handle.attempt)
        handle.defer_until(gate.is_set)
        return "done"

    @app.task
    def act() -> None: ...

    execution = wait.enqueue()
    act.enqueue()
    manual.crash_after(act)
    manual.run_until_idle()
    gate.set()
    manual.run_for("1m")
    assert begun == [1, 2]
    assert execution.result(timeout=0) == "done"


# --- async --------------------------------------------------------------------------------------


def test_async_tasks_wait_for_the_clock_too(app: App, manual: ManualApp) -> None:
    gate = threading.Event()

    async def is_open() -> bool:
        await asyncio.sleep(0)
        return gate.is_set()

    @app.task
    async def load(handle: AsyncTaskHandle) -> str:
        await handle.progress(0.5, "half way")
        await handle.defer_until(is_open, every="5s")
        return "loaded"

    execution = load.enqueue()
    manual.run_until_idle()
    assert execution.refresh().sub_state == "deferred"
    gate.set()
    manual.run_for("5s")
    assert execution.result(timeout=0) == "loaded"


def test_on_a_running_loop_async_tasks_run_on_that_loop(app: App, manual: ManualApp) -> None:
    gate = threading.Event()

    @app.task
    async def load(handle: AsyncTaskHandle) -> int:
        await handle.defer_until(gate.is_set, every="5s")
        return id(asyncio.get_running_loop())

    @app.task
    def note() -> int:
        return threading.get_ident()

    async def on_a_loop() -> None:
        with pytest.raises(LoopRunning, match=r"await manual\.arun_until_idle"):
            manual.run_until_idle()
        execution = await load.aenqueue()
        other = await note.aenqueue()
        await manual.arun_until_idle()
        assert (await execution.arefresh()).sub_state == "deferred"
        assert await other.aresult(timeout=0) != threading.get_ident()
        gate.set()
        assert await manual.arun_for("1m") == [execution]
        assert await execution.aresult(timeout=0) == id(asyncio.get_running_loop())

    asyncio.run(on_a_loop())


@pytest.mark.parametrize("colour", ["plain", "async"])
def test_a_block_on_a_loop_leaves_nothing_behind(app: App, colour: str) -> None:
    ended: list[bool] = []

    @app.task
    async def wait(handle: AsyncTaskHandle) -> None:
        try:
            await handle.defer_until(lambda: False)
        finally:
            ended.append(True)

    async def in_it(manual: ManualApp) -> None:
        await wait.aenqueue()
        await manual.arun_until_idle()

    async def on_a_loop() -> None:
        if colour == "async":
            async with ManualApp(app) as manual:
                await in_it(manual)
        else:
            with ManualApp(app) as manual:
                await in_it(manual)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(on_a_loop())
    assert ended == [True]
