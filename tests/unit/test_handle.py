"""What a running task receives: how it is asked for, and what it promises."""

import asyncio
import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import App, AsyncTaskHandle, Defer, LeaseLost, TaskHandle
from penstock.engine.desk import ChildDesk
from penstock.engine.handle import NoDeferralHere
from penstock.engine.handling import PROGRESS_EVERY
from penstock.engine.settler import Settler
from penstock.errors import StoreUnavailable
from penstock.model.executions import Lease
from penstock.model.payloads import InvalidPayload
from penstock.model.states import SubState
from penstock.model.workers import WorkerInfo
from tests.support.deferring import Happening, World, install

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def app() -> Iterator[App]:
    app = App("sqlite:///:memory:", migrate=True)
    yield app
    app.close()


@pytest.fixture
def world(app: App, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(app, [])
    install(world, monkeypatch)
    return world


# --- declared ---------------------------------------------------------------------------


def test_a_handle_comes_first_and_callers_do_not_pass_it(app: App) -> None:
    @app.task
    def load(handle: TaskHandle, path: str) -> str:
        return path

    execution = load.enqueue("orders.csv")

    assert execution.args == {"path": "orders.csv"}


def test_a_handle_elsewhere_is_refused_when_declared(app: App) -> None:
    with pytest.raises(TypeError, match="'handle' is not the first positional parameter"):

        @app.task
        def load(path: str, handle: TaskHandle) -> str:
            return path


def test_a_handle_of_the_wrong_colour_is_refused_with_the_right_one(app: App) -> None:
    with pytest.raises(TypeError, match="Annotate it with TaskHandle"):

        @app.task
        def load(handle: AsyncTaskHandle) -> None: ...

    with pytest.raises(TypeError, match="Annotate it with AsyncTaskHandle"):

        @app.task
        async def aload(handle: TaskHandle) -> None: ...


# --- Defer ------------------------------------------------------------------------------


def test_a_durable_deferral_has_a_delay_or_a_moment() -> None:
    assert Defer("2h").delay_from(NOON) == timedelta(hours=2)
    assert Defer(until=NOON + timedelta(hours=1)).delay_from(NOON) == timedelta(hours=1)


def test_a_moment_that_has_passed_is_due_at_once() -> None:
    assert Defer(until=NOON - timedelta(days=1)).delay_from(NOON) == timedelta(0)


@pytest.mark.parametrize("arguments", [{}, {"delay": "1m", "until": NOON}])
def test_neither_and_both_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="either a delay or a moment"):
        Defer(**arguments)


def test_a_moment_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="with a time zone"):
        Defer(until=NOON.replace(tzinfo=None))


@pytest.mark.parametrize("reason", ["half \ud800", "NUL \x00"])
def test_a_reason_that_cannot_be_stored_is_refused_in_the_handler(
    app: App, world: World, reason: str
) -> None:
    with pytest.raises(InvalidPayload, match=r"\$\.reason"):
        Defer("1m", reason=reason)

    @app.task(retry=None)
    def wait(handle: TaskHandle) -> None:
        handle.defer_until(lambda: False, reason=reason)

    world.run(wait)
    assert "$.reason" in str(app.get(world.attempt.id).error)


def test_a_durable_deferral_crosses_processes() -> None:
    deferred = pickle.loads(pickle.dumps(Defer("2h", reason="the bank is closed")))  # noqa: S301

    assert (deferred.delay, deferred.reason) == (timedelta(hours=2), "the bank is closed")


def test_an_interval_of_nothing_is_refused(app: App, world: World) -> None:
    @app.task(retry=None)
    def wait(handle: TaskHandle) -> None:
        handle.defer_until(lambda: False, every=0)

    world.run(wait)

    assert "longer than nothing" in str(app.get(world.attempt.id).error)


# --- what a handle knows ----------------------------------------------------------------


def test_a_cancelled_task_ends_where_it_asks(app: App, world: World) -> None:
    seen: list[bool] = []

    @app.task
    def stop(handle: TaskHandle) -> None:
        seen.append(handle.cancelled)
        handle.raise_if_cancelled()
        world.happenings.append((0, "cancel"))
        world.happen()
        seen.append(handle.cancelled)
        try:
            handle.raise_if_cancelled()
        except Exception:  # noqa: BLE001 - what handlers write
            pytest.fail("an Exception could be caught by mistake")

    world.run(stop)

    assert seen == [False, True]
    assert world.history()[-1] == "cancelled"


def test_the_id_is_the_execution_and_the_attempt_counts_from_one(app: App, world: World) -> None:
    seen: list[object] = []

    @app.task
    def look(handle: TaskHandle) -> None:
        seen.extend([handle.execution_id, handle.attempt, handle.lease_lost, handle.slot.held])

    world.run(look)

    assert seen == [world.attempt.id, 1, False, True]


def test_a_lease_that_is_known_to_be_lost_stays_lost(app: App, world: World) -> None:
    seen: list[bool] = []

    @app.task
    def look(handle: TaskHandle) -> None:
        world.happenings.append((0, "lost"))
        world.happen()
        seen.append(handle.lease_lost)

    world.run(look)

    assert seen == [True]


