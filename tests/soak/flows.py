"""The workflows of a soak, and the tasks that remember, wait for signals and start runs.

As with plain tasks, what happens depends on numbers and attempts alone.
"""

import os
from dataclasses import dataclass
from random import Random
from uuid import uuid4

from penstock import Context, TaskHandle, failed
from penstock.engine.remembering import WaitTimeout
from penstock.engine.runs import Run
from tests.soak.tasks import app
from tests.support.handling import own_connection, take_effect
from tests.support.tasks import began
from tests.support.workers import RUNS

STEPS = ("reserve", "charge", "ship")
ANSWER = "answer"
NOBODY_ANSWERS = 4  # each fourth question
CRASHES = 20  # innocent ones are not to be given up because of their neighbours


@dataclass
class Numbered:
    number: int


# --- a diamond with a task that completes in its own transaction --------------------------

diamond = app.workflow("diamond", inputs=Numbered)


@diamond.task(max_crashes=CRASHES)
def top(handle: TaskHandle, number: int, context: Context) -> int:
    began(handle)
    context["seen"] = ["top"]
    return number


@diamond.task(retry=[0, 0.05], max_crashes=CRASHES)
def left(handle: TaskHandle, context: Context, n: int = top.output) -> int:
    """Stumble at first, or always."""
    began(handle)
    if n % 13 == 0 or handle.attempt <= n % 3:
        message = f"number {n}, attempt {handle.attempt}"
        raise RuntimeError(message)
    context["seen"] = ["left"]
    return n + 1


@diamond.task(queue="money", retry=[0, 0.2, 0.5], max_crashes=CRASHES)
def right(handle: TaskHandle, context: Context, n: int = top.output) -> int:
    """Effect and completion in one transaction: who depends on it goes on after the commit."""
    began(handle)
    context["seen"] = ["right"]
    connection = own_connection()
    try:
        take_effect(connection, handle)
        handle.complete(2 * n, connection=connection)
        connection.commit()
    finally:
        connection.close()
    return 2 * n


@diamond.task(max_crashes=CRASHES)
def bottom(
    handle: TaskHandle, context: Context, a: int = left.output, b: int = right.output
) -> list[object]:
    began(handle)
    return [a, b, context["seen"]]


@diamond.task(after=[left, right], when=failed(left), max_crashes=CRASHES)
def rescue(handle: TaskHandle) -> str:
    began(handle)
    return "rescued"


# --- a task for each element of a list ----------------------------------------------------

fan = app.workflow("fan", inputs=Numbered)


@fan.task(max_crashes=CRASHES)
def spread(handle: TaskHandle, number: int) -> list[int]:
    began(handle)
    return list(range(number % 7))


@fan.task(for_each=spread.output, retry=[0, 0.05], max_crashes=CRASHES)
def each(handle: TaskHandle, element: int) -> int:
    began(handle)
    if handle.attempt <= element % 2:
        raise RuntimeError("the first attempt of every second element")
    return element * element


@fan.task(max_crashes=CRASHES)
def gather(handle: TaskHandle, squares: list[int] = each.output) -> list[int]:
    began(handle)
    return squares


# --- runs that are waited for -------------------------------------------------------------

child = app.workflow("child", inputs=Numbered)


@child.task(max_crashes=CRASHES)
def double(handle: TaskHandle, number: int) -> int:
    began(handle)
    return 2 * number


@app.task(retry=None, max_crashes=CRASHES)
def parent(handle: TaskHandle, number: int) -> int:
    began(handle)
    return int(handle.run(child, number=number)["double"])


nested = app.workflow("nested", inputs=Numbered)


@nested.task(retry=None, max_crashes=CRASHES)
def begin(handle: TaskHandle, number: int) -> int:
    began(handle)
    return int(handle.run(child, number=number)["double"])


@nested.task(max_crashes=CRASHES)
def end(handle: TaskHandle, doubled: int = begin.output) -> int:
    began(handle)
    return doubled + 1


# --- steps and signals --------------------------------------------------------------------


def take_step(handle: TaskHandle, step: str) -> str:
    """Take an effect that is not repeated, and note a call that may be."""
    token = uuid4().hex
    line = f"{handle.execution_id} {step} {token}\n"
    file = os.open(f"{os.environ[RUNS]}-steps", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
    connection = own_connection()
    try:
        if handle.once(step, connection=connection):
            connection.execute(f"INSERT INTO effects VALUES ('{handle.execution_id}:{step}')")
        connection.commit()
    finally:
        connection.close()
    return token


@app.task(retry=[0, 0.2, 0.5], max_crashes=CRASHES)
def durable(handle: TaskHandle, number: int) -> list[str]:
    """Some steps, and a wait before the last of them: each attempt begins from the start."""
    began(handle)
    taken = [handle.step(step, take_step, handle, step) for step in STEPS[:-1]]
    if waits_for_answer(number):
        handle.wait_for(signal=ANSWER)
    return [*taken, handle.step(STEPS[-1], take_step, handle, STEPS[-1])]


@app.task(max_crashes=CRASHES)
def ask(handle: TaskHandle, number: int) -> int:
    """Return the answer, or -1 if nobody gave one."""
    began(handle)
    if waits_for_answer(number):
        return int(handle.wait_for(signal=ANSWER))
    try:
        return int(handle.wait_for(signal=ANSWER, timeout=0.3))
    except WaitTimeout:
        return -1


ASKING = frozenset({ask.name, durable.name})


def waits_for_answer(number: int) -> bool:
    return number % NOBODY_ANSWERS != 0


STARTED = (diamond, fan, nested)
SHARES = (4, 3, 2)


def start_some(random: Random, first: int, count: int) -> list[Run]:
    """Start runs, mostly diamonds; `random` decides which."""
    chosen = random.choices(STARTED, SHARES, k=count)
    return [workflow.start(number=number) for number, workflow in enumerate(chosen, first)]
