"""Threads that start together, so that what they do happens at the same time."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def in_threads(calls: Sequence[Callable[[], T]], *, timeout: float = 60) -> list[T]:
    """Make all calls at once; return their answers in order, or raise what one of them raised."""
    together = threading.Barrier(len(calls))

    def call(function: Callable[[], T]) -> T:
        together.wait(timeout)
        return function()

    with ThreadPoolExecutor(len(calls)) as pool:
        started = [pool.submit(call, function) for function in calls]
        return [future.result(timeout) for future in started]


def race(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """Make both calls at once; return both answers, or raise what one of them raised."""
    answers: tuple[list[T], list[U]] = [], []
    in_threads([lambda: answers[0].append(first()), lambda: answers[1].append(second())])
    return answers[0][0], answers[1][0]
