"""Processes that claim from one table at the same time, until nothing is left."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Any, Literal

from sqlalchemy import Engine, create_engine

from penstock.claiming import PathName, claim
from tests.claiming.handwritten import claim_by_hand
from tests.claiming.tables import NEW, SENDING, URGENT, count_of, invoices

RACERS = 8

Way = PathName | Literal["by hand"] | None

_barriers: list[Barrier] = []


@dataclass(frozen=True)
class Outcome:
    """What one process was given, and when it began and ended (by a clock that all share)."""

    ids: list[int]
    largest: int
    begun: float
    ended: float


@dataclass(frozen=True)
class Race:
    outcomes: list[Outcome]

    @property
    def given(self) -> Counter[int]:
        return Counter(number for outcome in self.outcomes for number in outcome.ids)

    @property
    def largest(self) -> int:
        return max(outcome.largest for outcome in self.outcomes)

    @property
    def rate(self) -> float:
        """Rows a second, from the first claim to the last."""
        begun = min(outcome.begun for outcome in self.outcomes)
        ended = max(outcome.ended for outcome in self.outcomes)
        return sum(len(outcome.ids) for outcome in self.outcomes) / (ended - begun)


@contextmanager
def racers() -> Iterator[ProcessPoolExecutor]:
    """Eight processes that wait for a race; starting them takes longer than most races."""
    # Spawned, not forked: the threads of this process hold locks that a copy would never free.
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(RACERS)
    with ProcessPoolExecutor(
        RACERS, mp_context=context, initializer=_meet_at, initargs=(barrier,)
    ) as pool:
        yield pool


def race(
    pool: ProcessPoolExecutor,
    engine: Engine,
    way: Way,
    *,
    limit: int,
    timeout: float = 280,
) -> Race:
    """Let all processes of the pool claim all new invoices; raise what one of them raises."""
    url = engine.url.render_as_string(hide_password=False)
    started = [pool.submit(claim_all, url, way, limit) for _ in range(RACERS)]
    return Race([future.result(timeout) for future in started])


def _meet_at(barrier: Barrier) -> None:
    _barriers.append(barrier)


def claim_all(url: str, way: Way, limit: int) -> Outcome:
    engine = create_engine(url)
    ids: list[int] = []
    largest = 0
    with engine.connect():
        _barriers[0].wait(timeout=60)
    begun = time.monotonic()
    while True:
        rows = claimed(engine, way, limit)
        ids += [row.id for row in rows]
        largest = max(largest, len(rows))
        # An empty list may only mean that others hold the rest at this moment.
        if not rows and not count_of(engine, "new"):
            break
    ended = time.monotonic()
    engine.dispose()
    return Outcome(ids, largest, begun, ended)


def claimed(engine: Engine, way: Way, limit: int) -> list[Any]:
    if way == "by hand":
        return claim_by_hand(engine, limit)
    return claim(
        engine, invoices, where=NEW, values=SENDING, order_by=URGENT, limit=limit, path=way
    )
