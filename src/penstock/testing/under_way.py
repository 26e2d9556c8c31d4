"""An attempt that a test carries on: until it ends, or until it waits for the clock to move.

It differs from an attempt in a worker in who runs it and in where its time comes from. What it
means for the task is decided by the same code.
"""

import asyncio
import contextvars
import time
from abc import ABC, abstractmethod
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any

from penstock.engine.attempts import Attempt, CompletionUndone, TimedOut
from penstock.engine.current import current_execution
from penstock.engine.deferrals import Interrupted
from penstock.engine.desk import CompletionOpen
from penstock.engine.handle import NoDeferralHere
from penstock.engine.slots import SlotPool, SlotToken
from penstock.engine.writes import encode_writes
from penstock.errors import LeaseLost, PenstockError
from penstock.model.clock import Clock
from penstock.model.executions import StepDone
from penstock.model.outcomes import Completed, Failed, Outcome, RetryScheduled
from penstock.store.contract import Store
from penstock.testing.handles import WaitingHandle
from penstock.testing.side_thread import SideThread

_MICROSECOND = timedelta(microseconds=1)


class OtherLoop(PenstockError):
    """An async task waits on a loop that is not the one at hand."""

    def __init__(self, task: str) -> None:
        self.task = task
        super().__init__(
            f"{task!r} waits on another event loop than the one that is running now, and cannot go "
            "on here. Begin and continue it in the same way: with `run_until_idle` or, on one "
            "loop, with `await arun_until_idle`."
        )


class UnderWay(ABC):
    """One attempt, and how far it has come."""

    def __init__(self, attempt: Attempt, store: Store, clock: Clock) -> None:
        self.attempt = attempt
        self.store = store
        self.clock = clock
        self.wakes_at: datetime | None = None  # not None: it waits, without a slot
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None  # what the handler raised, where that counts
        self.lost = False  # its worker is dead: nothing that it does counts any more
        self._began = clock.now()
        self._since = self._began
        self._deferred = timedelta(0)
        (attempt.slot,) = SlotPool(1, when_free=lambda: None).take()
        attempt.desk = lambda _: ManualDesk(self)

    @abstractmethod
    def go_on(self) -> None:
        """Run until it ends or waits."""

    @abstractmethod
    async def ago_on(self) -> None:
        """Run until it ends or waits, on the loop of whoever awaits this."""

    def abandon(self) -> None:
        """Let it end, from wherever it waits: the test is over."""
        self.go_on()

    @property
    def ending(self) -> bool:
        return self.attempt.cancelled or self.attempt.released or self.lost

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self.attempt.arguments()

    # --- waiting ----------------------------------------------------------------------

    def rest(self) -> None:
        self._since = self.clock.now()

    def resume(self) -> None:
        self._deferred += self.clock.now() - self._since

    def sleep(self, seconds: float) -> None:
        """Say when it wants to go on. Time is counted in microseconds, and none is lost."""
        whole = timedelta(seconds=seconds)
        self.wakes_at = self.clock.now() + (whole if whole or not seconds else _MICROSECOND)

    # --- the end ----------------------------------------------------------------------

    def returned(self, result: object) -> None:
        timeout = self.attempt.task.options.timeout
        if timeout is not None and self.clock.now() - self._began - self._deferred > timeout:
            self.raised(TimedOut(self.attempt.task.name, timeout))
            return
        self.outcome = self.attempt.completed(result)
        if not isinstance(self.outcome, Completed):
            self.error = self._misfit(result)

    def _misfit(self, result: object) -> BaseException | None:
        try:
            self.attempt.task.signature.encode_result(result)
            encode_writes(self.attempt.context, task=self.attempt.task.name)
        except Exception as error:  # noqa: BLE001 - whatever the result does when it is encoded
            return error
        return None

    def raised(self, error: BaseException) -> None:
        # The real clock has hardly moved; what the attempt counts from it is to be the test's.
        elapsed = self.clock.now() - self._began
        self.attempt.received_at = time.monotonic() - elapsed.total_seconds()
        stopped = self.attempt.released or self.attempt.cancelled
        outcome = self.attempt.interrupted() if stopped else self.attempt.failed(error)
        self.outcome = outcome
        if isinstance(outcome, Failed | RetryScheduled):
            self.error = error

    def undone(self) -> Outcome:
        """How it ends if the transaction that it completed in was rolled back."""
        if isinstance(self.outcome, Completed):
            self.raised(CompletionUndone(self.attempt.task.name))
        if self.outcome is None:
            message = "only an attempt that has ended can be undone"
            raise AssertionError(message)
        return self.outcome


