"""Looking at executions, acting on them, and waiting for what they return."""

import asyncio
import inspect
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from uuid import UUID

import pytest
from pydantic import TypeAdapter

from penstock import (
    App,
    Event,
    Execution,
    ExecutionNotFound,
    Run,
    Task,
    TaskCancelled,
    TaskFailed,
    TaskSkipped,
    Workflow,
)
from penstock.engine.requests import InvalidOption
from penstock.engine.signatures import ResultDoesNotFit
from penstock.errors import KeyTaken
from penstock.model.executions import Claimed
from penstock.model.ids import InvalidId
from penstock.model.outcomes import Cancelled, Completed, Failed, Outcome, RetryScheduled
from penstock.model.workers import WorkerInfo

WORKER = "worker-1"
NOWHERE = "0197a000-0000-7000-8000-000000000000"
BOOM = '{"type":"ValueError","message":"boom","traceback":"Traceback …"}'


@dataclass
class Receipt:
    order_id: int


@pytest.fixture
def app() -> Iterator[App]:
    app = App("sqlite:///:memory:")
    yield app
    app.close()


@pytest.fixture
def send(app: App) -> Task[[int], Receipt]:
    def send(order_id: int) -> Receipt:
        return Receipt(order_id)

    return app.task(send)


def handed_out(app: App) -> Claimed:
    """Be the worker that the next task is handed to."""
    app.store.register(WorkerInfo(id=WORKER, queues=("default",), tasks=("send",)))
    (claimed,) = app.store.claim(WORKER, queues=["default"], tasks=["send"], limit=1)
    return claimed


def settle(app: App, outcome: Outcome) -> None:
    assert app.store.settle([outcome]) == []


def complete(app: App, result: str = '{"order_id":42}') -> None:
    settle(app, Completed(lease=handed_out(app).lease, result=result))


# --- reading ---------------------------------------------------------------------------------


def test_an_execution_is_a_snapshot_until_it_is_refreshed(
    app: App, send: Task[[int], Receipt]
) -> None:
    execution = send.enqueue(42)
    handed_out(app)
    assert (execution.state, execution.sub_state, execution.attempt) == ("ready", None, 0)
    assert execution.refresh() is execution
    assert (execution.state, execution.sub_state, execution.attempt) == ("running", "active", 1)
    assert execution.worker_id == WORKER
    assert repr(execution) == f"<Execution {execution.id} of 'send': running, attempt 1>"


def test_the_history_tells_all_in_order(app: App, send: Task[[int], Receipt]) -> None:
    execution = send.enqueue(42)
    complete(app)
    history = execution.history()
    assert [event.type for event in history] == [
        "task.created", "task.marked_ready", "task.claimed", "task.completed",
    ]  # fmt: skip
    assert [event.worker_id for event in history] == [None, None, WORKER, WORKER]
    assert sorted(event.at for event in history) == [event.at for event in history]


def test_a_history_can_be_the_answer_of_an_endpoint(app: App, send: Task[[int], Receipt]) -> None:
    """Web frameworks make JSON of dataclasses, by their own means or by pydantic's."""
    history = send.enqueue(42).history()
    first = asdict(history[0])
    assert (first["seq"], first["type"]) == (history[0].seq, "task.created")
    adapter = TypeAdapter(list[Event])
    assert adapter.validate_json(adapter.dump_json(history)) == history


def test_an_execution_is_found_by_its_id_in_every_form(
    app: App, send: Task[[int], Receipt]
) -> None:
    execution = send.enqueue(42)
    for form in (execution.id, execution.id.upper(), UUID(execution.id)):
        assert app.get(form) == send.get(form) == execution
    assert len({execution, app.get(execution.id)}) == 1


def test_an_unknown_id_is_not_found_whatever_is_asked(app: App, send: Task[[int], Receipt]) -> None:
    execution = send.enqueue(42)
    complete(app)
    app.store.sweep(older_than=execution.created_at - execution.created_at)
    for ask in (lambda: app.get(NOWHERE), lambda: send.get(NOWHERE)):
        with pytest.raises(ExecutionNotFound, match=NOWHERE):
            ask()
    for ask_again in (execution.refresh, execution.result, execution.cancel, execution.rerun):
        with pytest.raises(ExecutionNotFound, match=execution.id):
            ask_again()
    with pytest.raises(InvalidId, match="not a UUID"):
        app.get("42")


