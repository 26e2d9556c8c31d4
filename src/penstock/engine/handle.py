"""What a running task receives as its first parameter, when it asks for it."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import NoReturn, Protocol, TypeVar

from penstock.engine.deferrals import (
    Check,
    GiveUpSlot,
    Interrupted,
    Next,
    Story,
    TakeSlot,
    Wait,
    deferral,
)
from penstock.engine.shapes import AsyncConnection, SyncConnection
from penstock.engine.slots import SlotToken
from penstock.errors import LeaseLost, PenstockError, StoreUnavailable
from penstock.model.durations import Duration, parse_duration
from penstock.model.executions import Claimed
from penstock.model.payloads import encode
from penstock.store.contract import Store

log = logging.getLogger("penstock.worker")

T = TypeVar("T")

PROGRESS_EVERY = 1.0  # seconds between two writes


class Defer(PenstockError):
    """Raised by a task that wants to come back later; the attempt is not spent.

    It survives restarts and costs nothing meanwhile. The task begins again from its start.
    """

    def __init__(
        self,
        delay: Duration | None = None,
        *,
        until: datetime | None = None,
        reason: str | None = None,
    ) -> None:
        if (delay is None) == (until is None):
            message = "Defer takes either a delay or a moment: Defer('2h') or Defer(until=…)."
            raise TypeError(message)
        if until is not None and until.tzinfo is None:
            message = "Defer(until=…) takes a datetime with a time zone, such as datetime.now(UTC)."
            raise ValueError(message)
        self.delay = None if delay is None else parse_duration(delay)
        self.until = until
        self.reason = _storable("reason", reason)
        super().__init__(reason or "to be continued")

    def delay_from(self, now: datetime) -> timedelta:
        if self.until is not None:
            return max(timedelta(0), self.until - now)
        return self.delay or timedelta(0)


class NoDeferralHere(PenstockError):
    """A task in a process of its own cannot wait without its slot."""

    def __init__(self) -> None:
        super().__init__(
            'A task with executor="process" cannot defer_until: its process would wait with it. '
            "Use handle.defer_for(…), which ends the attempt and comes back."
        )


class Desk(Protocol):
    """What a handle can ask of the worker around it."""

    @property
    def store(self) -> Store: ...
    @property
    def lease_lost(self) -> bool: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def slot(self) -> SlotToken: ...
    @property
    def in_doubt(self) -> bool: ...
    @property
    def ending(self) -> bool: ...
    def monotonic(self) -> float: ...
    def wait(self, seconds: float) -> None: ...
    def raise_if_ended(self) -> None: ...
    def give_up_slot(self, reason: str | None) -> None: ...
    def take_slot(self) -> None: ...
    async def agive_up_slot(self, reason: str | None) -> None: ...
    async def atake_slot(self) -> None: ...
    def completing(self, result: object) -> str: ...
    def unknown_start(self) -> datetime | None: ...


class _Handle:
    def __init__(self, claimed: Claimed, desk: Desk) -> None:
        self._claimed = claimed
        self._desk = desk
        self._progress_at = float("-inf")
        self._shown = ""

    @property
    def execution_id(self) -> str:
        """The same in every attempt: use it as the idempotency key of an outside effect."""
        return self._claimed.lease.execution_id

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return self._claimed.attempt

    @property
    def cancelled(self) -> bool:
        """Whether somebody has asked this task to stop."""
        return self._desk.cancelled

    @property
    def lease_lost(self) -> bool:
        """Whether this task may run elsewhere by now: nothing that it does counts any more."""
        return self._desk.lease_lost

    @property
    def slot(self) -> SlotToken:
        """The slot that this task runs in."""
        return self._desk.slot

    def raise_if_cancelled(self) -> None:
        """End the task here if somebody has asked it to stop."""
        if self.cancelled:
            raise Interrupted

    def defer_for(self, delay: Duration, *, reason: str | None = None) -> NoReturn:
        """End this attempt without spending it, and come back after `delay`, from the start."""
        raise Defer(delay, reason=reason)

    def _story(self, every: Duration, timeout: Duration | None, reason: str | None) -> Story:
        _storable("reason", reason)
        interval = parse_duration(every)
        if not interval:
            message = "defer_until(every=…) must be longer than nothing, for example every='5s'."
            raise ValueError(message)
        return deferral(
            every=interval,
            timeout=None if timeout is None else parse_duration(timeout),
            monotonic=self._desk.monotonic,
            ending=lambda: self._desk.ending,
        )

    def _progress(self, fraction: float, note: str | None) -> str | None:
        if isinstance(fraction, bool) or not 0 <= fraction <= 1:
            message = f"handle.progress({fraction!r}) must be given a fraction between 0 and 1."
            raise ValueError(message)
        if self._desk.in_doubt:
            return None  # the handler's own transaction may have this task locked
        now = self._desk.monotonic()
        recent = now - self._progress_at < PROGRESS_EVERY
        if recent and fraction < 1:
            return None  # a loop may call this a million times; nobody looks so often
        shown = encode({"fraction": float(fraction), "note": note})
        if recent and shown == self._shown:
            return None
        self._progress_at, self._shown = now, shown
        return shown

    def _show(self, progress: str) -> None:
        try:
            held = self._desk.store.progress(self._claimed.lease, progress)
        except StoreUnavailable as error:
            # Nobody sees it now; the work goes on, and so does the next word about it.
            log.debug("cannot show the progress of %s: %s", self.execution_id, error)
            return
        if not held:
            raise LeaseLost(self.execution_id, doing="show its progress")


class TaskHandle(_Handle):
    """The handle of a task that is a plain `def`."""

    def defer_until(
        self,
        condition: Callable[[], object],
        *,
        every: Duration = 5,
        timeout: Duration | None = None,
        reason: str | None = None,
    ) -> None:
        """Wait until `condition` is true, without a slot; it is checked at once, then `every`.

        Time deferred does not count towards the task's timeout. If the worker dies
        meanwhile, the task begins again from its start.

        Raises:
            DeferTimeout: it did not come true within `timeout`.
        """
        story = self._story(every, timeout, reason)
        told: bool | None = None
        try:
            step = next(story)
            while True:
                try:
                    told = self._tell(step, condition, reason)
                except BaseException as error:  # noqa: BLE001 - the story decides what follows
                    step = story.throw(error)
                else:
                    step = story.send(told)
        except StopIteration:
            return

    def _tell(self, step: Next, condition: Callable[[], object], reason: str | None) -> bool | None:
        match step:
            case Check():
                return bool(condition())
            case GiveUpSlot():
                self._desk.give_up_slot(reason)
            case Wait(seconds):
                self._desk.wait(seconds)
                self._desk.raise_if_ended()
            case TakeSlot():
                self._desk.take_slot()
        return None

    def progress(self, fraction: float, note: str | None = None) -> None:
        """Show how far the task is; written at most once a second."""
        if (progress := self._progress(fraction, note)) is not None:
            self._show(progress)

    def complete(self, result: T, *, connection: SyncConnection) -> T:
        """Complete this task in the connection's transaction: effect and end, or neither.

        Return what this returns. Whether the transaction commits decides; if it does not,
        the attempt has failed.

        Raises:
            LeaseLost: another worker has this task; let the transaction roll back.
        """
        text = self._desk.completing(result)
        self._desk.store.complete_on(
            connection, self._claimed.lease, result=text, started_at=self._desk.unknown_start()
        )
        return result

    def once(self, name: str, *, connection: SyncConnection) -> bool:
        """True exactly once for this execution and name: in the transaction that commits it."""
        _storable("name", name)
        return self._desk.store.once_on(connection, self._claimed.lease, name)


class AsyncTaskHandle(_Handle):
    """The handle of a task that is an `async def`."""

    async def defer_until(
        self,
        condition: Callable[[], object | Awaitable[object]],
        *,
        every: Duration = 5,
        timeout: Duration | None = None,  # noqa: ASYNC109 - of the condition, not of this call
        reason: str | None = None,
    ) -> None:
        """Wait until `condition`, plain or async, is true: as `TaskHandle.defer_until` does."""
        story = self._story(every, timeout, reason)
        told: bool | None = None
        try:
            step = next(story)
            while True:
                try:
                    told = await self._tell(step, condition, reason)
                except BaseException as error:  # noqa: BLE001 - the story decides what follows
                    step = story.throw(error)
                else:
                    step = story.send(told)
        except StopIteration:
            return

    async def _tell(
        self,
        step: Next,
        condition: Callable[[], object | Awaitable[object]],
        reason: str | None,
    ) -> bool | None:
        match step:
            case Check():
                answer = condition()
                return bool(await answer if inspect.isawaitable(answer) else answer)
            case GiveUpSlot():
                await self._desk.agive_up_slot(reason)
            case Wait(seconds):
                await asyncio.sleep(seconds)
                self._desk.raise_if_ended()
            case TakeSlot():
                await self._desk.atake_slot()
        return None

    async def progress(self, fraction: float, note: str | None = None) -> None:
        """Show how far the task is; written at most once a second."""
        if (progress := self._progress(fraction, note)) is not None:
            await asyncio.to_thread(self._show, progress)

    async def complete(self, result: T, *, connection: AsyncConnection) -> T:
        """Complete this task in the connection's transaction: as `TaskHandle.complete` does."""
        text = self._desk.completing(result)
        await self._desk.store.acomplete_on(
            connection, self._claimed.lease, result=text, started_at=self._desk.unknown_start()
        )
        return result

    async def once(self, name: str, *, connection: AsyncConnection) -> bool:
        """True exactly once for this execution and name: in the transaction that commits it."""
        _storable("name", name)
        return await self._desk.store.aonce_on(connection, self._claimed.lease, name)


def _storable(what: str, text: str | None) -> str | None:
    """Refuse here, in the handler, what the database could not take later."""
    encode({what: text})
    return text
