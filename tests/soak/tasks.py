"""What a soak runs: tasks of every kind, whose effects can be counted afterwards.

What a task does depends on its number and its attempt alone, so that a run can be repeated.
"""

import asyncio
import os
import resource
import time

from penstock import App, AsyncTaskHandle, TaskHandle
from tests.support.handling import own_connection, take_effect
from tests.support.tasks import began

QUEUES = ("default", "money")
# An effect of these exists exactly when they are completed.
EFFECT_WITH_COMPLETION = ("pay", "diamond.right")
EFFECT_ONCE = "charge"  # has taken effect once when it is completed, and never twice
FOLLOWED = "lead"
FOLLOWS = "follow"
RERUN = ("work", "stumble")  # those of which a second life is no second effect

# A task that aborts leaves no core file behind.
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

app = App()


@app.task
def work(handle: TaskHandle, number: int) -> int:
    began(handle)
    return number


@app.task
async def work_on_loop(handle: AsyncTaskHandle, number: int) -> int:
    began(handle)
    await asyncio.sleep(0.002)
    return number


@app.task
def linger(handle: TaskHandle, number: int) -> int:
    """Long enough to be started in the database, and to be there when a worker is killed."""
    began(handle)
    time.sleep(0.2)
    return number


@app.task(executor="process")
def work_in_process(handle: TaskHandle, number: int) -> int:
    began(handle)
    return number


@app.task(retry=[0, 0.05])
def stumble(handle: TaskHandle, number: int) -> int:
    """Succeed in one attempt of three, or in none."""
    began(handle)
    if (number + handle.attempt) % 3 or number % 7 == 0:
        message = f"number {number}, attempt {handle.attempt}"
        raise RuntimeError(message)
    return number


@app.task
def come_back(handle: TaskHandle, number: int) -> int:
    """Wait for a moment without a slot; some of them durably as well."""
    began(handle)
    woken = time.monotonic() + 0.05
    handle.defer_until(lambda: time.monotonic() > woken, every=0.05, reason="a moment")
    if number % 2 and time.time_ns() % 3:
        handle.defer_for(0.05, reason="another moment")
    return number


@app.task(queue="money", retry=[0, 0.2, 0.5])
def pay(handle: TaskHandle, number: int) -> int:
    """Effect and completion in one transaction."""
    began(handle)
    connection = own_connection()
    try:
        take_effect(connection, handle)
        handle.complete(number, connection=connection)
        connection.commit()
    finally:
        connection.close()
    return number


@app.task(queue="money", retry=[0, 0.2, 0.5])
def charge(handle: TaskHandle, number: int) -> int:
    """An effect that is not repeated, in a task that is."""
    began(handle)
    connection = own_connection()
    try:
        if handle.once("charge", connection=connection):
            take_effect(connection, handle)
        connection.commit()
    finally:
        connection.close()
    if handle.attempt <= number % 3:
        raise RuntimeError("charged, and stumbled afterwards")
    return number


@app.task(max_crashes=2)
def take_along(handle: TaskHandle, number: int) -> int:
    """Take the whole process along, for ever or only once."""
    began(handle)
    if number % 2 or handle.attempt == 1:
        os.abort()
    return number


@app.task
def follow(handle: TaskHandle, execution_id: str, result: int) -> int:
    began(handle)
    return result


@app.task(on_success=follow)
def lead(handle: TaskHandle, number: int) -> int:
    began(handle)
    return number
