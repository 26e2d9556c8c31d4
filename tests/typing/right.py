# pyright: strict
"""What users write, and both type checkers accept, with no driver installed at all."""

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Protocol, assert_type
from uuid import UUID

from penstock import (
    App,
    AsyncTaskHandle,
    Event,
    Execution,
    Registry,
    Request,
    Retry,
    Task,
    TaskHandle,
)

app = App()
tasks = Registry(prefix="shop.")


@dataclass
class Page:
    number: int


# --- declarations -------------------------------------------------------------------------


@app.task
def send(order_id: int, to: str = "somebody") -> str:
    return f"sent {order_id} to {to}"


@app.task(queue="mail", retry=["1m", "5m", "15m"], timeout="30s", aliases=["old_name"])
def send_slowly(order_id: int, *, to: str) -> str:
    return f"sent {order_id} to {to}"


@app.task(executor="process", retry=None, max_crashes=1, max_running=2, priority=3)
def render(page: Page) -> bytes:
    return bytes(page.number)


@app.task(retry=Retry(delays=[1, "5m", timedelta(hours=1)], jitter=0.1, on=(ConnectionError,)))
async def fetch(url: str) -> list[int]:
    return [len(url)]


@app.task
def with_handle(handle: TaskHandle, path: str) -> int:
    return handle.attempt + len(path)


@app.task(name="with_async_handle", retry=(1, 2.5, "1h"))
async def awith_handle(handle: AsyncTaskHandle, path: str) -> int:
    return handle.attempt + len(path)


@tasks.task
def forget(customer: UUID) -> None:
    del customer


@tasks.task(timeout=timedelta(minutes=1))
def count(handle: TaskHandle) -> int:
    return handle.attempt


@app.task
def of_anything(payload: object, times: int) -> str:
    return f"{payload!r} {times}"


@app.task
def of_any(payload: Any, times: int) -> str:  # noqa: ANN401
    return f"{payload!r} {times}"


@app.task
def of_no_annotation(payload, times: int) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return f"{payload!r} {times}"


@app.task
async def of_anything_later(payload: object) -> int:
    return len(repr(payload))


in_texts = ["1m", "5m"]


@app.task(retry=in_texts)
def with_delays_from_elsewhere() -> None: ...


@app.task(retry=["1m", 300, timedelta(hours=1)], priority=-1)
def with_delays_of_all_kinds() -> None: ...


# --- enqueue: the function's own parameters, without the handle ----------------------------

assert_type(send.enqueue(42, to="a@example.com"), Execution[str])
assert_type(send.enqueue(42), Execution[str])
assert_type(send_slowly.enqueue(42, to="a@example.com"), Execution[str])
assert_type(render.enqueue(Page(1)), Execution[bytes])
assert_type(fetch.enqueue("https://example.com"), Execution[list[int]])
assert_type(with_handle.enqueue("file"), Execution[int])
assert_type(awith_handle.enqueue(path="file"), Execution[int])
assert_type(forget.enqueue(UUID(int=0)), Execution[None])
assert_type(count.enqueue(), Execution[int])

# Not swallowed as a handle: both arguments belong to the caller. What such a task returns is not
# asked for, because mypy takes a parameter that is `Any` for every overload at once.
assert_type(of_anything.enqueue({"order": 42}, 3), Execution[str])
assert_type(of_anything_later.enqueue(["order", 42]), Execution[int])
of_any.enqueue({"order": 42}, times=3)
of_no_annotation.enqueue({"order": 42}, 3)


async def enqueue_on_a_loop() -> None:
    assert_type(await send.aenqueue(42, to="a@example.com"), Execution[str])
    assert_type(await fetch.aenqueue("https://example.com"), Execution[list[int]])
    assert_type(await awith_handle.aenqueue("file"), Execution[int])
    assert_type(await send.using(key="42").aenqueue(42), Execution[str])
    assert_type(await app.aenqueue("send", {"order_id": 42}), Execution[Any])
    await app.aenqueue_many([send.request(42)])


# --- a plain call runs the function, and keeps the handle ----------------------------------