def test_find_answers_the_newest_first_by_all_that_is_given(
    app: App, send: Task[[int], Receipt]
) -> None:
    first, second, third = (send.using(key=f"order-{n}").enqueue(n) for n in range(3))
    other = app.enqueue("resize", {}, queue="images")
    second.cancel()
    assert app.find() == [other, third, second, first]
    assert app.find(task="send") == app.find(task=send) == [third, second, first]
    assert app.find(task="send", state="ready") == [third, first]
    assert app.find(queue="images") == [other]
    assert app.find(key="order-1") == [second]
    assert app.find(limit=2) == [other, third]
    assert app.find(before=third.id, limit=1) == [second]
    assert app.find(before=UUID(third.id)) == [second, first]
    assert app.find(task="nothing") == []


def test_counts_has_every_state_zeros_too(app: App, send: Task[[int], Receipt]) -> None:
    send.enqueue(1)
    send.using(run_after="1h").enqueue(2)
    send.enqueue(3).cancel()
    assert app.counts() == {
        "scheduled": 1, "waiting": 0, "ready": 1, "running": 0,
        "completed": 0, "failed": 0, "skipped": 0, "cancelled": 1,
    }  # fmt: skip


# --- acting ----------------------------------------------------------------------------------


def test_cancel_says_what_it_could_do(app: App, send: Task[[int], Receipt]) -> None:
    execution = send.enqueue(42)
    assert execution.cancel("out of stock") == "cancelled"
    assert execution.cancel() == "finished"
    assert execution.state == "ready"  # a snapshot still
    assert execution.refresh().state == "cancelled"
    running = send.enqueue(43)
    handed_out(app)
    assert running.cancel() == "requested"
    assert running.refresh().state == "running"


def test_rerun_gives_a_finished_execution_a_new_life(app: App, send: Task[[int], Receipt]) -> None:
    execution = send.enqueue(42)
    assert execution.rerun() == "live"
    settle(app, Failed(lease=handed_out(app).lease, error=BOOM))
    assert execution.rerun() == "rerun"
    assert execution.refresh().state == "ready"
    complete(app)
    assert execution.result() == Receipt(42)


def test_rerun_does_not_wait_for_the_time_of_a_retry(app: App, send: Task[[int], Receipt]) -> None:
    execution = send.enqueue(42)
    first = handed_out(app).lease
    settle(app, RetryScheduled(lease=first, error=BOOM, delay=timedelta(hours=1)))
    assert execution.refresh().state == "scheduled"
    assert execution.rerun() == "hastened"
    complete(app)
    assert (execution.result(), execution.attempt) == (Receipt(42), 2)


def test_rerun_is_refused_while_another_execution_has_the_key(
    app: App, send: Task[[int], Receipt]
) -> None:
    execution = send.using(key="42").enqueue(42)
    execution.cancel()
    holder = send.using(key="42").enqueue(42)
    with pytest.raises(KeyTaken, match=holder.id):
        execution.rerun()


# --- results ---------------------------------------------------------------------------------


def test_a_result_comes_back_as_the_task_says_it_is(app: App, send: Task[[int], Receipt]) -> None:
    execution = send.enqueue(42)
    complete(app)
    assert execution.result(timeout=5) == Receipt(42)
    assert app.get(execution.id).result() == send.get(execution.id).result() == Receipt(42)
    (found,) = app.find()
    assert found.result() == Receipt(42)


def test_without_the_code_a_result_is_plain_json(app: App, send: Task[[int], Receipt]) -> None:
    stranger = App("sqlite:///:memory:")
    execution = stranger.enqueue("send", {"order_id": 42})
    complete(stranger)
    assert execution.result() == {"order_id": 42}
    stranger.close()


def test_a_result_that_is_no_longer_of_the_type_says_so(
    app: App, send: Task[[int], Receipt]
) -> None:
    execution = send.enqueue(42)
    complete(app, result='{"order_id":"forty-two"}')
    with pytest.raises(ResultDoesNotFit, match="order_id"):
        execution.result()


def test_result_waits_until_the_task_has_ended(app: App, send: Task[[int], Receipt]) -> None:
    execution = send.enqueue(42)
    looked = threading.Event()
    take_snapshot = execution._reads.snapshot

    class Reads:
        """Lets the task end only after the caller has seen that it has not."""

        history = staticmethod(execution._reads.history)
        cancel = staticmethod(execution._reads.cancel)
        rerun = staticmethod(execution._reads.rerun)

        @staticmethod
        def snapshot(execution_id: str) -> object:
            snapshot = take_snapshot(execution_id)
            looked.set()
            return snapshot

    execution._reads = Reads  # type: ignore[assignment]

    def work() -> None:
        assert looked.wait(10)
        complete(app)

    worker = threading.Thread(target=work)
    worker.start()
    assert execution.result(timeout="1m") == Receipt(42)
    worker.join()