class InPlace(UnderWay):
    """A plain function without a handle: it cannot wait, so it runs where it is called."""

    def go_on(self) -> None:
        contextvars.Context().run(self._call)

    async def ago_on(self) -> None:
        await asyncio.to_thread(self.go_on)

    def _call(self) -> None:
        current_execution.set(self.attempt.id)
        try:
            args, kwargs = self.arguments()
            result = self.attempt.task.function(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - as in a worker: whatever a handler raises
            self.raised(error)
        else:
            self.returned(result)


class OnThread(InPlace):
    """A plain function with a handle, on a thread of its own: it may wait half way."""

    def __init__(self, attempt: Attempt, store: Store, clock: Clock) -> None:
        super().__init__(attempt, store, clock)
        self.thread = SideThread(self._on_thread, name=f"penstock-{attempt.task.name}")

    def go_on(self) -> None:
        self.wakes_at = None
        self.thread.go_on()

    def _on_thread(self) -> None:
        contextvars.Context().run(self._call)


class OnLoop(UnderWay):
    """An async function, as an asyncio task of its own."""

    def __init__(
        self, attempt: Attempt, store: Store, clock: Clock, runner: asyncio.Runner
    ) -> None:
        super().__init__(attempt, store, clock)
        self._runner = runner
        self._task: asyncio.Task[None] | None = None
        self._parked: asyncio.Future[None] | None = None
        self._woken: asyncio.Future[None] | None = None

    def go_on(self) -> None:
        self._runner.run(self.ago_on())

    async def ago_on(self) -> None:
        loop = asyncio.get_running_loop()
        self.wakes_at = None
        self._parked = loop.create_future()
        if self._task is None:
            self._task = loop.create_task(self._main(), context=contextvars.Context())
        elif self._task.get_loop() is not loop:
            raise OtherLoop(self.attempt.task.name)
        elif self.ending:
            self._task.cancel()
        elif self._woken is not None:
            self._woken.set_result(None)
        await asyncio.wait({self._task, self._parked}, return_when=asyncio.FIRST_COMPLETED)

    def abandon(self) -> None:
        if self._task is None or not loop_is_running():
            super().abandon()
            return
        self._task.cancel()  # nobody can wait for it here
        self.outcome = self.attempt.interrupted()

    async def park(self, seconds: float) -> None:
        self.sleep(seconds)
        self._woken = asyncio.get_running_loop().create_future()
        if self._parked is not None and not self._parked.done():
            self._parked.set_result(None)
        await self._woken

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = super().arguments()
        if self.attempt.task.signature.takes_handle:
            attempt = self.attempt
            handle = WaitingHandle(attempt.claimed, ManualDesk(self), self.park, attempt.context)
            args = (handle, *args[1:])
        return args, kwargs

    async def _main(self) -> None:
        current_execution.set(self.attempt.id)
        try:
            args, kwargs = self.arguments()
            result = await self.attempt.task.function(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - as in a worker: whatever a handler raises
            self.raised(error)
        else:
            self.returned(result)


class ManualDesk:
    """What a handle asks of the worker around it, where a test is the worker."""

    def __init__(self, of: UnderWay) -> None:
        self._of = of
        self._attempt = of.attempt
        self._epoch = of.clock.now()
        self._waits = False

    @property
    def store(self) -> Store:
        return self._of.store

    @property
    def lease_lost(self) -> bool:
        return self._of.lost or self._attempt.ended

    @property
    def cancelled(self) -> bool:
        if not self._attempt.cancelled and not self.lease_lost:
            lease = self._attempt.claimed.lease
            self._attempt.cancelled = self._attempt.id in self.store.cancel_requests(
                lease.worker_id
            )
        return self._attempt.cancelled

    @property
    def slot(self) -> SlotToken:
        slot = self._attempt.slot
        if slot is None or self._attempt.task.options.executor == "process":
            raise NoDeferralHere
        return slot

    @property
    def in_doubt(self) -> bool:
        return self._attempt.in_doubt

    @property
    def ending(self) -> bool:
        return self._of.ending

    def monotonic(self) -> float:
        # Sums of fractions are not exact: a wait that has lasted to the microsecond is over.
        ahead = _MICROSECOND if self._waits else timedelta(0)
        return (self._of.clock.now() - self._epoch + ahead).total_seconds()

    def wait(self, seconds: float) -> None:
        if not isinstance(self._of, OnThread):
            raise NoDeferralHere
        self._of.sleep(seconds)
        self._of.thread.park()

    def raise_if_ended(self) -> None:
        if self._attempt.cancelled or self._attempt.released:
            raise Interrupted
        if self.lease_lost:
            raise LeaseLost(self._attempt.id, doing="wait any longer")

    def give_up_slot(self, reason: str | None) -> None:
        lease = self._attempt.claimed.lease
        slot = self.slot  # a task in a process of its own is refused here
        if self.in_doubt and self.store.read_back([lease]) == ["open"]:
            raise CompletionOpen(self._attempt.task.name)
        if self.store.defer([lease], reason=reason):
            raise LeaseLost(self._attempt.id, doing="be deferred")
        slot.release()
        self._waits = True
        self._of.rest()
        self.raise_if_ended()

    def take_slot(self) -> None:
        self._waits = False
        self._of.resume()
        self.slot.reclaim()
        if self.store.undefer([self._attempt.claimed.lease]):
            raise LeaseLost(self._attempt.id, doing="go on")

    async def agive_up_slot(self, reason: str | None) -> None:
        await asyncio.to_thread(self.give_up_slot, reason)

    async def atake_slot(self) -> None:
        await asyncio.to_thread(self.take_slot)

    def completing(self, result: object) -> str:
        text = self._attempt.task.signature.encode_result(result)
        self._attempt.in_doubt = True
        return text

    def unknown_start(self) -> datetime | None:
        return None  # it was told before the handler began

    def now(self) -> datetime:
        return self._of.clock.now()

    def remember(self, step: StepDone) -> Future[bool]:
        written: Future[bool] = Future()
        written.set_result(not self.store.store_steps([step]))
        return written


def begin(attempt: Attempt, store: Store, clock: Clock, runner: asyncio.Runner) -> UnderWay:
    """Get an attempt ready to be carried on, in the way that its task needs."""
    attempt.begin()
    attempt.received_at = attempt.begun_at
    if attempt.task.options.executor == "loop":
        return OnLoop(attempt, store, clock, runner)
    if attempt.task.signature.takes_handle:
        return OnThread(attempt, store, clock)
    return InPlace(attempt, store, clock)


def loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
