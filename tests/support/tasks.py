"""Tasks for workers in processes of their own. Each writes down that it began, and who it was."""

import asyncio
import logging
import os
import threading
import time
from pathlib import Path

from penstock import App, AsyncTaskHandle, GiveUp, Retry, RetryAfter, TaskHandle
from penstock.engine.current import current_execution
from tests.support.workers import RUNS

LOOK_EVERY = 0.02

app = App()


class UnpicklableError(Exception):
    """An error of a user's: it can neither be sent to another process nor be rebuilt there."""

    def __init__(self, number: int, *, reason: str) -> None:
        super().__init__(f"number {number}: {reason}")
        self.lock = threading.Lock()


def began(handle: TaskHandle | AsyncTaskHandle) -> None:
    """One line in one write: what many processes append at once stays whole."""
    line = f"{handle.execution_id} {handle.attempt} {os.getpid()}\n"
    file = os.open(os.environ[RUNS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def is_open(gate: str) -> bool:
    return Path(gate).exists()


def wait_for(gate: str) -> None:
    while not is_open(gate):
        time.sleep(LOOK_EVERY)


@app.task
def hold(handle: TaskHandle, gate: str) -> int:
    """Run on a thread until the gate opens."""
    began(handle)
    wait_for(gate)
    return os.getpid()


@app.task
async def hold_on_loop(handle: AsyncTaskHandle, gate: str) -> int:
    began(handle)
    while not is_open(gate):  # noqa: ASYNC110 - the gate is a file, shared by processes
        await asyncio.sleep(LOOK_EVERY)
    return os.getpid()


@app.task(executor="process")
def hold_in_process(handle: TaskHandle, gate: str) -> int:
    began(handle)
    wait_for(gate)
    return os.getpid()


@app.task
def step(handle: TaskHandle, number: int) -> int:
    """A short one among many."""
    began(handle)
    time.sleep(0.005)
    return number


@app.task
def pill(handle: TaskHandle) -> None:
    """Take the whole process along."""
    began(handle)
    os.abort()


@app.task
async def block_the_loop(handle: AsyncTaskHandle, seconds: float) -> int:
    began(handle)
    time.sleep(seconds)  # noqa: ASYNC251 - the fault that this task is about
    return os.getpid()


@app.task
def after_failure(execution_id: str) -> str:
    return execution_id


@app.task(on_failure=after_failure, max_crashes=2)
def pill_with_follow_up(handle: TaskHandle) -> None:
    began(handle)
    os.abort()


@app.task
def slow_pill(handle: TaskHandle, gate: str) -> None:
    """Take the process along after a while: everything else is under way by then."""
    began(handle)
    wait_for(gate)
    os.abort()


@app.task
async def stubborn(handle: AsyncTaskHandle, gate: str) -> int:
    """Fail while being stopped, as a clean-up does that finds its connection closed."""
    began(handle)
    try:
        while not is_open(gate):  # noqa: ASYNC110 - the gate is a file, shared by processes
            await asyncio.sleep(LOOK_EVERY)
    finally:
        if not is_open(gate):
            raise ConnectionError("closed already")
    return os.getpid()


@app.task(executor="process", timeout="2s", retry=None)
def overrun_in_process(handle: TaskHandle, gate: str) -> None:
    began(handle)
    wait_for(gate)


@app.task
def talk() -> None:
    logging.getLogger("shop").warning("from a thread")


@app.task
async def talk_on_loop() -> None:
    logging.getLogger("shop").warning("from the loop")


@app.task(executor="process")
def name_in_process() -> str | None:
    return current_execution.get()


@app.task(executor="process", retry=[0])
def unlucky_in_process(attempts: int) -> None:
    raise UnpicklableError(attempts, reason="it holds a lock")


@app.task(executor="process", retry=Retry([0, 0], give_up_on=UnpicklableError))
def final_in_process() -> None:
    raise UnpicklableError(1, reason="for good")


@app.task(executor="process", retry=["1h"])
def give_up_in_process() -> None:
    raise GiveUp("no retry can help")


@app.task(executor="process", retry=["1h"])
def retry_soon_in_process(handle: TaskHandle) -> int:
    if handle.attempt == 1:
        raise RetryAfter(0)
    return handle.attempt


@app.task(executor="process", retry=["1h"])
def picky_in_process(number: int) -> int:
    return number


@app.task
def fork_and_enqueue(handle: TaskHandle) -> int:
    """What a copy of the worker's process enqueues is enqueued once, and by itself."""
    began(handle)
    if (pid := os.fork()) == 0:
        step.enqueue(7)
        os._exit(0)
    _, state = os.waitpid(pid, 0)
    return state


@app.task
def fork_and_return(handle: TaskHandle) -> int:
    """Both copies come back from the handler; only one of them is a worker."""
    began(handle)
    os.fork()
    return os.getpid()


@app.task
def ask_another(number: int) -> int:
    return 10 * step.enqueue(number).result(timeout=20)


@app.task
async def ask_another_on_loop(number: int) -> int:
    execution = await step.aenqueue(number)
    return 10 * await execution.aresult(timeout=20)
