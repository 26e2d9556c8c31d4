"""The worker's side of a handle: what a running task can ask for, and how it is done."""

import asyncio
import time
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from penstock.engine.attempts import AnyTask, Attempt
from penstock.engine.deferrals import Interrupted
from penstock.engine.handle import NoDeferralHere
from penstock.engine.settler import Settler
from penstock.engine.slots import SlotToken
from penstock.errors import LeaseLost, PenstockError
from penstock.model.executions import Claimed, Lease, StepDone
from penstock.model.states import SubState
from penstock.store.contract import Store


class Surroundings(Protocol):
    """What an attempt has to know of the worker around it."""

    @property
    def stopping(self) -> bool: ...
    def may_have_lost_all(self) -> bool: ...
    def has_lost(self, lease: Lease) -> bool: ...
    def watch_deadline(self, attempt: Attempt) -> None: ...


class CompletionOpen(PenstockError):
    """A handler wants to wait while its completion is in a transaction that is not decided."""

    def __init__(self, task: str) -> None:
        self.task = task
        super().__init__(
            f"{task!r} called handle.complete(…, connection=…) and then defer_until, while that "
            "connection's transaction was still open: nobody could tell whether it has ended. "
            "Commit or roll back first."
        )


class AttemptDesk(msgspec.Struct, frozen=True):
    """One attempt's access to the worker that runs it."""

    attempt: Attempt
    store: Store
    settler: Settler
    worker: "Surroundings"

    @property
    def cancelled(self) -> bool:
        return self.attempt.cancelled

    @property
    def lease_lost(self) -> bool:
        return self._lost or self.worker.may_have_lost_all()

    @property
    def _lost(self) -> bool:
        """Whether it is certain: an outage of the database alone ends nothing that waits."""
        return self.attempt.ended or self.worker.has_lost(self.attempt.claimed.lease)

    @property
    def in_doubt(self) -> bool:
        return self.attempt.in_doubt

    @property
    def slot(self) -> SlotToken:
        slot = self.attempt.slot
        if slot is None:
            message = "a task runs only in a slot"
            raise AssertionError(message)
        return slot

    def monotonic(self) -> float:
        return time.monotonic()

    # --- deferral ---------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        # Cleared before anybody looks why: who stirs it after that is heard the next time.
        if self.attempt.stirred.wait(seconds):
            self.attempt.stirred.clear()

    @property
    def ending(self) -> bool:
        return self.attempt.cancelled or self.attempt.released or self._lost

    def raise_if_ended(self) -> None:
        if self.attempt.cancelled or self.attempt.released:
            raise Interrupted
        if self._lost:
            raise LeaseLost(self.attempt.id, doing="wait any longer")

    def give_up_slot(self, reason: str | None) -> None:
        if self.in_doubt:
            self._refuse_in_doubt()
        written = self._change(SubState.DEFERRED, reason)
        self._expect(held=written.result(), doing="be deferred")
        self._rest()

    async def agive_up_slot(self, reason: str | None) -> None:
        if self.in_doubt:
            await asyncio.to_thread(self._refuse_in_doubt)
        written = self._change(SubState.DEFERRED, reason)
        try:
            held = await asyncio.wrap_future(written)
        except asyncio.CancelledError:
            if not self.ending:
                # The other is written all the same.
                self.settler.change_sub_state(
                    self.attempt.claimed.lease, SubState.ACTIVE, None, awaited=False
                )
            raise
        self._expect(held=held, doing="be deferred")
        self._rest()

    def _refuse_in_doubt(self) -> None:
        """Its row is locked by the handler itself: whoever wrote it would wait for ever."""
        if self.store.read_back([self.attempt.claimed.lease]) == ["open"]:
            raise CompletionOpen(self.attempt.task.name)

    def _rest(self) -> None:
        """From here on the task has no slot, and its time does not run."""
        self.attempt.stop_clock()
        self.attempt.stirred.clear()  # of what woke it the last time
        self.slot.release()
        # Whoever stops the worker looks for deferred tasks once: let none slip by.
        if self.worker.stopping:
            self.attempt.released = True
        self.raise_if_ended()

    def take_slot(self) -> None:
        slot, stirred = self.slot, self.attempt.stirred
        if slot.ask(stirred.set):
            while not slot.held:
                stirred.wait()
                stirred.clear()
                if self.ending and not slot.held:
                    slot.withdraw()
                    self.raise_if_ended()
        self._expect(held=slot.held, doing="go on")
        written = self._go_on()
        self._expect(held=written.result(), doing="go on")

    async def atake_slot(self) -> None:
        slot, loop = self.slot, asyncio.get_running_loop()
        answered = asyncio.Event()
        stopped: asyncio.CancelledError | None = None
        if slot.ask(lambda: _tell(loop, answered)):
            while not answered.is_set():
                try:
                    await answered.wait()
                except asyncio.CancelledError as error:
                    if self.ending:
                        slot.withdraw()
                        raise
                    stopped = error  # by a time limit of the handler's own: it goes on in a slot
        self._expect(held=slot.held, doing="go on")
        written = self._go_on()
        self._expect(held=await asyncio.wrap_future(written), doing="go on")
        if stopped is not None:
            raise stopped

    def _go_on(self) -> Future[bool]:
        written = self._change(SubState.ACTIVE)
        self.attempt.start_clock()
        self.worker.watch_deadline(self.attempt)
        return written

    def _change(self, sub_state: SubState, reason: str | None = None) -> Future[bool]:
        return self.settler.change_sub_state(self.attempt.claimed.lease, sub_state, reason)

    def _expect(self, *, held: bool, doing: str) -> None:
        if not held:
            raise LeaseLost(self.attempt.id, doing=doing)

    # --- completion in the handler's own transaction ------------------------------------

    def completing(self, result: object) -> str:
        text = self.attempt.task.signature.encode_result(result)
        # Set before anything is written: a reply that is lost leaves the end in doubt, too.
        self.attempt.in_doubt = True
        return text

    def unknown_start(self) -> datetime:
        # Where there is one writer it may be this handler, and the start waits for it already.
        if self.attempt.start_is_known() and not self.store.one_writer:
            self.settler.wait_until_told(self.attempt.claimed.lease)
        return self.attempt.started_at

    # --- steps --------------------------------------------------------------------------

    def now(self) -> datetime:
        """By the database's clock, as far as it is known here."""
        since_claim = timedelta(seconds=time.monotonic() - self.attempt.received_at)
        return self.attempt.claimed.claimed_at + since_claim

    def remember(self, step: StepDone) -> Future[bool]:
        return self.settler.remember(step)


