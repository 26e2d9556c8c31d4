"""Handles for calling a task's function directly, without an App and without a database.

handle = FakeHandle()
load(handle, "orders.csv")
assert handle.progress_shown == [(0.5, "half way")]
"""

from concurrent.futures import Future
from datetime import datetime
from typing import TypeVar

from penstock.engine.deferrals import Interrupted
from penstock.engine.handle import TaskHandle
from penstock.engine.remembering import Recall
from penstock.engine.shapes import AsyncConnection, SyncConnection
from penstock.engine.slots import SlotPool, SlotToken
from penstock.errors import LeaseLost, PenstockError
from penstock.model.executions import Claimed, Lease, Memory, StepDone
from penstock.model.ids import new_id
from penstock.model.payloads import encode
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from penstock.testing.handles import WaitingHandle

T = TypeVar("T")

MOST_CHECKS = 10_000


class NeverTrue(PenstockError):
    """A condition without a timeout that stays false, however far the clock moves."""

    def __init__(self, checks: int) -> None:
        self.checks = checks
        super().__init__(
            f"The condition of defer_until was still false after {checks} checks, and there is no "
            "timeout. Let the condition depend on something that your test changes, on "
            "`handle.clock` for example, or give defer_until a timeout."
        )


class NothingBehind(PenstockError):
    """A fake handle was asked for a database."""

    def __init__(self) -> None:
        super().__init__(
            "A fake handle has no database behind it. Where the test needs one, enqueue the task "
            "inside a ManualApp instead of calling it."
        )


class FakeDesk:
    """What a fake handle says of the worker around it, and what the task has done with it."""

    def __init__(self, clock: ManualClock, execution_id: str) -> None:
        self.clock = clock
        self._execution_id = execution_id
        self.cancelled = False
        self.lease_lost = False
        self.in_doubt = False
        self.waited: list[float] = []
        self._epoch = clock.now()
        self.slot: SlotToken
        (self.slot,) = SlotPool(1, when_free=lambda: None).take()

    @property
    def store(self) -> Store:
        raise NothingBehind

    @property
    def ending(self) -> bool:
        return self.cancelled or self.lease_lost

    def monotonic(self) -> float:
        return (self.clock.now() - self._epoch).total_seconds()

    def wait(self, seconds: float) -> None:
        if len(self.waited) >= MOST_CHECKS:
            raise NeverTrue(MOST_CHECKS)
        self.waited.append(seconds)
        # Never less than the clock can show: the last of a timeout would not pass otherwise.
        self.clock.advance(max(seconds, 1e-6))

    def raise_if_ended(self) -> None:
        if self.cancelled:
            raise Interrupted
        if self.lease_lost:
            raise LeaseLost(self._execution_id, doing="wait any longer")

    def give_up_slot(self, reason: str | None) -> None:
        del reason
        self.raise_if_ended()
        self.slot.release()

    def take_slot(self) -> None:
        self.slot.reclaim()

    async def agive_up_slot(self, reason: str | None) -> None:
        self.give_up_slot(reason)

    async def atake_slot(self) -> None:
        self.take_slot()

    def completing(self, result: object) -> str:
        return encode(result)

    def unknown_start(self) -> datetime | None:
        return None

    def now(self) -> datetime:
        return self.clock.now()

    def remember(self, step: StepDone) -> Future[bool]:
        del step  # the handle notes it
        written: Future[bool] = Future()
        written.set_result(not self.lease_lost)
        return written


class _Memory(Recall):
    """Steps and signals that no database knows."""

    def __init__(self, claimed: Claimed, memory: Memory) -> None:
        super().__init__(claimed, _nothing)
        self._memory = memory
        self._steps = memory.steps


def _nothing() -> Store:
    raise NothingBehind


