# mypy: ignore-errors
"""What users write by mistake: each marked line is an error in both type checkers, no other is.

The line above this text keeps the project's own check quiet; the samples are checked without it.
Nothing here needs a driver: connections, engines and pools are given by their shapes.
"""

import sqlite3
from typing import Any, Protocol

from penstock import App, AsyncTaskHandle, Execution, Registry, Retry, Task, TaskHandle

app = App()
tasks = Registry()


@app.task
def send(order_id: int, to: str = "somebody") -> str:
    return f"sent {order_id} to {to}"


@app.task(queue="mail", retry=["1m"])
def send_slowly(order_id: int, *, to: str) -> str:
    return f"sent {order_id} to {to}"


@app.task
async def fetch(url: str) -> list[int]:
    return [len(url)]


@app.task
def with_handle(handle: TaskHandle, path: str) -> int:
    return handle.attempt + len(path)


@tasks.task(timeout="1m")
async def awith_handle(handle: AsyncTaskHandle, path: str) -> int:
    return handle.attempt + len(path)


# --- arguments ----------------------------------------------------------------------------

send.enqueue("42")  # error
send.enqueue()  # error
send.enqueue(42, "a@example.com", 3)  # error
send.enqueue(42, too="a@example.com")  # error
send.enqueue(42, to=None)  # error
send_slowly.enqueue(42, "a@example.com")  # error
send_slowly.enqueue(42)  # error
fetch.enqueue(b"https://example.com")  # error
with_handle.enqueue(3)  # error
with_handle.enqueue()  # error
awith_handle.enqueue(path=3)  # error
send.request("42")  # error
send.using(priority=5).enqueue("42")  # error

# --- the handle: the worker passes it, a plain call must ------------------------------------


def give_handle(handle: TaskHandle, other: AsyncTaskHandle) -> None:
    with_handle.enqueue(handle, "file")  # error
    with_handle.enqueue(handle=handle, path="file")  # error
    awith_handle.enqueue(other, "file")  # error
    with_handle("file")  # error
    with_handle(other, "file")  # error


# --- results ------------------------------------------------------------------------------

number: int = send.enqueue(42).result()  # error
text: str = send.enqueue(42)  # error
numbers: list[str] = fetch.enqueue("https://example.com").result()  # error
of_int: Execution[int] = send.enqueue(42)  # error
not_awaited: list[int] = fetch("https://example.com")  # error


async def not_awaited_either() -> Execution[str]:
    return send.aenqueue(42)  # error


async def arguments_on_a_loop() -> None:
    await send.aenqueue("42")  # error
    found: int = await (await fetch.aget("id")).aresult()  # error
    del found


# --- connections --------------------------------------------------------------------------


class AwaitedCommit(Protocol):
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


class LikeAsyncpg(Protocol):
    def is_in_transaction(self) -> bool: ...
    async def fetchrow(self, query: str, *args: Any) -> Any: ...  # noqa: ANN401


class Engine(Protocol):
    def connect(self) -> sqlite3.Connection: ...
    def begin(self) -> sqlite3.Connection: ...


class Pool(Protocol):
    async def acquire(self) -> LikeAsyncpg: ...
    async def fetchrow(self, query: str, *args: Any) -> Any: ...  # noqa: ANN401


plain = sqlite3.connect("orders.db")
send.using(connection=plain).enqueue("42")  # error
send.using(connection=plain).request(42)  # error
send.using(connection="sqlite:///orders.db").enqueue(42)  # error
send.using(connection=None).enqueue(42)  # error
send.using(plain).enqueue(42)  # error
app.using(connection="sqlite:///orders.db")  # error
app.using(connection=None)  # error


async def on_connections(
    awaited: AwaitedCommit, asyncpg: LikeAsyncpg, engine: Engine, pool: Pool
) -> None:
    await send.using(connection=plain).aenqueue(42)  # error
    send.using(connection=awaited).enqueue(42)  # error
    send.using(connection=asyncpg).enqueue(42)  # error
    await send.using(connection=asyncpg).aenqueue("42")  # error
    send.using(connection=engine).enqueue(42)  # error
    await send.using(connection=pool).aenqueue(42)  # error
    app.using(connection=engine)  # error
    app.using(connection=pool)  # error


# --- options ------------------------------------------------------------------------------

send.using(prio=5).enqueue(42)  # error
send.using(priority="high").enqueue(42)  # error
send.using(key=42).enqueue(42)  # error
send.using(run_after=[1]).enqueue(42)  # error
send.using(connection=plain, queue=3).enqueue(42)  # error
app.enqueue("send", {"order_id": 42}, when="10m")  # error
app.enqueue(send, {"order_id": 42})  # error
app.enqueue_many([send])  # error
app.enqueue_many([send.enqueue(42)])  # error
app.find(state="done")  # error
app.find(limit="all")  # error


async def find_on_a_loop() -> None:
    await app.afind(state="done")  # error


# --- declarations -------------------------------------------------------------------------


@app.task(retry="1m")  # error
def one_delay() -> None: ...


@app.task(retry=3)  # error
def three_times() -> None: ...


@app.task(timeout=[30])  # error
def impatient() -> None: ...


@app.task(executor="fiber")  # error
def exotic() -> None: ...


@app.task(que="mail")  # error
def misspelt() -> None: ...


@app.task(aliases="old_name")  # error
def renamed() -> None: ...


app.task("send")  # error
tasks.task(send, queue="mail")  # error
Retry(delays=3)  # error
Retry.exponential(retries="8")  # error
App(include=[send])  # error
App(42)  # error
app.worker(slots="four")  # error
app.run_worker(until_idle=True, queue="mail")  # error

# --- annotations --------------------------------------------------------------------------

by_text: Task[[str], str] = send  # error
of_another: Task[[str], str] = with_handle  # error
with_its_handle: Task[[TaskHandle, str], int] = with_handle  # error


def enqueue_each(task: Task[[str], int]) -> None:
    task.enqueue(3)  # error
    task("file")  # error


enqueue_each(fetch)  # error