# --- slots ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "happenings",
    [
        pytest.param([(3, "limit"), (5, "slot")], id="while it waits"),
        pytest.param([(2, "true"), (11, "limit"), (12, "slot")], id="while it stands in line"),
    ],
)
def test_a_handler_that_limits_its_wait_itself_goes_on_in_a_slot(
    app: App, world: World, happenings: list[Happening]
) -> None:
    world.happenings = [(1, "rival"), *happenings]
    held: list[bool] = []

    @app.task
    async def wait(handle: AsyncTaskHandle) -> str:
        try:
            async with asyncio.timeout(None) as world.limit:
                await handle.defer_until(world.ask, every=10)
        except TimeoutError:
            held.append(handle.slot.held)
        return "went on"

    world.arun(wait)

    assert held == [True]
    assert world.happened[-1] == "slot"
    assert world.history()[-3:] == ["deferred", "resumed", "completed"]
    assert world.runner.slots.free == 1


def test_a_task_that_has_ended_gets_no_slot_again(app: App, world: World) -> None:
    handles: list[TaskHandle] = []

    @app.task
    def keep(handle: TaskHandle) -> None:
        handles.append(handle)

    world.run(keep)
    (handle,) = handles

    assert handle.lease_lost
    assert handle.slot.reclaim() is False
    with pytest.raises(LeaseLost):
        handle.defer_until(lambda: False)
    assert world.runner.slots.free == world.runner.slots.size


# --- progress ---------------------------------------------------------------------------


def shown(app: App, world: World) -> object:
    progress = app.get(world.attempt.id).snapshot.progress
    return None if progress is None else json.loads(progress)


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan"), True])
def test_progress_is_a_fraction(app: App, world: World, wrong: float) -> None:
    @app.task(retry=None)
    def work(handle: TaskHandle) -> None:
        handle.progress(wrong)

    world.run(work)

    assert "between 0 and 1" in str(app.get(world.attempt.id).error)


def test_progress_is_written_at_most_once_a_second_and_the_end_at_once(
    app: App, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[object] = []
    write = app.store.progress

    def count(lease: Lease, progress: str) -> bool:
        written.append(json.loads(progress)["fraction"])
        return write(lease, progress)

    monkeypatch.setattr(app.store, "progress", count)

    @app.task
    def work(handle: TaskHandle) -> None:
        for n in range(100):
            handle.progress(n / 1000, "counting")
        world.now += PROGRESS_EVERY
        handle.progress(0.5, "half way")
        for _ in range(100):
            handle.progress(1, "done")

    world.run(work)

    assert written == [0.0, 0.5, 1.0]
    assert shown(app, world) == {"fraction": 1.0, "note": "done"}


def test_an_outage_does_not_fail_a_task_that_shows_its_progress(
    app: App, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(lease: Lease, progress: str) -> bool:
        raise StoreUnavailable("show progress", because=OSError("no route"))

    monkeypatch.setattr(app.store, "progress", unreachable)

    @app.task(retry=None)
    def work(handle: TaskHandle) -> None:
        handle.progress(0.5)

    world.run(work)

    assert world.history()[-1] == "completed"


def test_who_has_lost_its_lease_shows_nothing_and_hears_so(app: App, world: World) -> None:
    heard: list[str] = []

    @app.task
    def work(handle: TaskHandle) -> None:
        world.happenings.append((0, "lost"))
        world.happen()
        try:
            handle.progress(0.5)
        except LeaseLost as error:
            heard.append(error.doing)

    world.run(work)

    assert heard == ["show its progress"]
    assert shown(app, world) is None


def test_the_next_attempt_starts_without_the_progress_of_the_last(app: App, world: World) -> None:
    @app.task
    def work(handle: TaskHandle) -> None:
        handle.progress(0.5)
        handle.defer_for(0)

    world.run(work)
    assert shown(app, world) == {"fraction": 0.5, "note": None}
    app.store.promote()
    (again,) = app.store.claim("worker", queues=["default"], tasks=["work"], limit=1)

    assert again.attempt == 1
    assert shown(app, world) is None


# --- the settler behind it --------------------------------------------------------------


def test_a_handler_cancelled_while_its_deferral_is_written_does_not_harm_the_settler(
    app: App, world: World
) -> None:
    @app.task
    def work(handle: TaskHandle) -> None: ...

    attempt = world.claim(work)
    settler = Settler(app.store, when_settled=lambda _: None, when_scheduled=lambda: None)

    async def cancelled() -> None:
        written = settler.change_sub_state(attempt.claimed.lease, SubState.DEFERRED, None)
        waiting = asyncio.ensure_future(asyncio.wrap_future(written))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())
    answer = settler.change_sub_state(attempt.claimed.lease, SubState.ACTIVE, None)
    settler._write([])

    assert answer.result(1) is True
    assert world.history()[-2:] == ["deferred", "resumed"]
    world.runner._loop.close()


def test_a_task_in_a_process_cannot_wait_without_its_slot(app: App) -> None:
    @app.task(executor="process")
    def render(handle: TaskHandle) -> None: ...

    render.enqueue()
    app.store.register(WorkerInfo(id="worker", queues=["default"], tasks=["render"]))
    (claimed,) = app.store.claim("worker", queues=["default"], tasks=["render"], limit=1)
    handle = TaskHandle(claimed, ChildDesk(claimed, render))

    with pytest.raises(NoDeferralHere, match="defer_for"):
        handle.defer_until(lambda: False)
    with pytest.raises(NoDeferralHere):
        handle.slot.release()
    with pytest.raises(Defer):
        handle.defer_for("1m")
