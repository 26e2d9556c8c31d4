"""A request to stop reaches a running task soon, and ends it in one final state."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from penstock import App, AsyncTaskHandle, Execution, TaskCancelled, TaskHandle
from penstock.testing.processes import is_gone
from tests.support import tasks
from tests.support.workers import Place, Workers, wait_until

MakeApp = Callable[[], App]
HEARTBEAT = 3.0
SOON = HEARTBEAT / 3
PATIENCE = 10.0
RACES = 100  # on each database


def kinds(execution: Execution[object]) -> list[str]:
    return [event.type.removeprefix("task.") for event in execution.history()]


def cancel_and_wait(execution: Execution[object]) -> float:
    """Ask it to stop; return how long it took until it had ended as cancelled."""
    asked = time.monotonic()
    assert execution.cancel("no longer wanted") == "requested"
    with pytest.raises(TaskCancelled):
        execution.result(timeout=PATIENCE)
    return time.monotonic() - asked


def test_an_async_task_is_cancelled_and_may_clean_up(make_app: MakeApp) -> None:
    app = make_app()
    begun, cleaned = threading.Event(), threading.Event()

    @app.task
    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            cleaned.set()

    with app.worker(slots=1, heartbeat=HEARTBEAT):
        execution = work.enqueue()
        assert begun.wait(PATIENCE)
        assert cancel_and_wait(execution) < SOON

    assert cleaned.is_set()
    assert kinds(execution)[-1] == "cancelled"


def test_a_plain_task_sees_the_request_where_it_looks(make_app: MakeApp) -> None:
    app, begun = make_app(), threading.Event()

    @app.task
    def work(handle: TaskHandle) -> None:
        begun.set()
        while not handle.cancelled:
            time.sleep(0.005)
        handle.raise_if_cancelled()

    with app.worker(slots=1, heartbeat=HEARTBEAT):
        execution = work.enqueue()
        assert begun.wait(PATIENCE)
        assert cancel_and_wait(execution) < SOON


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_deferral_ends_at_once(make_app: MakeApp, colour: str) -> None:
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

    with app.worker(slots=1, heartbeat=HEARTBEAT):
        wait_until(lambda: execution.refresh().sub_state == "deferred")
        assert cancel_and_wait(execution) < SOON

    assert kinds(execution)[-3:] == ["deferred", "cancel_requested", "cancelled"]


def test_several_requests_in_a_row_all_arrive_soon(make_app: MakeApp) -> None:
    app = make_app()

    @app.task
    def wait(handle: TaskHandle) -> None:
        handle.defer_until(lambda: False, every="1h")

    with app.worker(slots=4, heartbeat=HEARTBEAT):
        waiting = [wait.enqueue() for _ in range(6)]
        wait_until(lambda: all(one.refresh().sub_state == "deferred" for one in waiting))
        asked = time.monotonic()
        for one in waiting:
            one.cancel()  # one hint each, the next before the last has been followed
        wait_until(lambda: app.counts()["cancelled"] == 6)

        assert time.monotonic() - asked < SOON


def test_a_task_in_a_process_is_ended(app: App, place: Place, workers: Workers) -> None:
    execution = tasks.hold_in_process.enqueue(place.gate)
    workers.start(heartbeat=HEARTBEAT)
    wait_until(lambda: len(place.runs()) == 1)
    (run,) = place.runs()

    assert cancel_and_wait(execution) < SOON

    wait_until(lambda: is_gone(int(run.pid)))
    assert kinds(execution)[-1] == "cancelled"


def test_an_error_after_the_request_is_no_retry(make_app: MakeApp) -> None:
    app, begun, go = make_app(), threading.Event(), threading.Event()

    @app.task(retry=[0, 0, 0])
    def work() -> None:
        begun.set()
        go.wait(PATIENCE)
        raise ConnectionError("closed")

    with app.worker(slots=1):
        execution = work.enqueue()
        assert begun.wait(PATIENCE)
        execution.cancel()
        go.set()
        with pytest.raises(TaskCancelled):
            execution.result(timeout=PATIENCE)

    assert kinds(execution).count("claimed") == 1


def test_a_crash_after_the_request_is_a_cancellation(
    app: App, place: Place, workers: Workers
) -> None:
    execution = tasks.hold.enqueue(place.gate)
    first = workers.start()
    wait_until(lambda: execution.refresh().started_at is not None)
    execution.cancel()
    first.kill()

    workers.start()

    with pytest.raises(TaskCancelled):
        execution.result(timeout=PATIENCE)
    assert len(place.runs()) == 1
    assert kinds(execution)[-1] == "cancelled"


def test_what_completes_in_spite_of_the_request_is_completed(make_app: MakeApp) -> None:
    app, begun = make_app(), threading.Event()

    @app.task
    async def stubborn() -> str:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "finished anyway"
        return "never"

    with app.worker(slots=1):
        execution = stubborn.enqueue()
        assert begun.wait(PATIENCE)
        assert execution.cancel() == "requested"
        assert execution.result(timeout=PATIENCE) == "finished anyway"


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_request_that_races_with_the_end_leads_to_one_final_state(
    make_app: MakeApp, colour: str
) -> None:
    app = make_app()

    if colour == "def":

        @app.task
        def work(handle: TaskHandle) -> int:
            for _ in range(5):
                handle.raise_if_cancelled()
                time.sleep(0.001)
            return 1

        requests = [work.request() for _ in range(RACES)]
    else:

        @app.task(name="work")
        async def awork() -> int:
            for _ in range(5):
                await asyncio.sleep(0.001)
            return 1

        requests = [awork.request() for _ in range(RACES)]

    with app.worker(slots=8):
        executions = app.enqueue_many(requests)
        answers = Counter(one.cancel() for one in executions)
        wait_until(lambda: all(one.refresh().finished_at is not None for one in executions))

    ends = Counter(one.state for one in executions)
    assert ends.total() == RACES
    assert set(ends) <= {"completed", "cancelled"}
    assert answers["cancelled"] <= ends["cancelled"] <= answers["cancelled"] + answers["requested"]
    for one in executions:
        finals = [kind for kind in kinds(one) if kind in {"completed", "cancelled", "failed"}]
        assert finals == [one.state]
