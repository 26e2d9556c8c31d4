"""Enqueueing: in a transaction of its own or in the caller's, now or later, once or many times."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path

import pytest

from penstock import App, Registry, TaskHandle
from penstock.engine.requests import InvalidOption
from penstock.engine.signatures import InvalidArguments
from penstock.store.connections.callers import ConnectionRefused
from penstock.store.connections.refusals import NotAConnection, SyncConnectionGiven

tasks = Registry()


@tasks.task(queue="mail", priority=2, aliases=["old_send"])
def send(order_id: int, to: str = "somebody") -> str:
    return f"sent {order_id} to {to}"


@tasks.task
def with_handle(handle: TaskHandle, path: str) -> int:
    return handle.attempt + len(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "orders.db"


@pytest.fixture
def app(file: Path) -> Iterator[App]:
    app = App(f"sqlite:///{file}", migrate=True, include=[tasks])
    app.counts()
    yield app
    app.close()


@pytest.fixture
def connection(app: App, file: Path) -> Iterator[sqlite3.Connection]:
    """A caller's own connection to the same file."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        yield connection


def enqueued(app: App) -> list[object]:
    """The first argument of every execution, the oldest first."""
    return [next(iter(one.args.values())) for one in reversed(app.find())]


# --- what an enqueued execution is -----------------------------------------------------------


def test_an_execution_is_committed_when_enqueue_returns(app: App) -> None:
    execution = send.enqueue(42, to="x")
    assert execution.created
    assert (execution.task, execution.queue, execution.priority) == ("send", "mail", 2)
    assert execution.args == {"order_id": 42, "to": "x"}
    assert (execution.state, execution.attempt, execution.error) == ("ready", 0, None)
    read = app.get(execution.id)
    assert read == execution
    assert abs(read.created_at - execution.created_at) < timedelta(seconds=5)
    assert [event.type for event in execution.history()] == ["task.created", "task.marked_ready"]


def test_the_worker_passes_the_handle_and_the_caller_does_not(app: App) -> None:
    assert with_handle.enqueue("file").args == {"path": "file"}
    with pytest.raises(InvalidArguments, match="'handle' is the handle, which the worker passes"):
        with_handle.enqueue(path="file", handle=None)  # type: ignore[call-arg]


def test_using_leaves_the_task_itself_as_it_was(app: App) -> None:
    urgent = send.using(priority=9, queue="fast")
    assert urgent.using(key="42").enqueue(42).priority == 9
    assert urgent.enqueue(42).queue == "fast"
    assert (send.enqueue(42).priority, send.enqueue(42).queue) == (2, "mail")


class Queue(str, Enum):  # noqa: UP042 - as many still write it
    MAIL = "mail"


class Urgency(int, Enum):
    HIGH = 5


def test_members_of_enums_are_stored_as_what_they_stand_for(app: App, file: Path) -> None:
    """Their own texts are others, and drivers differ about them."""
    declared = app.task(name="post", queue=Queue.MAIL, priority=Urgency.HIGH)(send.function)
    asked = send.using(queue=Queue.MAIL, priority=Urgency.HIGH, key=Queue.MAIL, serial=Queue.MAIL)

    declared.enqueue(1)
    asked.enqueue(2)
    app.enqueue_many([asked.using(key=None).request(3), declared.request(4)])

    with closing(sqlite3.connect(file)) as connection:
        stored = connection.execute("SELECT queue, priority, key, serial FROM task_executions")
        assert set(stored) == {
            ("mail", 5, None, None),
            ("mail", 5, "mail", "mail"),
            ("mail", 5, None, "mail"),
        }


def test_requests_are_written_together_and_in_their_order(app: App) -> None:
    requests = [send.request(n) for n in range(50)]
    assert app.counts()["ready"] == 0
    executions = app.enqueue_many([*requests, with_handle.using(priority=7).request("file")])
    assert [execution.args.get("order_id") for execution in executions[:50]] == list(range(50))
    assert (executions[50].task, executions[50].priority) == ("with_handle", 7)
    assert app.counts()["ready"] == 51
    assert enqueued(app) == [*range(50), "file"]
    assert app.enqueue_many([]) == []


# --- later, earlier, once, one at a time ------------------------------------------------------


