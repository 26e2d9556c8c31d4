"""Tasks that fail, defer, wait and die, and a crowd of workers that are killed at random.

What a task does depends on its number and its attempt alone, so a run can be repeated.
"""

import asyncio
import os
import time
from dataclasses import dataclass, field
from random import Random

from penstock import App, TaskHandle
from penstock.engine.requests import Request
from penstock.model.states import FINAL, State
from penstock.store.contract import Store
from penstock.testing.processes import WorkerProcess
from tests.support.workers import QUICK, Workers, wait_until

TARGET = "tests.support.turbulence:app"

app = App()


@app.task
def work(number: int) -> int:
    return number


@app.task(retry=[0, 0.05])
def stumble(handle: TaskHandle, number: int) -> int:
    """Succeed in one attempt of three, or in none."""
    if (number + handle.attempt) % 3 or number % 7 == 0:
        message = f"number {number}, attempt {handle.attempt}"
        raise RuntimeError(message)
    return number


@app.task
def come_back(handle: TaskHandle, number: int) -> int:
    """Wait once for a moment, without a slot; every other one durably instead."""
    woken = time.monotonic() + 0.05
    handle.defer_until(lambda: time.monotonic() > woken, every=0.05, reason="a moment")
    if number % 2 and time.time_ns() % 3:
        handle.defer_for(0.05, reason="another moment")
    return number


@app.task(max_crashes=2)
def take_along(handle: TaskHandle, number: int) -> int:
    """Every fifth takes its whole process along, for ever or only once."""
    if number % 5 == 0 and (number % 2 or handle.attempt == 1):
        os.abort()
    return number


@app.task
async def stay() -> None:
    """Run until somebody cancels it."""
    await asyncio.Event().wait()


def requests(count: int, *, deadly: bool = True) -> list[Request[int]]:
    """A mixture: mostly plain work, some of it in serials or for later."""
    found: list[Request[int]] = []
    for number in range(count):
        match number % 10:
            case 0 | 1:
                found.append(stumble.request(number))
            case 2:
                found.append(come_back.request(number))
            case 3:
                found.append(work.using(serial=f"line-{number // 10 % 7}").request(number))
            case 4:
                found.append(work.using(run_after=0.2, priority=number % 3).request(number))
            case 5 if deadly and number % 200 == 5:
                found.append(take_along.request(number // 200 * 5))
            case _:
                found.append(work.request(number))
    return found


@dataclass
class Turbulence:
    """Keeps some workers alive, kills one now and then, and meddles with executions."""

    workers: Workers
    store: Store
    random: Random
    slots: int = 4
    alive: list[WorkerProcess] = field(default_factory=list)

    def keep_alive(self, count: int) -> None:
        self.alive = [one for one in self.alive if one.alive]
        while len(self.alive) < count:
            self.alive.append(self.workers.launch(TARGET, {**QUICK, "slots": self.slots}))

    def work_off(self, down_to: int, *, at_once: int) -> None:
        """Wait until no more are left, with so many workers: tasks may take all of them along."""

        def is_done() -> bool:
            self.keep_alive(at_once)
            return self.left <= down_to

        wait_until(is_done, timeout=60, what=f"{down_to} executions left at most")

    def kill_one(self) -> None:
        """Not one that is still coming up: it would have nothing to lose."""
        names = {peer.info.name for peer in self.store.workers()}
        settled = [one for one in self.alive if any(n.endswith(f":{one.pid}") for n in names)]
        if settled:
            self.random.choice(settled).kill()

    def meddle(self) -> None:
        """Cancel some that are live and rerun some that are not, as people do."""
        found = [self.store.find(state=state, limit=30) for state in State]
        live = [one.id for some in found for one in some if one.state not in FINAL]
        ended = [one.id for some in found for one in some if one.state in FINAL]
        self.store.cancel(self.random.sample(live, min(2, len(live))), reason="no more of it")
        self.store.rerun(self.random.sample(ended, min(2, len(ended))))

    @property
    def left(self) -> int:
        counts = self.store.counts()
        return sum(count for state, count in counts.items() if state not in FINAL)
