"""Pausing, resuming, cancelling and timing out a run, and what follows its end."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    App,
    AsyncTaskHandle,
    TaskHandle,
    WorkflowCancelled,
    WorkflowFailed,
    failed,
)
from penstock.engine.requests import InvalidOption
from tests.e2e.flows import PATIENCE, events, states, work


@dataclass
class Gate:
    """Two events between a task and its test, both in one process."""

    reached: threading.Event
    opened: threading.Event


@pytest.fixture
def gate() -> Gate:
    return Gate(threading.Event(), threading.Event())


@pytest.mark.parametrize("reason", ["\udcff", "\0"])
def test_a_reason_that_no_database_takes_is_refused_and_cancels_nothing(
    flows: App, reason: str
) -> None:
    flow = flows.workflow("cancelling")

    @flow.task
    def only() -> int:
        return 1

    execution, run = flows.enqueue("somebody's"), flow.start()
    for one in (execution, run):
        with pytest.raises(InvalidOption, match="reason="):
            one.cancel(reason)
    assert (execution.refresh().state, run.refresh().state) == ("ready", "running")


def test_a_paused_run_begins_nothing_and_goes_on_where_it_stood(flows: App, gate: Gate) -> None:
    flow = flows.workflow("pausing")

    @flow.task
    def first() -> int:
        gate.reached.set()
        assert gate.opened.wait(PATIENCE)
        return 1

    @flow.task
    def second(n: int = first.output) -> int:
        return n + 1

    run = flow.start()
    with flows.worker(slots=2) as worker:
        assert gate.reached.wait(PATIENCE)
        assert run.pause() == "done"
        assert run.pause() == "already"
        gate.opened.set()
        worker.wait_until_idle()
        # What ran has ended, and its result is kept for when the run goes on.
        assert states(run) == {"first": "completed", "second": "waiting"}
        assert run.state == "paused"
        assert run.resume() == "done"
        assert run.result(PATIENCE) == {"first": 1, "second": 2}
    assert run.resume() == "finished"
    assert events(run)["workflow.paused"] == events(run)["workflow.resumed"] == 1


def test_a_paused_run_takes_back_what_was_ready(flows: App) -> None:
    flow = flows.workflow("held")

    @flow.task
    async def only() -> int:
        return 1

    run = flow.start()
    asyncio.run(run.apause())
    work(flows)
    assert states(run) == {"only": "waiting"}
    asyncio.run(run.aresume())
    assert states(run) == {"only": "ready"}
    work(flows)
    assert run.result(PATIENCE) == {"only": 1}


def test_a_cancelled_run_ends_what_waits_and_asks_what_runs_to_stop(flows: App, gate: Gate) -> None:
    flow = flows.workflow("cancelling")

    @flow.task
    async def runs(handle: AsyncTaskHandle) -> None:
        gate.reached.set()
        await handle.defer_until(lambda: False, every=30)

    @flow.task(after=[runs])
    def waits() -> None: ...

    @flow.task(after=[runs], when=failed(runs))
    def makes_up() -> None: ...

    run = flow.start()
    with flows.worker(slots=2):
        assert gate.reached.wait(PATIENCE)
        assert run.cancel("the customer called") == "done"
        with pytest.raises(WorkflowCancelled, match="the customer called"):
            run.result(PATIENCE)
    assert run.state == "cancelled"
    assert states(run) == {"runs": "cancelled", "waits": "cancelled", "makes_up": "cancelled"}
    assert run.cancel() == "finished"
    assert events(run)["workflow.cancelled"] == 1


def test_a_run_that_has_not_begun_is_cancelled_at_once(flows: App) -> None:
    flow = flows.workflow("unbegun")

    @flow.task
    def only() -> None: ...

    run = flow.start()
    run.cancel()
    assert run.refresh().state == "cancelled"
    work(flows)
    assert states(run) == {"only": "cancelled"}
    assert run["only"].attempt == 0


def test_why_a_run_was_cancelled_is_what_was_said_in_this_life(flows: App) -> None:
    flow = flows.workflow("cancelled_twice")

    @flow.task
    def only() -> None: ...

    run = flow.start()

    def reason() -> str | None:
        with pytest.raises(WorkflowCancelled) as cancelled:
            run.result(PATIENCE)
        return cancelled.value.reason

    run.cancel("the wrong customer")
    assert reason() == "the wrong customer"
    run.rerun()
    run.cancel()
    assert reason() is None
    run.rerun()
    run.refresh()["only"].cancel("no customer at all")
    assert reason() == "no customer at all"


def test_a_run_that_takes_too_long_fails_and_says_so(flows: App, gate: Gate) -> None:
    flow = flows.workflow("slow", timeout="300ms")

    @flow.task
    async def waits(handle: AsyncTaskHandle) -> None:
        await handle.defer_until(gate.opened.is_set, every=30)

    @flow.task(after=[waits])
    def never() -> None: ...

    run = flow.start()
    assert run.deadline is not None
    with flows.worker(slots=2), pytest.raises(WorkflowFailed, match=r"300 ?ms|0\.3 ?s|time"):
        run.result(PATIENCE)
    assert run.state == "failed"
    assert states(run) == {"waits": "cancelled", "never": "cancelled"}
    assert events(run)["workflow.failed"] == 1


def test_a_rerun_keeps_what_completed_and_runs_the_rest_again(flows: App) -> None:
    flow = flows.workflow("again")
    broken = [True]

    @flow.task
    def kept(handle: TaskHandle) -> int:
        return handle.attempt

    @flow.task(retry=None)
    def breaks(n: int = kept.output) -> int:
        if broken:
            raise ConnectionError
        return n + 1

    @flow.task
    def after(n: int = breaks.output) -> int:
        return n + 1

    run = flow.start()
    work(flows)
    assert states(run) == {"kept": "completed", "breaks": "failed", "after": "skipped"}
    broken.clear()
    assert run.rerun(from_failed=True) == "done"
    work(flows)
    assert run.result(PATIENCE) == {"kept": 1, "breaks": 2, "after": 3}
    assert run.rerun() == "nothing"
    assert asyncio.run(run.arerun(from_failed=False)) == "done"
    work(flows)
    assert run.result(PATIENCE)["after"] > 0
    assert events(run)["workflow.rerun"] == 2


def test_what_follows_a_run_is_enqueued_once_with_its_end(flows: App) -> None:
    seen: list[tuple[str, Any]] = []

    @flows.task
    def hurray(execution_id: str, workflow: str, result: dict[str, int]) -> None:
        seen.append((workflow, result))

    @flows.task
    def alas(execution_id: str, error: dict[str, Any]) -> None:
        seen.append((execution_id, error["tasks"]))

    flow = flows.workflow("followed", inputs=Number, on_success=hurray, on_failure=alas)

    @flow.task(retry=None)
    def one(number: int) -> int:
        return 10 // number

    good = flow.start(number=5)
    work(flows)
    bad = flow.start(number=0)
    work(flows)
    assert seen == [("followed", {"one": 2}), (bad.id, ["one"])]
    assert good.refresh().state == "completed"
    assert len(flows.find(task="hurray")) == len(flows.find(task="alas")) == 1


@dataclass
class Number:
    number: int


def test_what_follows_a_task_of_a_workflow_is_enqueued_too(flows: App) -> None:
    seen: list[str] = []

    @flows.task
    def alas(task: str) -> None:
        seen.append(task)

    flow = flows.workflow("told")

    @flow.task(retry=None, on_failure=alas)
    def breaks(handle: TaskHandle) -> None:
        raise ValueError(handle.attempt)

    flow.start()
    work(flows)
    assert seen == ["told.breaks"]