assert_type(send(42, to="a@example.com"), str)
assert_type(render(Page(1)), bytes)


def call_with(handle: TaskHandle) -> int:
    return with_handle(handle, "file")


async def acall_with(handle: AsyncTaskHandle) -> int:
    numbers = await fetch("https://example.com")
    assert_type(numbers, list[int])
    return await awith_handle(handle, path="file")


# --- options ------------------------------------------------------------------------------

later = send.using(run_after="10m", priority=5, queue="slow", key="receipt-42")
assert_type(later.enqueue(42), Execution[str])
send.using(run_after=timedelta(minutes=10)).enqueue(42)
send.using(run_after=datetime.now(UTC) + timedelta(hours=1)).enqueue(42)
send.using(run_after=90.5, notify=False).enqueue(42)
send.using(serial="order-42").using(priority=1).enqueue(42)
app.enqueue("send", {"order_id": 42, "to": "a@example.com"}, priority=5, key=None)

# --- the caller's transaction --------------------------------------------------------------

with sqlite3.connect("orders.db") as connection:
    assert_type(send.using(connection=connection).enqueue(42), Execution[str])
    with_handle.using(connection=connection, key="file").enqueue("file")
    with app.using(connection=connection):
        send.enqueue(42)
        app.enqueue_many([send.request(n) for n in range(10)])


class Transaction(Protocol):
    """A connection of a driver that the type checker has never heard of."""

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class AwaitedTransaction(Protocol):
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


def enqueue_in(transaction: Transaction) -> Execution[str]:
    return send.using(connection=transaction).enqueue(42)


async def aenqueue_in(transaction: AwaitedTransaction) -> Execution[str]:
    with app.using(connection=transaction, notify=False):
        await send.aenqueue(41)
    return await send.using(connection=transaction).aenqueue(42)


# --- requests and reads --------------------------------------------------------------------

assert_type(send.request(42), Request[str])
assert_type(with_handle.using(priority=1).request("file"), Request[int])
app.enqueue_many([send.request(1), render.request(Page(1)), forget.request(UUID(int=0))])

execution = send.get("0197a000-0000-7000-8000-000000000000")
assert_type(execution, Execution[str])
assert_type(execution.result(timeout=5), str)
assert_type(execution.refresh().result(), str)
assert_type(execution.history(), list[Event])
assert_type(
    execution.state,
    Literal[
        "scheduled", "waiting", "ready", "running", "completed", "failed", "skipped", "cancelled"
    ],
)
assert_type(execution.sub_state, Literal["active", "deferred"] | None)
assert_type(fetch.enqueue("https://example.com").result(), list[int])
assert_type(app.get(execution.id), Execution[Any] | Any)
app.find(task="send", state="failed", limit=100)
app.find(task=send, before=execution.id)
assert_type(app.counts()["ready"], int)


async def look() -> None:
    assert_type(await (await send.aget(UUID(int=0))).aresult(timeout=5), str)
    assert_type(await app.afind(task=send, state="failed", limit=10), list[Execution[Any]])
    await execution.acancel("no longer wanted")
    await execution.arerun()


# --- annotations ---------------------------------------------------------------------------

by_name: Task[[str], int] = with_handle
by_id: Task[[UUID], None] = forget
anything: Task[..., Any] = send
all_of_them: list[Task[..., object]] = [send, render, fetch, with_handle, awith_handle, forget]
wider: Execution[object] = send.enqueue(42)
plain: Callable[[int, str], str] = send
awaited: Callable[[str], Awaitable[list[int]]] = fetch


def enqueue_each(task: Task[[str], int], paths: list[str]) -> list[Execution[int]]:
    return [task.enqueue(path) for path in paths]


enqueue_each(with_handle, ["file"])
enqueue_each(awith_handle, ["file"])

# --- an App that is put together, and works ------------------------------------------------

shop = App("sqlite:///shop.db", migrate=True, schema="tenant_a", include=[tasks, "mail.tasks"])
shop.configure(database="postgresql://localhost/shop")
with shop.worker(slots=4, queues=["mail"], grace="5s"):
    pass
shop.run_worker(until_idle=True)
