"""Waiting survives what it should: conditions that fail, time that runs out, workers that end."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from penstock import (
    App,
    AsyncTaskHandle,
    Defer,
    DeferTimeout,
    Execution,
    TaskFailed,
    TaskHandle,
)
from penstock.model.events import EventType
from tests.support import handling
from tests.support.handling import start
from tests.support.workers import QUICK, Place, Workers, counted, types, wait_until

MakeApp = Callable[[], App]
PATIENCE = 10.0
both_colours = pytest.mark.parametrize("colour", ["def", "async def"])


def kinds(execution: Execution[Any]) -> list[str]:
    return [event.type.removeprefix("task.") for event in execution.history()]


# --- in memory --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "enqueue", [handling.wait_here.enqueue, handling.await_here.enqueue], ids=["def", "async def"]
)
def test_a_task_whose_worker_is_killed_while_it_waits_runs_again_from_its_start(
    app: App, place: Place, workers: Workers, enqueue: Callable[[str], Execution[int]]
) -> None:
    ids = [enqueue(place.gate).id for _ in range(5)]
    first = start(workers, slots=2, **QUICK)
    wait_until(lambda: counted(app.store, ids, EventType.DEFERRED).total() == 5)

    first.kill()
    second = start(workers, slots=2, **QUICK)
    wait_until(lambda: counted(app.store, ids, EventType.DEFERRED).total() == 10)
    place.open_gate()

    assert {app.get(one).result(timeout=20) for one in ids} == {second.pid}
    for one in ids:
        assert types(app.store, one) == [
            "task.created", "task.marked_ready", "task.claimed", "task.started", "task.deferred",
            "task.recovered", "task.claimed", "task.started", "task.deferred", "task.resumed",
            "task.completed",
        ]  # fmt: skip


@both_colours
def test_a_worker_that_stops_gives_back_what_waits_at_once_and_unspent(
    make_app: MakeApp, colour: str
) -> None:
    app = make_app()
    if colour == "def":

        @app.task
        def wait(handle: TaskHandle) -> None:
            handle.defer_until(lambda: False, every="1h")

        execution: Execution[None] = wait.enqueue()
    else:

        @app.task(name="wait")
        async def await_(handle: AsyncTaskHandle) -> None:
            await handle.defer_until(lambda: False, every="1h")

        execution = await_.enqueue()

    with app.worker(slots=1, grace=60):
        wait_until(lambda: execution.refresh().sub_state == "deferred")
        stopping = time.monotonic()

    assert time.monotonic() - stopping < 2
    assert kinds(execution)[-2:] == ["deferred", "released"]
    assert (execution.refresh().state, execution.attempt) == ("ready", 0)


@both_colours
def test_what_the_condition_raises_fails_the_attempt(make_app: MakeApp, colour: str) -> None:
    app = make_app()
    asked: list[int] = []

    def condition() -> bool:
        asked.append(1)
        if len(asked) > 2:
            raise ConnectionError("the printer is gone")
        return False

    if colour == "def":

        @app.task(retry=None)
        def wait(handle: TaskHandle) -> None:
            handle.defer_until(condition, every=0.01)

        execution: Execution[None] = wait.enqueue()
    else:

        async def acondition() -> bool:
            return condition()

        @app.task(retry=None, name="wait")
        async def await_(handle: AsyncTaskHandle) -> None:
            await handle.defer_until(acondition, every=0.01)

        execution = await_.enqueue()

    with app.worker(slots=1), pytest.raises(TaskFailed, match="the printer is gone"):
        execution.result(timeout=PATIENCE)

    assert kinds(execution)[-3:] == ["deferred", "resumed", "failed"]


@both_colours
def test_a_task_may_catch_the_timeout_and_goes_on_in_a_slot(make_app: MakeApp, colour: str) -> None:
    app = make_app()
    if colour == "def":

        @app.task
        def wait(handle: TaskHandle) -> str:
            try:
                handle.defer_until(lambda: False, every=0.02, timeout=0.1)
            except DeferTimeout as error:
                return f"{handle.slot.held} {error.timeout.total_seconds()}"
            return "never"

        execution: Execution[str] = wait.enqueue()
    else:

        @app.task(name="wait")
        async def await_(handle: AsyncTaskHandle) -> str:
            try:
                await handle.defer_until(lambda: False, every=0.02, timeout=0.1)
            except DeferTimeout as error:
                return f"{handle.slot.held} {error.timeout.total_seconds()}"
            return "never"

        execution = await_.enqueue()

    with app.worker(slots=1):
        assert execution.result(timeout=PATIENCE) == "True 0.1"

    assert kinds(execution)[-3:] == ["deferred", "resumed", "completed"]


def test_a_second_wait_asks_no_more_often_than_the_first(make_app: MakeApp) -> None:
    app = make_app()
    asked: list[float] = []
    open_at = [2, 6]

    def condition() -> bool:
        asked.append(time.monotonic())
        return len(asked) in open_at

    @app.task
    def wait(handle: TaskHandle) -> None:
        handle.defer_until(condition, every=0.05)
        handle.defer_until(condition, every=0.05)

    with app.worker(slots=1):
        wait.enqueue().result(timeout=PATIENCE)

    assert len(asked) == 6
    assert asked[-1] - asked[2] > 0.14


# Only SQLite has one lock for all.
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_wait_inside_a_transaction_of_ones_own_is_refused_and_stops_nobody(
    make_app: MakeApp, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()
    app.store._file._busy_timeout = 0.3  # type: ignore[attr-defined]
    handling.make_effects(place)

    @app.task(retry=None)
    def wait(handle: TaskHandle) -> None:
        connection = handling.own_connection()
        try:
            handling.take_effect(connection, handle)
            handle.defer_until(lambda: False, every=0.05)
        finally:
            connection.close()

    @app.task
    def other() -> str:
        return "done"

    with app.worker(slots=2):
        execution = wait.enqueue()
        with pytest.raises(TaskFailed, match="commit or roll back before it takes a step"):
            execution.result(timeout=PATIENCE)
        assert other.enqueue().result(timeout=PATIENCE) == "done"


@both_colours
def test_a_wait_between_completion_and_commit_is_refused(
    make_app: MakeApp, place: Place, colour: str
) -> None:
    app = make_app()

    @app.task(retry=None)
    def wait(handle: TaskHandle) -> None:
        connection = handling.own_connection()
        try:
            handle.complete(None, connection=connection)
            handle.progress(1.0)
            handle.defer_until(lambda: False, every=0.05)
        finally:
            connection.close()

    execution = wait.enqueue()
    with app.worker(slots=2), pytest.raises(TaskFailed, match="Commit or roll back first"):
        execution.result(timeout=PATIENCE)


# --- durable ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["delay", "moment"])
def test_a_durable_deferral_spends_no_attempt_and_comes_back_in_time(
    make_app: MakeApp, how: str
) -> None:
    app = make_app()
    seen: list[tuple[int, float]] = []

    @app.task(retry=None)
    def come_back(handle: TaskHandle) -> int:
        seen.append((handle.attempt, time.monotonic()))
        if len(seen) < 3:
            if how == "delay":
                handle.defer_for(0.2, reason="not yet")
            raise Defer(until=datetime.now(UTC) + timedelta(seconds=0.2), reason="not yet")
        return len(seen)

    with app.worker(slots=1):
        execution = come_back.enqueue()
        assert execution.result(timeout=PATIENCE) == 3

    assert [attempt for attempt, _ in seen] == [1, 1, 1]
    pauses = [later - earlier for (_, earlier), (_, later) in pairwise(seen)]
    assert all(0.15 < pause < 1 for pause in pauses)
    assert kinds(execution)[3:6] == ["started", "scheduled", "marked_ready"]
    deferred = next(event for event in execution.history()[2:] if event.type == "task.scheduled")
    assert deferred.data["reason"] == "not yet"
    assert (execution.refresh().attempt, execution.snapshot.retries) == (1, 0)


def test_an_async_task_defers_durably_too(make_app: MakeApp) -> None:
    app, seen = make_app(), []

    @app.task(retry=None)
    async def come_back(handle: AsyncTaskHandle) -> int:
        seen.append(handle.attempt)
        if len(seen) < 2:
            handle.defer_for(0.1)
        return len(seen)

    with app.worker(slots=1):
        assert come_back.enqueue().result(timeout=PATIENCE) == 2


def test_a_durable_deferral_survives_its_worker(make_app: MakeApp) -> None:
    app, first_run = make_app(), threading.Event()

    @app.task(retry=None)
    def come_back(handle: TaskHandle) -> int:
        if not first_run.is_set():
            first_run.set()
            handle.defer_for(0.5)
        return handle.attempt

    execution = come_back.enqueue()
    with app.worker(slots=1):
        wait_until(lambda: execution.refresh().state == "scheduled")
    assert execution.refresh().worker_id is None

    with app.worker(slots=1):
        assert execution.result(timeout=PATIENCE) == 1


def test_a_cancel_request_ends_a_durable_deferral_at_once(make_app: MakeApp) -> None:
    app = make_app()

    @app.task
    def come_back(handle: TaskHandle) -> None:
        handle.defer_for("1h")

    execution = come_back.enqueue()
    with app.worker(slots=1):
        wait_until(lambda: execution.refresh().state == "scheduled")
        assert execution.cancel() == "cancelled"

    assert kinds(execution)[-1] == "cancelled"