@pytest.mark.parametrize("run_after", ["10m", 600, 600.0, timedelta(minutes=10)])
def test_a_duration_counts_from_now(app: App, run_after: str | float | timedelta) -> None:
    execution = send.using(run_after=run_after).enqueue(42)
    for look in (execution, app.get(execution.id)):
        assert look.state == "scheduled"
        assert look.run_at is not None
        due_in = look.run_at - datetime.now(UTC)
        assert timedelta(minutes=9) < due_in <= timedelta(minutes=10)


def test_an_aware_datetime_is_that_very_moment(app: App) -> None:
    moment = datetime(2040, 1, 1, 12, tzinfo=UTC)
    elsewhere = moment.astimezone(tz=None)
    execution = send.using(run_after=elsewhere).enqueue(42)
    assert execution.run_at == app.get(execution.id).run_at == moment


def test_what_is_due_already_is_ready(app: App) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    assert send.using(run_after=past).enqueue(42).refresh().state == "ready"
    assert send.using(run_after=0).enqueue(42).refresh().state == "ready"


def test_a_naive_datetime_is_refused_because_nobody_knows_when_it_is(app: App) -> None:
    with pytest.raises(
        InvalidOption, match=r"run_after=.* without a time zone.*datetime\.now\(UTC"
    ):
        send.using(run_after=datetime(2040, 1, 1))  # noqa: DTZ001
    assert set(app.counts().values()) == {0}


def test_a_key_has_one_live_execution_and_the_second_caller_gets_the_first(app: App) -> None:
    first = send.using(key="receipt-42", priority=7).enqueue(42, to="first")
    second = send.using(key="receipt-42").enqueue(42, to="second")
    assert (first.created, second.created) == (True, False)
    assert second == first
    assert (second.args["to"], second.priority) == ("first", 7)  # it is the first, in all it shows
    assert app.counts()["ready"] == 1
    assert with_handle.using(key="receipt-42").enqueue("file").created  # of another task


def test_a_key_is_free_again_when_its_execution_has_ended(app: App) -> None:
    first = send.using(key="receipt-42").enqueue(42)
    first.cancel()
    second = send.using(key="receipt-42").enqueue(42)
    assert second.created
    assert second != first


def test_a_key_that_comes_twice_in_one_call_is_written_once(app: App) -> None:
    request = send.using(key="receipt-42").request
    first, second = app.enqueue_many([request(1), request(2)])
    assert (first.created, second.created) == (True, False)
    assert second.args == first.args == {"order_id": 1}


def test_executions_of_one_serial_wait_for_each_other(app: App) -> None:
    first, second = (send.using(serial="order-42").enqueue(n) for n in (1, 2))
    assert (first.state, second.state) == ("ready", "waiting")
    assert first.serial == app.get(second.id).serial == "order-42"
    first.cancel()
    assert second.refresh().state == "ready"


# --- by name ---------------------------------------------------------------------------------


def test_a_caller_without_the_code_enqueues_by_name(app: App) -> None:
    execution = app.enqueue("resize", {"image": 42}, queue="images", priority=3, key="image-42")
    assert (execution.task, execution.args) == ("resize", {"image": 42})
    assert (execution.queue, execution.priority) == ("images", 3)
    assert app.enqueue("resize").args == {}


def test_a_caller_with_the_code_has_its_options_and_its_checks(app: App) -> None:
    execution = app.enqueue("send", {"order_id": 42}, priority=5)
    assert (execution.queue, execution.priority) == ("mail", 5)
    with pytest.raises(InvalidArguments, match="order_id='x' does not fit int"):
        app.enqueue("send", {"order_id": "x"})
    assert app.counts()["ready"] == 1


def test_a_former_name_enqueues_the_task_of_today(app: App) -> None:
    assert app.enqueue("old_send", {"order_id": 42}).task == "send"


# --- the caller's transaction ----------------------------------------------------------------


def test_on_a_connection_it_is_there_when_the_caller_commits(
    app: App, connection: sqlite3.Connection
) -> None:
    connection.execute("INSERT INTO orders VALUES (42)")
    execution = send.using(connection=connection, key="42").enqueue(42)
    assert app.find() == []
    connection.commit()
    assert app.find() == [execution]


def test_on_a_connection_it_is_not_there_when_the_caller_rolls_back(
    app: App, connection: sqlite3.Connection
) -> None:
    execution = send.using(connection=connection).enqueue(42)
    connection.rollback()
    assert app.find() == []
    assert app.store.history(execution.id) == []


