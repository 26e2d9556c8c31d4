"""How an attempt ends: in time or not, with a result or an error, for good or to be tried again."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from penstock import App, AsyncTaskHandle, Execution, GiveUp, RetryAfter, TaskFailed, TaskHandle
from penstock.engine.current import current_execution
from penstock.model.events import EventType
from tests.support.workers import wait_until

MakeApp = Callable[[], App]
PATIENCE = 10.0


def failure(execution: Execution[object]) -> dict[str, object]:
    """Wait for the end; return the stored error."""
    with pytest.raises(TaskFailed):
        execution.result(timeout=PATIENCE)
    assert execution.error is not None
    return execution.error


def kinds(execution: Execution[object]) -> list[str]:
    return [event.type for event in execution.history()]


# --- timeouts ---------------------------------------------------------------------------


def test_an_async_task_is_stopped_when_its_time_is_up(make_app: MakeApp) -> None:
    app = make_app()
    stopped = threading.Event()

    @app.task(timeout=0.2, retry=None)
    async def endless() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    execution = endless.enqueue()
    with app.worker():
        error = failure(execution)

    assert str(error["type"]).endswith("TimedOut")
    assert "'endless' did not end within its timeout of 0.2 s" in str(error["message"])
    assert stopped.is_set()


def test_a_thread_that_runs_away_is_named_and_frees_its_slot_and_its_end_changes_nothing(
    make_app: MakeApp, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app()
    go, gone = threading.Event(), threading.Event()

    @app.task(timeout=0.2, retry=None)
    def runaway() -> str:
        go.wait(PATIENCE)
        gone.set()
        return "too late"

    @app.task
    def next_one() -> str:
        return "done"

    execution = runaway.enqueue()
    with app.worker(slots=1):
        following = next_one.enqueue()
        assert following.result(timeout=PATIENCE) == "done"
        assert not gone.is_set()
        assert str(failure(execution)["type"]).endswith("TimedOut")
        history = kinds(execution)
        go.set()
        wait_until(gone.is_set)

    assert kinds(execution) == history
    assert execution.refresh().state == "failed"
    said = [text for text in caplog.messages if "went past its timeout" in text]
    assert len(said) == 1
    assert execution.id in said[0]


def test_an_error_that_is_a_timeout_of_the_tasks_own_is_stored_as_such(make_app: MakeApp) -> None:
    app = make_app()

    @app.task(timeout=60, retry=None)
    async def asks_a_server() -> None:
        raise TimeoutError("the server said nothing")

    execution = asks_a_server.enqueue()
    with app.worker():
        error = failure(execution)
    assert (error["type"], error["message"]) == ("TimeoutError", "the server said nothing")


# --- retries ----------------------------------------------------------------------------


def test_n_delays_are_n_plus_one_attempts(make_app: MakeApp) -> None:
    app = make_app()
    seen: list[int] = []

    @app.task(retry=[0, 0.05, 0])
    def unlucky(handle: TaskHandle) -> None:
        seen.append(handle.attempt)
        message = f"attempt {handle.attempt}"
        raise RuntimeError(message)

    execution = unlucky.enqueue()
    with app.worker():
        error = failure(execution)

    assert seen == [1, 2, 3, 4]
    assert error["message"] == "attempt 4"
    assert kinds(execution).count("task.retry_scheduled") == 3
    told = [
        event.data["error"]["message"]  # type: ignore[index]
        for event in execution.history()
        if event.type in {EventType.RETRY_SCHEDULED, EventType.FAILED}
    ]
    assert told == [f"attempt {n}" for n in (1, 2, 3, 4)]


def test_a_retry_begins_at_the_time_that_it_was_scheduled_for(make_app: MakeApp) -> None:
    app = make_app()
    delay = timedelta(seconds=0.4)

    @app.task(retry=[delay])
    async def second_time_lucky(handle: AsyncTaskHandle) -> int:
        if handle.attempt == 1:
            raise ConnectionError("not yet")
        return handle.attempt

    execution = second_time_lucky.enqueue()
    with app.worker():
        assert execution.result(timeout=PATIENCE) == 2
    history = execution.history()
    scheduled = next(one.at for one in history if one.type == EventType.RETRY_SCHEDULED)
    claimed = [one.at for one in history if one.type == EventType.CLAIMED][-1]
    assert timedelta(0) <= claimed - scheduled - delay < timedelta(seconds=0.15)


def test_who_gives_up_fails_at_once(make_app: MakeApp) -> None:
    app = make_app()

    @app.task(retry=[0, 0, 0])
    def hopeless() -> None:
        raise GiveUp("the order was cancelled")

    execution = hopeless.enqueue()
    with app.worker():
        error = failure(execution)
    assert error["message"] == "the order was cancelled"
    assert execution.attempt == 1


def test_a_task_may_say_when_a_retry_can_help(make_app: MakeApp) -> None:
    app = make_app()

    @app.task(retry=["1h", "1h"])
    async def asked_to_wait(handle: AsyncTaskHandle) -> int:
        if handle.attempt < 3:
            raise RetryAfter(0.05)
        return handle.attempt

    execution = asked_to_wait.enqueue()
    with app.worker():
        assert execution.result(timeout=PATIENCE) == 3


def test_what_is_cancelled_within_a_handler_is_tried_again_like_other_errors(
    make_app: MakeApp, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app()

    @app.task(retry=[0])
    async def given_up_by_another(handle: AsyncTaskHandle) -> int:
        if handle.attempt == 1:
            another = asyncio.create_task(asyncio.sleep(3600))
            another.cancel()
            await another
        return handle.attempt

    execution = given_up_by_another.enqueue()
    with caplog.at_level("INFO", "penstock.worker"), app.worker():
        assert execution.result(timeout=PATIENCE) == 2
    assert "next try in 0:00:00: CancelledError" in caplog.text


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_an_error_that_would_end_a_program_ends_the_attempt_only(
    make_app: MakeApp, error: type[BaseException]
) -> None:
    app = make_app()

    @app.task(retry=None)
    def leave() -> None:
        raise error

    @app.task(retry=None)
    async def leave_on_loop() -> None:
        raise error

    @app.task
    async def stay() -> str:
        return "still here"

    leavers = [leave.enqueue(), leave_on_loop.enqueue()]
    with app.worker():
        for execution in leavers:
            assert str(failure(execution)["type"]).endswith(error.__name__)
        assert stay.enqueue().result(timeout=PATIENCE) == "still here"


# --- arguments, results, errors ---------------------------------------------------------


def test_stored_arguments_that_do_not_fit_fail_at_once_with_the_field(make_app: MakeApp) -> None:
    app, stranger = make_app(), make_app()

    @app.task
    def send(order_id: int) -> int:
        return order_id

    misfit = stranger.enqueue("send", {"order_id": "forty-two"})
    missing = stranger.enqueue("send", {})
    with app.worker():
        for execution in (misfit, missing):
            error = failure(execution)
            assert "order_id" in str(error["message"])
            assert execution.attempt == 1


def test_a_result_that_cannot_be_stored_is_an_error_and_the_work_is_not_repeated(
    make_app: MakeApp,
) -> None:
    app = make_app()
    runs: list[int] = []

    @app.task(retry=[0, 0])
    def strange() -> object:
        runs.append(1)
        return threading.Lock()

    execution = strange.enqueue()
    with app.worker():
        error = failure(execution)
    assert "lock" in str(error["message"])
    assert len(runs) == 1


def fail_deeply() -> None:
    prices: dict[str, int] = {}
    try:
        prices["missing"]
    except KeyError as error:
        raise ValueError("deep down") from error


def test_errors_are_stored_with_the_users_part_of_the_traceback(make_app: MakeApp) -> None:
    app = make_app()

    @app.task(retry=None)
    def outer() -> None:
        fail_deeply()

    @app.task(retry=None)
    async def outer_on_loop() -> None:
        fail_deeply()

    executions = [outer.enqueue(), outer_on_loop.enqueue()]
    with app.worker():
        for execution in executions:
            error = failure(execution)
            assert (error["type"], error["message"]) == ("ValueError", "deep down")
            traceback = str(error["traceback"])
            assert "in fail_deeply" in traceback
            assert "KeyError: 'missing'" in traceback
            assert "penstock/engine" not in traceback


# --- context ----------------------------------------------------------------------------

colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


def test_a_task_knows_its_execution_and_nothing_of_the_tasks_before_it(make_app: MakeApp) -> None:
    app = make_app()

    def paint() -> tuple[str | None, str]:
        before = colour.get()
        colour.set("red")
        return current_execution.get(), before

    @app.task
    def on_thread() -> tuple[str | None, str]:
        return paint()

    @app.task
    async def on_loop() -> tuple[str | None, str]:
        return paint()

    executions = [kind.enqueue() for _ in range(5) for kind in (on_thread, on_loop)]
    with app.worker(slots=1):
        for execution in executions:
            assert execution.result(timeout=PATIENCE) == (execution.id, "none")
    assert current_execution.get() is None


def test_what_follows_an_end_happens_exactly_once(make_app: MakeApp) -> None:
    app = make_app()
    heard: list[tuple[str, str]] = []

    @app.task
    def celebrate(execution_id: str, result: int) -> None:
        heard.append((execution_id, f"result {result}"))

    @app.task
    def mourn(execution_id: str, error: dict[str, str]) -> None:
        heard.append((execution_id, error["message"]))

    @app.task(on_success=celebrate, on_failure=mourn, retry=[0])
    def work(number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return number

    good, bad = work.enqueue(4), work.enqueue(-1)
    begun = time.monotonic()
    app.run_worker(until_idle=True)
    assert time.monotonic() - begun < PATIENCE
    assert sorted(heard) == sorted([(good.id, "result 4"), (bad.id, "negative")])


# --- errors that are errors themselves --------------------------------------------------


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_that_cannot_be_shown_ends_its_attempt_like_any_other(make_app: MakeApp) -> None:
    app = make_app()

    @app.task(retry=None)
    def on_thread() -> None:
        raise Speechless

    @app.task(retry=None)
    async def on_loop() -> None:
        raise Speechless

    @app.task
    def other() -> int:
        return 1

    with app.worker(slots=1):
        for task in (on_thread, on_loop):
            assert "cannot be shown: RuntimeError" in str(failure(task.enqueue())["message"])
        assert other.enqueue().result(timeout=PATIENCE) == 1
