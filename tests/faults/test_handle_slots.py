"""A waiting task occupies no slot: others run in it meanwhile, and it gets one again in turn."""

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pytest

from penstock import App, AsyncTaskHandle, Execution, TaskHandle
from penstock.engine.slots import SlotPool
from tests.support.workers import wait_until

MakeApp = Callable[[], App]
AT_ONCE = 2.0
both_colours = pytest.mark.parametrize("colour", ["def", "async def"])


def age(moment: datetime) -> float:
    return (datetime.now(UTC) - moment).total_seconds()


def is_deferred(execution: Execution[object]) -> bool:
    return execution.refresh().sub_state == "deferred"


def in_line(pool: SlotPool, count: int) -> bool:
    return len(pool._line) == count


def kinds(execution: Execution[object]) -> list[str]:
    return [event.type.removeprefix("task.") for event in execution.history()]


def waiting_task(app: App, colour: str, gate: threading.Event) -> Callable[[], Execution[object]]:
    """Declare a task that waits for the gate without a slot; return how to enqueue it."""
    if colour == "def":

        @app.task
        def wait(handle: TaskHandle) -> str:
            handle.defer_until(gate.is_set, every=0.02, reason="the gate")
            return "through" if handle.slot.held else "without a slot"

        return wait.enqueue

    @app.task(name="wait")
    async def await_(handle: AsyncTaskHandle) -> str:
        await handle.defer_until(gate.is_set, every=0.02, reason="the gate")
        return "through" if handle.slot.held else "without a slot"

    return await_.enqueue


@both_colours
def test_four_that_wait_in_four_slots_leave_all_of_them_to_the_others(
    make_app: MakeApp, colour: str
) -> None:
    app, gate = make_app(), threading.Event()
    enqueue = waiting_task(app, colour, gate)

    @app.task
    def short(number: int) -> int:
        return number

    with app.worker(slots=4):
        waiting = [enqueue() for _ in range(4)]
        wait_until(lambda: all(one.refresh().sub_state == "deferred" for one in waiting))

        others = app.enqueue_many([short.request(n) for n in range(20)])
        took = wait_until(lambda: app.counts()["completed"] == 20, timeout=AT_ONCE)

        assert took < AT_ONCE
        assert [one.result(timeout=1) for one in others] == list(range(20))
        assert all(one.refresh().sub_state == "deferred" for one in waiting)
        gate.set()
        assert [one.result(timeout=10) for one in waiting] == ["through"] * 4

    for one in waiting:
        assert kinds(one)[2:] == ["claimed", "started", "deferred", "resumed", "completed"]


@both_colours
def test_with_one_slot_a_task_may_wait_for_what_a_later_one_makes(
    make_app: MakeApp, colour: str
) -> None:
    app, made = make_app(), threading.Event()
    enqueue = waiting_task(app, colour, made)

    @app.task
    def make() -> None:
        made.set()

    with app.worker(slots=1):
        for _ in range(5):
            made.clear()
            waiting = enqueue()
            wait_until(partial(is_deferred, waiting))
            make.enqueue()
            assert waiting.result(timeout=10) == "through"


def test_many_that_wait_for_each_other_in_one_slot_all_end(make_app: MakeApp) -> None:
    app = make_app()
    done: set[int] = set()

    @app.task
    def after_the_next(handle: TaskHandle, number: int) -> int:
        handle.defer_until(lambda: number == 20 or number + 1 in done, every=0.01)
        done.add(number)
        return number

    with app.worker(slots=1):
        line = app.enqueue_many([after_the_next.request(n) for n in range(21)])
        assert [one.result(timeout=20) for one in line] == list(range(21))


@both_colours
def test_slots_are_had_again_in_the_order_of_asking(make_app: MakeApp, colour: str) -> None:
    app = make_app()
    order: list[int] = []
    turn: list[int] = []
    busy, end = threading.Event(), threading.Event()

    @app.task
    def occupy() -> None:
        busy.set()
        end.wait(20)

    if colour == "def":

        @app.task
        def wait(handle: TaskHandle, number: int) -> None:
            handle.defer_until(lambda: number in turn, every=0.01)
            order.append(number)

        requests = [wait.request(n) for n in range(6)]
    else:

        @app.task(name="wait")
        async def await_(handle: AsyncTaskHandle, number: int) -> None:
            await handle.defer_until(lambda: number in turn, every=0.01)
            order.append(number)

        requests = [await_.request(n) for n in range(6)]

    with app.worker(slots=1) as worker:
        waiting = app.enqueue_many(requests)
        wait_until(lambda: all(one.refresh().sub_state == "deferred" for one in waiting))
        occupy.enqueue()
        assert busy.wait(10)
        pool = worker._worker._runner.slots  # type: ignore[union-attr]
        for place, number in enumerate([3, 0, 5, 1, 4, 2]):
            turn.append(number)
            wait_until(partial(in_line, pool, place + 1))
        end.set()
        for one in waiting:
            one.result(timeout=10)

    assert order == [3, 0, 5, 1, 4, 2]


@both_colours
def test_time_deferred_is_not_time_used(make_app: MakeApp, colour: str) -> None:
    app, gate = make_app(), threading.Event()
    timeout = 0.6

    if colour == "def":

        @app.task(timeout=timeout, retry=None)
        def wait(handle: TaskHandle) -> str:
            handle.defer_until(gate.is_set, every=0.02)
            return "in time"

        execution: Execution[str] = wait.enqueue()
    else:

        @app.task(timeout=timeout, retry=None, name="wait")
        async def await_(handle: AsyncTaskHandle) -> str:
            await handle.defer_until(gate.is_set, every=0.02)
            return "in time"

        execution = await_.enqueue()

    with app.worker(slots=1):
        wait_until(lambda: execution.refresh().sub_state == "deferred")
        deferred_at = execution.history()[-1].at
        wait_until(lambda: age(deferred_at) > 0.8)
        gate.set()
        assert execution.result(timeout=10) == "in time"


@both_colours
def test_a_task_that_has_waited_is_timed_out_when_the_rest_of_its_time_is_up(
    make_app: MakeApp, colour: str
) -> None:
    app, gate, go = make_app(), threading.Event(), threading.Event()
    limit = 0.5

    if colour == "def":

        @app.task(timeout=limit, retry=None)
        def wait(handle: TaskHandle) -> None:
            handle.defer_until(gate.is_set, every=0.02)
            go.wait(20)

        execution: Execution[None] = wait.enqueue()
    else:

        @app.task(timeout=limit, retry=None, name="wait")
        async def await_(handle: AsyncTaskHandle) -> None:
            await handle.defer_until(gate.is_set, every=0.02)
            await asyncio.sleep(20)

        execution = await_.enqueue()

    with app.worker(slots=1):
        wait_until(lambda: execution.refresh().sub_state == "deferred")
        # Past the moment at which its time would have been up, had it not waited.
        wait_until(lambda: age(execution.history()[-1].at) > 1.2 * limit)
        gate.set()
        wait_until(lambda: execution.refresh().state == "failed")
        go.set()
        *_, resumed, failed = execution.history()

    assert (resumed.type, failed.type) == ("task.resumed", "task.failed")
    assert limit - 0.3 < (failed.at - resumed.at).total_seconds() < limit + 1