def test_everything_in_a_using_block_goes_into_its_transaction(
    app: App, connection: sqlite3.Connection
) -> None:
    with app.using(connection=connection):
        send.enqueue(1)
        app.enqueue_many([send.request(n) for n in range(2, 100)])
        app.enqueue("resize", {"image": 100})
        assert app.counts()["ready"] == 0
    connection.commit()
    assert enqueued(app) == list(range(1, 101))


def test_many_in_a_rolled_back_transaction_leave_nothing(
    app: App, connection: sqlite3.Connection
) -> None:
    with app.using(connection=connection):
        app.enqueue_many([send.request(n) for n in range(1000)])
    connection.rollback()
    assert set(app.counts().values()) == {0}


def test_a_using_block_ends_with_the_block_however_that_ends(
    app: App, connection: sqlite3.Connection
) -> None:
    with pytest.raises(ZeroDivisionError), app.using(connection=connection):
        raise ZeroDivisionError
    send.enqueue(1)
    assert enqueued(app) == [1]


def test_the_innermost_block_counts_and_a_task_with_a_connection_more_than_it(
    app: App, connection: sqlite3.Connection, file: Path
) -> None:
    with closing(sqlite3.connect(file)) as inner:
        with app.using(connection=connection):
            with app.using(connection=inner):
                send.enqueue(1)
            inner.commit()
            send.enqueue(2)
            assert enqueued(app) == [1]
            connection.rollback()
        with app.using(connection=connection):
            send.using(connection=inner).enqueue(3)
        inner.commit()
    assert enqueued(app) == [1, 3]


def test_a_block_in_one_coroutine_is_nothing_to_another(
    app: App, connection: sqlite3.Connection
) -> None:
    async def in_a_block(entered: asyncio.Event, other_is_done: asyncio.Event) -> None:
        with app.using(connection=connection):
            entered.set()
            await other_is_done.wait()
            send.enqueue(1)

    async def beside_it(entered: asyncio.Event, done: asyncio.Event) -> None:
        await entered.wait()
        await send.aenqueue(2)
        done.set()

    async def both() -> None:
        events = asyncio.Event(), asyncio.Event()
        await asyncio.gather(in_a_block(*events), beside_it(*events))

    asyncio.run(both())
    assert enqueued(app) == [2]
    connection.commit()
    assert sorted(one.args["order_id"] for one in app.find()) == [1, 2]


def test_an_app_has_blocks_of_its_own(
    app: App, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    other = App(f"sqlite:///{tmp_path / 'other.db'}")
    with app.using(connection=connection):
        other.enqueue("send", {"order_id": 1})
    assert other.counts()["ready"] == 1
    other.close()


@pytest.mark.parametrize("block", [True, False])
def test_a_connection_that_is_none_is_a_mistake_and_not_a_missing_option(
    app: App, *, block: bool
) -> None:
    nothing: sqlite3.Connection = None  # type: ignore[assignment]
    around = app.using(connection=nothing) if block else nullcontext()
    task = send if block else send.using(connection=nothing)
    with pytest.raises(NotAConnection, match="`connection=` was given None"), around:
        task.enqueue(42)
    assert set(app.counts().values()) == {0}


def test_the_wrong_twin_is_refused_with_the_right_one(
    app: App, connection: sqlite3.Connection
) -> None:
    on_connection = send.using(connection=connection)
    with pytest.raises(SyncConnectionGiven, match=r"plain twin.*\.enqueue"):
        asyncio.run(on_connection.aenqueue(42))  # type: ignore[attr-defined]

    async def in_a_block() -> None:
        with app.using(connection=connection):
            await send.aenqueue(42)

    with pytest.raises(ConnectionRefused, match="event loop"):
        asyncio.run(in_a_block())
    connection.commit()
    assert set(app.counts().values()) == {0}


# --- on a loop -------------------------------------------------------------------------------


def test_every_way_to_enqueue_has_an_async_twin(app: App) -> None:
    async def enqueue() -> None:
        first = await send.aenqueue(1)
        await app.aenqueue_many([send.request(2), send.request(3)])
        await app.aenqueue("resize", {"image": 4})
        again = await send.using(key="5").aenqueue(5), await send.using(key="5").aenqueue(6)
        assert (await send.aget(first.id)).args == {"order_id": 1}
        assert (again[1].created, again[1].args) == (False, {"order_id": 5})

    asyncio.run(enqueue())
    assert enqueued(app) == [1, 2, 3, 4, 5]
