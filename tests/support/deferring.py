"""One attempt in a worker whose time is moved by the test: what happens, happens when it is due.

The runner, the desk, the slots and the store are the real ones; only the clock, the way to
wait and the thread of the settler are not.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import partial
from typing import cast

import pytest

from penstock import App
from penstock.engine import attempts, desk, handle, runner
from penstock.engine.attempts import Attempt
from penstock.engine.runner import Runner
from penstock.engine.settler import Settler
from penstock.engine.slots import SlotToken
from penstock.model.executions import Lease
from penstock.model.outcomes import Outcome
from penstock.model.states import SubState
from penstock.model.workers import WorkerInfo
from penstock.registry import PlainTask
from penstock.store.contract import Store

WORKER, OBSERVER = "worker", "observer"
Happening = tuple[float, str]


class DirectSettler:
    """Writes at once, on the thread of whoever asks."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.refused = 0

    def note_start(self, lease: Lease, noted: float, started_at: datetime) -> None:
        del noted
        self.store.start([lease], started_at=[started_at])

    def start_was_told(self, lease: Lease) -> bool:
        return not self.store.start([lease])

    def change_sub_state(
        self, lease: Lease, sub_state: SubState, reason: str | None
    ) -> "Future[bool]":
        written: Future[bool] = Future()
        deferred = sub_state is SubState.DEFERRED
        lost = self.store.defer([lease], reason=reason) if deferred else self.store.undefer([lease])
        written.set_result(not lost)
        return written

    def put(self, outcome: Outcome) -> None:
        self.refused += len(self.store.settle([outcome]))


class Stirred:
    """Stands in for the event that a waiting thread waits for: waiting moves the time."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._set = False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float | None = None) -> bool:
        self._world.let_pass(seconds, until=self.is_set)
        return self._set


class World:
    """A worker with one task, and a list of what happens to it and when."""

    def __init__(self, app: App, happenings: Sequence[Happening], *, slots: int = 1) -> None:
        self.store = app.store
        self.now = 0.0
        self.happenings = sorted(happenings)
        self.happened: list[str] = []
        self.condition = False
        self.checked_at: list[float] = []
        self.known_lost = False
        self.settler = DirectSettler(self.store)
        self.runner = Runner(
            slots,
            loop=asyncio.new_event_loop(),
            settler=cast("Settler", self.settler),
            store=self.store,
            may_have_lost_all=lambda: False,
            has_lost=lambda _: self.known_lost,
        )
        self.rivals: list[SlotToken] = []
        self.held_at_the_end: bool | None = None
        self.limit: asyncio.Timeout | None = None  # one that the handler has set itself

    def monotonic(self) -> float:
        return self.now

    # --- what happens -----------------------------------------------------------------

    def let_pass(self, seconds: float | None, *, until: Callable[[], bool]) -> None:
        """Move the time, and let happen what is due, `until` somebody is stirred."""
        end = float("inf") if seconds is None else self.now + seconds
        while not until():
            if not self.happenings or self.happenings[0][0] > end:
                assert end < float("inf"), "it would wait for ever"
                self.now = end
                return
            self.happen()

    def happen(self) -> None:
        at, what = self.happenings.pop(0)
        self.now = max(self.now, at)
        self.happened.append(what)
        getattr(self, f"_{what}")()

    def _true(self) -> None:
        self.condition = True

    def _cancel(self) -> None:
        self.store.cancel([self.attempt.id])
        self.runner.cancel(self.store.cancel_requests(WORKER))

    def _shutdown(self) -> None:
        self.runner.begin_nothing_more()
        self.runner.end_deferrals()

    def _lost(self) -> None:
        self.store.register(WorkerInfo(id=OBSERVER))
        (beat,) = [peer.seen for peer in self.store.workers() if peer.info.id == WORKER]
        self.store.recover(OBSERVER, dead=[beat])
        self.known_lost = True

    def _rival(self) -> None:
        """Somebody else takes the slot that the waiting task has given back."""
        self.rivals += self.runner.slots.take()

    def _slot(self) -> None:
        self.rivals.pop().release()

    def _limit(self) -> None:
        assert self.limit is not None
        self.limit.reschedule(0)
        self.attempt.stirred.set()

    # --- the task ---------------------------------------------------------------------

    def ask(self) -> bool:
        self.checked_at.append(self.now)
        return self.condition

    def claim(self, task: PlainTask) -> Attempt:
        self.store.register(WorkerInfo(id=WORKER, queues=["default"], tasks=[task.name]))
        task.enqueue()
        (claimed,) = self.store.claim(WORKER, queues=["default"], tasks=[task.name], limit=1)
        self.attempt = Attempt(claimed, task, self.now)
        (self.attempt.slot,) = self.runner.slots.take()
        self.attempt.stirred = Stirred(self)  # type: ignore[assignment]
        self.runner.running[claimed.lease] = self.attempt
        return self.attempt

    def run(self, task: PlainTask) -> None:
        attempt = self.claim(task)
        self.runner._run_on_thread(attempt)
        self.runner._loop.close()

    def arun(self, task: PlainTask) -> None:
        attempt = self.claim(task)
        self.runner._loop.run_until_complete(self._on_loop(attempt))
        self.runner._loop.close()

    async def _on_loop(self, attempt: Attempt) -> None:
        running = asyncio.ensure_future(self.runner._run_on_loop(attempt))
        attempt.interrupt = partial(self.runner._cancel_on_loop, running)
        while not running.done():
            for _ in range(10):  # whatever goes on by itself goes on first
                await asyncio.sleep(0)
            if not running.done() and self.waits_in_line:
                self.happen()
        await running

    @property
    def waits_in_line(self) -> bool:
        slot = self.attempt.slot
        return slot is not None and slot._place is not None

    async def sleep(self, seconds: float) -> None:
        """As asyncio's: a cancellation ends it."""
        stirred = self.attempt.stirred
        stirred.clear()
        self.let_pass(seconds, until=cast("Stirred", stirred).is_set)
        for _ in range(3):
            await asyncio.sleep(0)

    def history(self) -> list[str]:
        return [event.type.removeprefix("task.") for event in self.store.history(self.attempt.id)]


def install(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine live in this world's time."""
    for module in (attempts, desk, runner):
        monkeypatch.setattr(module, "time", world)
    monkeypatch.setattr(handle, "nap", world.sleep)
