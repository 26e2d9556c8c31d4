"""Fake handles: a task's function called directly, with nothing behind it."""

import asyncio
import sqlite3
from datetime import timedelta

import pytest

from penstock import App, AsyncTaskHandle, Defer, DeferTimeout, Interrupted, LeaseLost, TaskHandle
from penstock.engine.remembering import Suspend
from penstock.testing import FakeAsyncHandle, FakeHandle, ManualClock
from penstock.testing.fake_handle import NeverTrue, NothingBehind

NOWHERE = sqlite3.connect(":memory:", check_same_thread=False)


@pytest.fixture
def app() -> App:
    return App()


class AnyConnection:
    """As much of an async connection as the type checker wants to see."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...


def test_a_condition_comes_true_as_the_clock_moves() -> None:
    handle = FakeHandle()
    begin = handle.clock.now()
    handle.defer_until(lambda: handle.clock.now() - begin >= timedelta(minutes=1), every="25s")
    assert handle.waited == [25, 25, 25]
    assert handle.clock.now() - begin == timedelta(seconds=75)
    assert handle.slot.held


def test_a_condition_that_is_true_at_once_waits_for_nothing() -> None:
    handle = FakeHandle()
    handle.defer_until(lambda: True)
    assert handle.waited == []


def test_a_condition_that_stays_false_ends_with_its_timeout() -> None:
    handle = FakeHandle()
    begin = handle.clock.now()
    with pytest.raises(DeferTimeout):
        handle.defer_until(lambda: False, every="40s", timeout="1m")
    assert handle.clock.now() - begin == timedelta(minutes=1)
    assert handle.waited == [40, 20]


def test_a_condition_that_never_comes_true_is_found_out() -> None:
    with pytest.raises(NeverTrue, match="still false after 10000 checks"):
        FakeHandle().defer_until(lambda: False)


def test_the_task_is_called_as_the_function_that_it_is(app: App) -> None:
    @app.task
    def work(handle: TaskHandle, number: int) -> int:
        handle.progress(0.5, "half way")
        handle.progress(1)
        return handle.complete(number + handle.attempt, connection=NOWHERE)

    handle = FakeHandle(execution_id="0199", attempt=3)
    assert work(handle, 4) == 7
    assert handle.progress_shown == [(0.5, "half way"), (1, None)]
    assert handle.completed_with == [7]
    assert handle.execution_id == "0199"
    with pytest.raises(ValueError, match="between 0 and 1"):
        handle.progress(50)


def test_what_is_done_once_stays_done_in_the_next_attempt() -> None:
    first = FakeHandle()
    assert first.once("charge", connection=NOWHERE)
    assert not first.once("charge", connection=NOWHERE)
    second = first.next_attempt()
    assert (second.execution_id, second.attempt) == (first.execution_id, 2)
    assert not second.once("charge", connection=NOWHERE)
    assert second.once("mail", connection=NOWHERE)
    assert FakeHandle().once("charge", connection=NOWHERE)


def test_steps_and_signals_are_remembered_over_attempts() -> None:
    calls: list[int] = []

    def reserve(count: int) -> int:
        calls.append(count)
        return count

    first = FakeHandle()
    assert first.step("reserve", reserve, 3) == 3
    with pytest.raises(Suspend):
        first.wait_for(signal="paid")
    first.signal("paid", {"cents": 1999})
    second = first.next_attempt()
    assert second.step("reserve", reserve, 3) == 3
    assert calls == [3]
    assert second.wait_for(signal="paid") == {"cents": 1999}


def test_a_cancelled_handle_ends_the_task_where_it_asks_or_waits() -> None:
    handle = FakeHandle()
    handle.raise_if_cancelled()
    handle.cancel()
    assert handle.cancelled
    with pytest.raises(Interrupted):
        handle.raise_if_cancelled()
    with pytest.raises(Interrupted):
        handle.defer_until(lambda: False)


def test_a_lost_lease_refuses_whatever_counts() -> None:
    handle = FakeHandle()
    handle.lose_lease()
    assert handle.lease_lost
    for act in (
        lambda: handle.complete(1, connection=NOWHERE),
        lambda: handle.once("charge", connection=NOWHERE),
        lambda: handle.progress(0.1),
    ):
        with pytest.raises(LeaseLost, match=handle.execution_id):
            act()


def test_a_durable_deferral_leaves_as_it_does_in_a_worker() -> None:
    with pytest.raises(Defer) as raised:
        FakeHandle().defer_for("2h", reason="no reply yet")
    assert raised.value.delay == timedelta(hours=2)
    assert raised.value.reason == "no reply yet"


def test_there_is_no_database_behind_it() -> None:
    with pytest.raises(NothingBehind, match="ManualApp"):
        _ = FakeHandle()._desk.store


def test_the_async_handle_does_the_same(app: App) -> None:
    clock = ManualClock()
    due = clock.now() + timedelta(minutes=1)

    @app.task
    async def work(handle: AsyncTaskHandle) -> str:
        await handle.progress(0.5)

        async def is_due() -> bool:
            await asyncio.sleep(0)
            return clock.now() >= due

        await handle.defer_until(is_due, every="30s")
        if await handle.once("mail", connection=AnyConnection()):
            return await handle.complete("sent", connection=AnyConnection())
        return "sent before"

    handle = FakeAsyncHandle(clock=clock)
    assert asyncio.run(work(handle)) == "sent"
    assert handle.waited == [30, 30]
    assert handle.progress_shown == [(0.5, None)]
    assert handle.completed_with == ["sent"]
    assert asyncio.run(work(handle.next_attempt())) == "sent before"