class _Remembers:
    """What both colours remember, and how a test plays the world around them."""

    _recall: Recall

    def _begin(
        self, execution_id: str | None, attempt: int, clock: ManualClock | None
    ) -> tuple[Claimed, FakeDesk]:
        self.clock = clock or ManualClock()
        self.progress_shown: list[tuple[float, str | None]] = []
        self.completed_with: list[object] = []
        self._done: set[str] = set()
        self._known = Memory(steps={}, signals={})
        lease = Lease(execution_id or new_id(), fence=attempt, worker_id="fake")
        self._fake = FakeDesk(self.clock, lease.execution_id)
        self._given = Claimed(
            lease,
            task="fake",
            args="{}",
            queue="default",
            priority=0,
            seq=attempt,
            attempt=attempt,
            retries=attempt - 1,
            crashes=0,
            suspect=False,
            serial=None,
            has_follow_ups=False,
            claimed_at=self.clock.now(),
        )
        return self._given, self._fake

    @property
    def waited(self) -> list[float]:
        """The seconds of each wait in `defer_until`; empty if the condition was true at once."""
        return self._fake.waited

    def signal(self, name: str, value: object = None) -> None:
        """Tell the task something, as `app.signal(…)` does; who waits for it hears it next time."""
        self._known.signals.setdefault(name, encode(value))

    def cancel(self) -> None:
        """Ask the task to stop, as somebody does with `execution.cancel()`."""
        self._fake.cancelled = True

    def lose_lease(self) -> None:
        """Give the task to another worker, as happens to one that was stopped for too long."""
        self._fake.lease_lost = True

    def share(self, done: set[str], known: Memory) -> None:
        """Remember what an earlier attempt remembers."""
        self._done, self._known = done, known
        self._recall = _Memory(self._given, known)

    def _must_hold(self, doing: str) -> None:
        if self._fake.lease_lost:
            raise LeaseLost(self._given.lease.execution_id, doing=doing)

    def _remember_progress(self, fraction: float, note: str | None) -> None:
        if isinstance(fraction, bool) or not 0 <= fraction <= 1:
            message = f"handle.progress({fraction!r}) must be given a fraction between 0 and 1."
            raise ValueError(message)
        self._must_hold("show its progress")
        self.progress_shown.append((fraction, note))

    def _remember_completion(self, result: object) -> None:
        self._must_hold("complete")
        encode(result)  # what could not be stored is refused here, too
        self.completed_with.append(result)

    def _is_first(self, name: str) -> bool:
        self._must_hold("do something once")
        first = name not in self._done
        self._done.add(name)
        return first


class FakeHandle(_Remembers, TaskHandle):
    """For a plain `def` task: `task(FakeHandle(), …)`.

    `defer_until` checks its condition, moves `clock` by the interval, and checks again. What the
    task shows, completes and does once is remembered in `progress_shown` and `completed_with`,
    and written nowhere.
    """

    def __init__(
        self,
        *,
        execution_id: str | None = None,
        attempt: int = 1,
        clock: ManualClock | None = None,
    ) -> None:
        claimed, desk = self._begin(execution_id, attempt, clock)
        TaskHandle.__init__(self, claimed, desk)
        self._recall = _Memory(claimed, self._known)

    def next_attempt(self) -> "FakeHandle":
        """The handle of the same execution's next try: what was done once stays done."""
        following = FakeHandle(
            execution_id=self.execution_id, attempt=self.attempt + 1, clock=self.clock
        )
        following.share(self._done, self._known)
        return following

    def progress(self, fraction: float, note: str | None = None) -> None:
        self._remember_progress(fraction, note)

    def complete(self, result: T, *, connection: SyncConnection) -> T:
        del connection
        self._remember_completion(result)
        return result

    def once(self, name: str, *, connection: SyncConnection) -> bool:
        del connection
        return self._is_first(name)


class FakeAsyncHandle(_Remembers, WaitingHandle):
    """The same for an `async def` task: `await task(FakeAsyncHandle(), …)`."""

    def __init__(
        self,
        *,
        execution_id: str | None = None,
        attempt: int = 1,
        clock: ManualClock | None = None,
    ) -> None:
        claimed, desk = self._begin(execution_id, attempt, clock)
        WaitingHandle.__init__(self, claimed, desk, self._pass_time)
        self._recall = _Memory(claimed, self._known)

    def next_attempt(self) -> "FakeAsyncHandle":
        """The handle of the same execution's next try: what was done once stays done."""
        following = FakeAsyncHandle(
            execution_id=self.execution_id, attempt=self.attempt + 1, clock=self.clock
        )
        following.share(self._done, self._known)
        return following

    async def _pass_time(self, seconds: float) -> None:
        self._fake.wait(seconds)

    async def progress(self, fraction: float, note: str | None = None) -> None:
        self._remember_progress(fraction, note)

    async def complete(self, result: T, *, connection: AsyncConnection) -> T:
        del connection
        self._remember_completion(result)
        return result

    async def once(self, name: str, *, connection: AsyncConnection) -> bool:
        del connection
        return self._is_first(name)
