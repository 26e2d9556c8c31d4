"""What both kinds of handle have in common, and what they ask of the worker around them."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NoReturn, ParamSpec, Protocol, TypeVar

from msgspec.structs import replace

from penstock.engine.deferrals import (
    Interrupted,
    Story,
    deferral,
)
from penstock.engine.remembering import (
    Recall,
    wait_left,
)
from penstock.engine.slots import SlotToken
from penstock.errors import LeaseLost, PenstockError, StoreUnavailable
from penstock.model.context import Context
from penstock.model.durations import Duration, parse_duration
from penstock.model.executions import Claimed, StepDone
from penstock.model.payloads import encode
from penstock.model.runs import NewRun
from penstock.store.contract import Store

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
P = ParamSpec("P")

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
        self.reason = storable("reason", reason)
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
    def now(self) -> datetime: ...
    def remember(self, step: StepDone) -> "Future[bool]": ...


class Handle:
    """What a plain and an async handle share."""

    def __init__(self, claimed: Claimed, desk: Desk, context: Context | None = None) -> None:
        self._claimed = claimed
        self._desk = desk
        self._context = context
        self._progress_at = float("-inf")
        self._shown = ""
        self._recall = Recall(claimed, lambda: self._desk.store)

    @property
    def execution_id(self) -> str:
        """The same in every attempt: use it as the idempotency key of an outside effect."""
        return self._claimed.lease.execution_id

    @property
    def attempt(self) -> int:
        """Which try this is, from 1.

        One whose worker was killed before its start was known, within 50 ms of it, is given back,
        and its number too.
        """
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
        storable("reason", reason)
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

    def _remembering(self, name: str, result: str) -> "Future[bool]":
        """Store a step; once it is written, no attempt takes it again."""
        written = self._desk.remember(StepDone(self._claimed.lease, name, result))
        # Not when the answer is there: who stops waiting for it has taken the step all the same.
        self._recall.note(name, result, written)
        return written

    def _expect_remembered(self, name: str, *, held: bool) -> None:
        if not held:
            raise LeaseLost(self.execution_id, doing=f"store the step {name!r}")

    def _wait_left(
        self, signal: str, timeout: Duration | None
    ) -> tuple[timedelta | None, str | None]:
        limit = None if timeout is None else parse_duration(timeout)
        return wait_left(self._recall.steps, signal, limit, self._desk.now())

    def _start_child(self, step: str, new: NewRun) -> str:
        child = replace(new, parent_id=self.execution_id, trace=self._claimed.trace)
        try:
            return self._desk.store.start_child(self._claimed.lease, step, child)
        except StoreUnavailable:
            self._recall.run_was_refused(new.workflow)
            raise

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
            import logging  # noqa: PLC0415 - a tenth of `import penstock`, and rarely needed

            log = logging.getLogger("penstock.worker")
            log.debug("cannot show the progress of %s: %s", self.execution_id, error)
            return
        if not held:
            raise LeaseLost(self.execution_id, doing="show its progress")


def storable(what: str, text: str | None) -> str | None:
    """Refuse here, in the handler, what the database could not take later."""
    encode({what: text})
    return text
