"""Durations are compared within one run, by turns: what disturbs one side disturbs the other."""

import time
from collections.abc import Callable
from statistics import median

COMPARISONS = 3


def duration(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def slowdown(without: Callable[[], object], with_: Callable[[], object], *, rounds: int) -> float:
    """Return how many times as long the second call takes, by the medians of so many rounds."""
    turns = [(duration(without), duration(with_)) for _ in range(rounds)]
    return median(second for _, second in turns) / median(first for first, _ in turns)


def least(measure: Callable[[], float], *, enough: float) -> float:
    """Measure up to three times, until it is less than `enough`; return the least.

    Another program's minute cannot make a comparison fail, and a real slowdown shows each time.
    """
    measured: list[float] = []
    while len(measured) < COMPARISONS:
        measured.append(measure())
        if measured[-1] < enough:
            break
    return min(measured)
