"""The worker's side of a handle: what a running task can ask for, and how it is done."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.engine.attempts import AnyTask, Attempt
from penstock.engine.deferrals import Interrupted
from penstock.engine.handle import NoDeferralHere
from penstock.engine.settler import Settler
from penstock.engine.slots import SlotToken
from penstock.errors import LeaseLost
from penstock.model.executions import Claimed
from penstock.model.states import SubState
from penstock.store.contract import Store


@dataclass(frozen=True, slots=True)
class AttemptDesk:
    """One attempt's access to the worker that runs it."""

    attempt: Attempt
    store: Store
    settler: Settler
    worker_lost_leases: Callable[[], bool]

    @property
    def cancelled(self) -> bool:
        return self.attempt.cancelled

    @property
    def lease_lost(self) -> bool:
        return self.attempt.ended or self.worker_lost_leases()

    @property
    def slot(self) -> SlotToken:
        slot = self.attempt.slot
        if slot is None:
            message = "a task runs only in a slot"
            raise AssertionError(message)
        return slot

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        """The database's time, as far as this worker knows it."""
        attempt = self.attempt
        since_claim = timedelta(seconds=time.monotonic() - attempt.received_at)
        return attempt.claimed.claimed_at + since_claim

    # --- deferral ---------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        self.attempt.stirred.wait(seconds)

    def raise_if_ended(self) -> None:
        if self.attempt.cancelled or self.attempt.released:
            raise Interrupted
        if self.lease_lost:
            raise LeaseLost(self.attempt.id, doing="wait any longer")

    def give_up_slot(self, reason: str | None) -> None:
        lease = self.attempt.claimed.lease
        written = self.settler.change_sub_state(lease, SubState.DEFERRED, reason)
        self._expect(held=written.result(), doing="be deferred")
        self._rest()

    async def agive_up_slot(self, reason: str | None) -> None:
        lease = self.attempt.claimed.lease
        written = self.settler.change_sub_state(lease, SubState.DEFERRED, reason)
        self._expect(held=await asyncio.wrap_future(written), doing="be deferred")
        self._rest()

    def _rest(self) -> None:
        """From here on the task has no slot, and its time does not run."""
        self.attempt.stop_clock()
        self.slot.release()
        # Whoever stops the worker looks for deferred tasks once: let none slip by.
        self.raise_if_ended()

    def take_slot(self) -> None:
        slot, stirred = self.slot, self.attempt.stirred
        slot.ask(stirred.set)
        while not slot.held:
            stirred.wait()
            stirred.clear()
            if self.attempt.cancelled or self.attempt.released:
                slot.withdraw()
                raise Interrupted
        written = self.settler.change_sub_state(self.attempt.claimed.lease, SubState.ACTIVE, None)
        self.attempt.start_clock()
        self._expect(held=written.result(), doing="go on")

    async def atake_slot(self) -> None:
        slot = self.slot
        loop = asyncio.get_running_loop()
        held = asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(held.set)

        slot.ask(tell)
        try:
            await held.wait()
        except BaseException:
            slot.withdraw()
            raise
        written = self.settler.change_sub_state(self.attempt.claimed.lease, SubState.ACTIVE, None)
        self.attempt.start_clock()
        self._expect(held=await asyncio.wrap_future(written), doing="go on")

    def _expect(self, *, held: bool, doing: str) -> None:
        if not held:
            raise LeaseLost(self.attempt.id, doing=doing)

    # --- completion in the handler's own transaction ------------------------------------

    def completing(self, result: object) -> str:
        text = self.attempt.task.signature.encode_result(result)
        # Set before anything is written: a reply that is lost leaves the end in doubt, too.
        self.attempt.in_doubt = True
        return text

    def unknown_start(self) -> datetime | None:
        return None if self.attempt.start_is_known() else self.attempt.started_at


@dataclass(slots=True)
class ChildDesk:
    """The same for a task in a process of its own: it has no slot to give back."""

    claimed: Claimed
    task: AnyTask
    in_doubt: bool = False
    cancelled: bool = False  # a child is not asked: it is ended
    lease_lost: bool = False

    @property
    def store(self) -> Store:
        return self.task.client.store

    @property
    def slot(self) -> SlotToken:
        raise NoDeferralHere

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)

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