def _tell(loop: asyncio.AbstractEventLoop, answered: asyncio.Event) -> None:
    loop.call_soon_threadsafe(answered.set)


class ChildDesk(msgspec.Struct):
    """The same for a task in a process of its own: it has no slot to give back."""

    claimed: Claimed
    task: AnyTask
    in_doubt: bool = False
    cancelled: bool = False  # a child is not asked: it is ended
    lease_lost: bool = False
    ending: bool = False
    begun_at: float = msgspec.field(default_factory=time.monotonic)

    @property
    def store(self) -> Store:
        return self.task.client.store

    @property
    def slot(self) -> SlotToken:
        raise NoDeferralHere

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        del seconds
        raise NoDeferralHere

    def raise_if_ended(self) -> None:
        """Nothing can end it but the end of its process."""

    def give_up_slot(self, reason: str | None) -> None:
        del reason
        raise NoDeferralHere

    def take_slot(self) -> None:
        raise NoDeferralHere

    async def agive_up_slot(self, reason: str | None) -> None:
        del reason
        raise NoDeferralHere

    async def atake_slot(self) -> None:
        raise NoDeferralHere

    def completing(self, result: object) -> str:
        text = self.task.signature.encode_result(result)
        self.in_doubt = True
        return text

    def unknown_start(self) -> datetime | None:
        return None  # the parent has told it

    def now(self) -> datetime:
        return self.claimed.claimed_at + timedelta(seconds=time.monotonic() - self.begun_at)

    def remember(self, step: StepDone) -> Future[bool]:
        written: Future[bool] = Future()
        written.set_result(not self.store.store_steps([step]))
        return written
