"""Calling back when time is up, and forgetting who no longer waits."""

import threading
import time
from collections.abc import Iterator

import pytest

from penstock.engine.deadlines import Deadlines


@pytest.fixture
def deadlines() -> Iterator[Deadlines]:
    deadlines = Deadlines()
    yield deadlines
    deadlines.close()


def test_functions_are_called_in_the_order_of_their_moments(deadlines: Deadlines) -> None:
    called: list[str] = []
    done = threading.Event()
    now = time.monotonic()
    deadlines.call_at(now + 0.05, lambda: called.append("second"))
    deadlines.call_at(now + 0.01, lambda: called.append("first"))
    deadlines.call_at(now + 0.1, done.set)
    assert done.wait(5)
    assert called == ["first", "second"]


def test_what_is_forgotten_is_not_called(deadlines: Deadlines) -> None:
    called: list[str] = []
    done = threading.Event()
    now = time.monotonic()
    number = deadlines.call_at(now + 0.02, lambda: called.append("forgotten"))
    deadlines.call_at(now + 0.05, done.set)
    deadlines.forget(number)
    assert done.wait(5)
    assert called == []


def test_what_ended_long_before_its_time_is_not_kept(deadlines: Deadlines) -> None:
    in_an_hour = time.monotonic() + 3600
    kept = deadlines.call_at(in_an_hour, lambda: None)
    for _ in range(5_000):
        deadlines.forget(deadlines.call_at(in_an_hour, lambda: None))
    assert len(deadlines) < 200
    deadlines.forget(kept)