@pytest.mark.parametrize("timeout", [0, 0.01, "10ms"])
def test_who_waits_too_short_hears_where_the_execution_is(
    app: App, send: Task[[int], Receipt], timeout: float | str
) -> None:
    execution = send.enqueue(42)
    with pytest.raises(TimeoutError, match=f"'send' .* it is ready.*penstock why {execution.id}"):
        execution.result(timeout=timeout)
    with pytest.raises(TimeoutError):
        asyncio.run(execution.aresult(timeout=timeout))


def test_a_timeout_that_is_none_is_refused_before_anybody_waits(
    app: App, send: Task[[int], Receipt]
) -> None:
    with pytest.raises(InvalidOption, match="timeout='soon' is not possible"):
        send.enqueue(42).result(timeout="soon")


def test_a_failed_task_raises_the_stored_reason(app: App, send: Task[[int], Receipt]) -> None:
    execution = send.enqueue(42)
    settle(app, Failed(lease=handed_out(app).lease, error=BOOM))
    with pytest.raises(TaskFailed, match=r"'send' failed \(ValueError: boom\)") as failed:
        execution.result()
    error = failed.value
    assert (error.task, error.execution_id) == ("send", execution.id)
    assert error.reason == {"type": "ValueError", "message": "boom", "traceback": "Traceback …"}
    assert execution.error == error.reason


def test_a_cancelled_task_raises_the_reason_that_was_given(
    app: App, send: Task[[int], Receipt]
) -> None:
    execution = send.enqueue(42)
    execution.cancel("out of stock")
    with pytest.raises(TaskCancelled, match=r"'send' was cancelled \(out of stock\)") as cancelled:
        execution.result()
    assert cancelled.value.reason == {"message": "out of stock"}


def test_a_task_that_stopped_when_asked_is_cancelled_too(
    app: App, send: Task[[int], Receipt]
) -> None:
    execution = send.enqueue(42)
    claimed = handed_out(app)
    execution.cancel()
    settle(app, Cancelled(lease=claimed.lease, reason="asked to stop"))
    with pytest.raises(TaskCancelled, match="asked to stop"):
        asyncio.run(execution.aresult())


def test_a_task_cancelled_without_a_reason_says_no_more_than_that(
    app: App, send: Task[[int], Receipt]
) -> None:
    execution = send.enqueue(42)
    execution.cancel()
    with pytest.raises(TaskCancelled, match=r"'send' was cancelled\. `penstock history"):
        execution.result()


def test_all_three_ends_without_a_result_can_be_caught_as_one() -> None:
    (base,) = set(TaskFailed.__bases__)
    assert issubclass(TaskCancelled, base)
    assert issubclass(TaskSkipped, base)


# --- twins -----------------------------------------------------------------------------------

# They touch no database, or, for a worker, `async with app.worker()` is the twin.
NO_TWIN = {
    App: {
        "add_hooks",
        "configure",
        "include",
        "using",
        "task",
        "workflow",
        "worker",
        "find_task",
        "import_included",
        "rebound",
        "run_worker",
    },
    Task: {"using", "request", "request_named"},
    Execution: set[str](),
    Run: {"read", "of", "just_started"},
    Workflow: {"graph", "new_run", "using"},
}


@pytest.mark.parametrize("kind", NO_TWIN)
def test_every_method_that_does_io_has_an_async_twin_with_the_same_parameters(kind: type) -> None:
    public = {
        name: member
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }
    plain = {name for name, member in public.items() if not inspect.iscoroutinefunction(member)}
    twins = {name[1:] for name in public.keys() - plain}
    assert plain - NO_TWIN[kind] == twins
    # Where there are filters, the twin takes the same as one bundle.
    for name in twins - {"find", "find_runs"}:
        theirs = inspect.signature(public[f"a{name}"]).parameters
        assert list(inspect.signature(public[name]).parameters) == list(theirs)


def test_the_twins_answer_as_their_originals_do(app: App, send: Task[[int], Receipt]) -> None:
    execution = send.enqueue(42)

    async def look() -> None:
        assert await app.amigrate() == []
        assert await app.aget(execution.id) == await send.aget(execution.id) == execution
        assert await app.afind(task=send, state="ready", limit=5) == app.find()
        assert await app.acounts() == app.counts()
        assert await execution.ahistory() == execution.history()
        assert await execution.acancel("not needed") == "cancelled"
        assert (await execution.arefresh()).state == "cancelled"
        assert await execution.arerun() == "rerun"
        complete(app)
        assert await execution.aresult() == Receipt(42)
        await app.aclose()

    asyncio.run(look())
