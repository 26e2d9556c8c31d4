"""Tasks that wait, and tasks that complete in their own transactions, for real processes."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from penstock import AsyncTaskHandle, LeaseLost, TaskHandle
from penstock.testing.processes import WorkerProcess
from tests.support.tasks import app, began, is_open, wait_for
from tests.support.workers import Place, Workers, wait_until

LEFT_OPEN_FOR = 2.0
ZOMBIE = "penstock test zombie"
NEVER = threading.Event()  # a condition that costs nothing to look at


def start(workers: Workers, **options: object) -> WorkerProcess:
    """Start a worker that knows these tasks, and return when others can see it."""
    process = workers.launch(f"{__name__}:app", options)
    wait_until(lambda: workers.ids_of(process), what="a worker that others can see")
    return process


# --- a table of the user's own ----------------------------------------------------------


def connect(url: str, schema: str) -> Any:  # noqa: ANN401 - of either library
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        return sqlite3.connect(path, timeout=60, check_same_thread=False)
    options = f"-c search_path={schema}"
    return psycopg.connect(url, options=options, application_name=ZOMBIE)


def own_connection() -> Any:  # noqa: ANN401
    return connect(os.environ["PENSTOCK_DATABASE_URL"], os.environ["PENSTOCK_DATABASE_SCHEMA"])


@contextmanager
def connected(place: Place) -> Iterator[Any]:
    connection = connect(place.url, place.schema)
    try:
        yield connection
        connection.commit()
    finally:
        connection.close()


def make_effects(place: Place) -> None:
    with connected(place) as connection:
        connection.execute("CREATE TABLE effects (execution TEXT)")


def effects(place: Place) -> list[str]:
    """Whose effects there are; one that took place twice is there twice."""
    with connected(place) as connection:
        return [row[0] for row in connection.execute("SELECT execution FROM effects").fetchall()]


def take_effect(connection: Any, handle: TaskHandle) -> None:  # noqa: ANN401
    connection.execute(f"INSERT INTO effects VALUES ('{handle.execution_id}')")


def reached(place: Place, point: str) -> int:
    """How many handlers have come to this point."""
    return len(list(place.directory.glob(f"{point}-*")))


def _come_to(point: str, handle: TaskHandle, gate: str) -> None:
    """Say that this handler is here, and stay until the gate opens."""
    if not is_open(gate):
        Path(gate).with_name(f"{point}-{handle.execution_id}").touch()
        wait_for(gate)


# --- tasks ------------------------------------------------------------------------------


@app.task
def wait_here(handle: TaskHandle, gate: str) -> int:
    began(handle)
    handle.defer_until(lambda: is_open(gate), every=0.05, reason="the gate")
    return os.getpid()


@app.task
async def await_here(handle: AsyncTaskHandle, gate: str) -> int:
    began(handle)
    await handle.defer_until(lambda: is_open(gate), every=0.05, reason="the gate")
    return os.getpid()


@app.task(queue="many")
def wait_long(handle: TaskHandle) -> None:
    handle.defer_until(NEVER.is_set, every="5s")


@app.task(queue="many")
async def await_long(handle: AsyncTaskHandle) -> None:
    await handle.defer_until(NEVER.is_set, every="5s")


@app.task(retry=[0, 0, 0])
def pay(handle: TaskHandle, stop_at: str, gate: str) -> int:
    """Take effect and complete in one transaction, and stay at one point on the way."""
    began(handle)
    if stop_at == "before":
        _come_to("before", handle, gate)
    connection = own_connection()
    try:
        take_effect(connection, handle)
        if stop_at == "effect":
            _come_to("effect", handle, gate)
        handle.complete(os.getpid(), connection=connection)
        if stop_at == "completed":
            _come_to("completed", handle, gate)
        connection.commit()
    finally:
        connection.close()
    if stop_at == "committed":
        _come_to("committed", handle, gate)
    return os.getpid()


@app.task(retry=[0, 0, 0], executor="process")
def pay_in_process(handle: TaskHandle, stop_at: str, gate: str) -> int:
    return pay(handle, stop_at, gate)


@app.task(retry=[0, 0, 0])
def pay_in_savepoint(handle: TaskHandle) -> int:
    """The first time, roll back to before the effect, and commit what is left: nothing."""
    began(handle)
    connection = own_connection()
    try:
        if handle.attempt == 1:
            connection.execute("BEGIN") if isinstance(connection, sqlite3.Connection) else None
            connection.execute("SAVEPOINT mine")
            take_effect(connection, handle)
            handle.complete(1, connection=connection)
            connection.execute("ROLLBACK TO SAVEPOINT mine")
        else:
            take_effect(connection, handle)
            handle.complete(handle.attempt, connection=connection)
        connection.commit()
    finally:
        connection.close()
    return handle.attempt


@app.task(retry=[0, 0, 0])
def pay_later(handle: TaskHandle, commits: bool, gate: str) -> int:
    """Return, the first time, while the transaction is open; a thread ends it later."""
    began(handle)
    connection = own_connection()
    take_effect(connection, handle)
    handle.complete(handle.attempt, connection=connection)
    if handle.attempt > 1 or is_open(gate):
        connection.commit()
        connection.close()
        return handle.attempt

    def end_it() -> None:
        time.sleep(LEFT_OPEN_FOR)
        connection.commit() if commits else connection.rollback()
        connection.close()

    Path(gate).with_name(f"open-{handle.execution_id}").touch()
    threading.Thread(target=end_it, daemon=True).start()
    return handle.attempt


@app.task
def outlive(handle: TaskHandle, stop_at: str, gate: str) -> str:
    """The first run stays at its point until the gate opens, however late; the others do not."""
    began(handle)
    connection = own_connection()
    try:
        if stop_at == "before" and handle.attempt == 1:
            _come_to("before", handle, gate)
        take_effect(connection, handle)
        handle.complete(str(handle.attempt), connection=connection)
        if stop_at == "completed" and handle.attempt == 1:
            _come_to("completed", handle, gate)
        connection.commit()
    except (LeaseLost, psycopg.Error, sqlite3.Error) as error:
        Path(gate).with_name("refused").write_text(type(error).__name__)
        raise
    finally:
        connection.close()
    return str(handle.attempt)
