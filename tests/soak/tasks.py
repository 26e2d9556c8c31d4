"""What a soak runs: tasks of every kind, whose effects can be counted afterwards.

What a task does depends on its number and its attempt alone, so that a run can be repeated.
"""

import asyncio
import os
import resource
import time
from collections.abc import Callable
from random import Random

from penstock import App, AsyncTaskHandle, TaskHandle
from penstock.engine.requests import Request
from tests.support.handling import own_connection, take_effect
from tests.support.tasks import began

TARGET = "tests.soak.tasks:app"
QUEUES = ("default", "money")
EFFECT_WITH_COMPLETION = "pay"  # an effect of it exists exactly when it is completed
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


Make = Callable[[int, Random], Request[int]]

# How often each kind comes, compared with the others.
MIXTURE: tuple[tuple[int, Make], ...] = (
    (350, lambda number, _: work.request(number)),
    (250, lambda number, _: work_on_loop.request(number)),
    (120, lambda number, _: stumble.request(number)),
    (40, lambda number, _: come_back.request(number)),
    (60, lambda number, _: pay.request(number)),
    (60, lambda number, _: charge.request(number)),
    (40, lambda number, _: lead.request(number)),
    (20, lambda number, _: linger.request(number)),
    (40, lambda number, _: work.using(serial=f"line-{number % 7}").request(number)),
    (40, lambda number, random: work.using(run_after=random.uniform(0.1, 2)).request(number)),
    (40, lambda number, _: work.using(priority=number % 3).request(number)),
    (40, lambda number, _: work.using(key=f"key-{number % 50}").request(number)),
    (1, lambda number, _: work_in_process.request(number)),
    (1, lambda number, _: take_along.request(number)),
)


def requests(random: Random, first: int, count: int) -> list[Request[int]]:
    """A mixture, mostly of plain work; `random` decides which and in what order."""
    weights, kinds = zip(*MIXTURE, strict=True)
    chosen = random.choices(kinds, weights, k=count)
    return [make(number, random) for number, make in enumerate(chosen, first)]
