"""Workflows and durable tasks for workers in processes of their own.

Each function writes down that it ran, in one line of a file that all processes share. None of them
is to blame when its process is killed, however often that happens to the same one by chance.
"""

import os
import time
from dataclasses import dataclass

from penstock import App, Context, TaskHandle
from tests.support.workers import RUNS

TARGET = "tests.support.flow_tasks:app"
STEPS = ("reserve", "charge", "pack", "ship", "tell")

app = App()


def note(*words: object) -> None:
    """One line in one write: what many processes append at once stays whole."""
    file = os.open(f"{os.environ[RUNS]}-flows", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(file)


def linger() -> None:
    """Long enough that somebody is killed in the middle of it now and then."""
    time.sleep(0.05)


@dataclass
class Number:
    number: int


diamond = app.workflow("diamond", inputs=Number)


@diamond.task(max_crashes=100)
def top(handle: TaskHandle, number: int, context: Context) -> int:
    note(handle.execution_id, "top")
    context["seen"] = ["top"]
    linger()
    return number


@diamond.task(max_crashes=100)
def left(handle: TaskHandle, context: Context, n: int = top.output) -> int:
    note(handle.execution_id, "left")
    context["seen"] = ["left"]
    linger()
    return n + 1


@diamond.task(max_crashes=100)
def right(handle: TaskHandle, context: Context, n: int = top.output) -> int:
    note(handle.execution_id, "right")
    context["seen"] = ["right"]
    linger()
    return n * 2


@diamond.task(max_crashes=100)
def bottom(
    handle: TaskHandle, context: Context, a: int = left.output, b: int = right.output
) -> list[object]:
    note(handle.execution_id, "bottom")
    return [a, b, sorted(context["seen"])]


child = app.workflow("child", inputs=Number)


@child.task(max_crashes=100)
def double(handle: TaskHandle, number: int) -> int:
    note(handle.execution_id, "double")
    linger()
    return 2 * number


@app.task(max_crashes=100, retry=[0.1, 0.1, 0.1])
def parent(handle: TaskHandle, number: int) -> int:
    results = handle.run(child, number=number)
    note(handle.execution_id, "saw", results["double"])
    return int(results["double"])


held = app.workflow("held")


@held.task(queue="nobody")
def never() -> None:
    """No worker of the tests takes from this queue, so whoever waits for it waits."""


@app.task
def patient(handle: TaskHandle) -> None:
    handle.run(held)


def take(step: str, execution_id: str) -> str:
    note(execution_id, step)
    return step


@app.task(max_crashes=100)
def durable(handle: TaskHandle, dies_after: str) -> list[str]:
    """Five steps; the process dies after one of them, the first time that it has been taken."""
    taken = []
    for step in STEPS:
        before = handle.step(f"before {step}", time.monotonic_ns)
        taken.append(handle.step(step, take, step, handle.execution_id))
        note(handle.execution_id, "stored", step)
        del before
        if step == dies_after and handle.attempt == 1:
            os._exit(9)
    return taken


@app.task(max_crashes=100)
def ask(handle: TaskHandle, number: int) -> int:
    note(handle.execution_id, "asks", number)
    time.sleep(0.001 * (number % 10))
    return int(handle.wait_for(signal="answer"))
