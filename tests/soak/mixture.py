"""How much of what a soak runs, and in what order: decided by its seed."""

from collections.abc import Callable
from random import Random
from typing import Any

from penstock.engine.requests import Request
from tests.soak.flows import ask, durable, parent
from tests.soak.tasks import (
    app,
    charge,
    come_back,
    lead,
    linger,
    pay,
    stumble,
    take_along,
    work,
    work_in_process,
    work_on_loop,
)

__all__ = ["MIXTURE", "TARGET", "app", "requests"]

TARGET = f"{__name__}:app"  # with it, a worker knows the workflows too

Make = Callable[[int, Random], Request[Any]]

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
    (12, lambda number, _: parent.request(number)),
    (12, lambda number, _: durable.request(number)),
    (20, lambda number, _: ask.request(number)),
    (1, lambda number, _: work_in_process.request(number)),
    (1, lambda number, _: take_along.request(number)),
)


def requests(random: Random, first: int, count: int) -> list[Request[Any]]:
    """A mixture, mostly of plain work; `random` decides which and in what order."""
    weights, kinds = zip(*MIXTURE, strict=True)
    chosen = random.choices(kinds, weights, k=count)
    return [make(number, random) for number, make in enumerate(chosen, first)]
