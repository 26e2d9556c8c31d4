"""One try at a task: started, resolved, run, normalised into an outcome.

The three ways to run (on the loop, on a thread, in a process) differ only in the middle.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.engine.deferrals import Interrupted
from penstock.engine.failures import message_of, stored_error
from penstock.engine.handle import AsyncTaskHandle, Defer, Desk, TaskHandle
from penstock.engine.misfits import ArgumentsDoNotFit, InvalidResult
from penstock.engine.remembering import Suspend
from penstock.engine.slots import SlotToken
from penstock.engine.tasks import DeclaredTask
from penstock.engine.writes import encode_writes
from penstock.errors import PenstockError
from penstock.model.context import Context
from penstock.model.executions import Claimed, Lease
from penstock.model.outcomes import (
    Cancelled,
    Completed,
    DeferredFor,
    Failed,
    Outcome,
    Released,
    RetryScheduled,
)

log = logging.getLogger("penstock.worker")

AnyTask = DeclaredTask[..., Any]

# Without a handle nobody waits, and an event for each attempt would cost a tenth of its time.
_UNHEARD = threading.Event()

_NEVER = datetime.min.replace(tzinfo=UTC)

# The same arguments will not fit later; and when the result is at fault, the work is done.
_BEYOND_RETRY = (ArgumentsDoNotFit, InvalidResult)


class TimedOut(TimeoutError):
    """A task that did not end within its timeout."""

    def __init__(self, task: str, timeout: timedelta) -> None:
        super().__init__(
            f"{task!r} did not end within its timeout of {timeout.total_seconds():g} s"
        )


class CompletionUndone(PenstockError):
    """A handler completed in its own transaction, and that did not commit."""

    def __init__(self, task: str) -> None:
        super().__init__(
            f"{task!r} called handle.complete(…, connection=…) and returned, but that connection's "
            "transaction was rolled back. Commit it before the handler returns."
        )


class Attempt(msgspec.Struct, eq=False):
    """A claimed task in the hands of this worker."""

    claimed: Claimed
    task: AnyTask
    received_at: float  # monotonic, when the claim was answered
    slot: SlotToken | None = None
    begun_at: float = 0.0
    started_at: datetime = _NEVER  # by the database, once it has begun
    start_told: bool = False  # its start is in the database already
    start_was_told: Callable[[Lease], bool] | None = None
    ended: bool = False
    in_doubt: bool = False  # completed in the handler's own transaction: the database decides
    deferred_since: float | None = None
    deferred_for: float = 0.0  # seconds that do not count towards its timeout
    limit: asyncio.Timeout | None = None
    stirred: threading.Event = _UNHEARD
    watched: int | None = None  # by this number, for the end of its time
    desk: Callable[["Attempt"], Desk] | None = None
    context: Context | None = None  # what its workflow shares, as the handler has it
    released: bool = False  # the worker stops: what it was doing goes back
    cancelled: bool = False  # somebody asked it to stop
    interrupt: Callable[[], None] | None = None  # None: a thread cannot be stopped from outside

    def __post_init__(self) -> None:
        if self.task.signature.takes_handle:
            self.stirred = threading.Event()

    @property
    def id(self) -> str:
        return self.claimed.lease.execution_id

    @property
    def on_last_chance(self) -> bool:
        """Whether one more crash would be its last, be it to blame or only beside the culprit."""
        return self.claimed.suspect and self.claimed.crashes + 1 >= self.task.options.max_crashes

    @property
    def waited(self) -> float | None:
        """Seconds from when it was due until it began; None where nobody knows.

        What was taken from a dead worker had begun before; and who depends on others, in a serial
        or a workflow, was not free to begin when it was due.
        """
        claimed = self.claimed
        depends = claimed.serial is not None or claimed.run_id is not None
        if claimed.due_at is None or claimed.suspect or depends:
            return None
        return max(0.0, (self.started_at - claimed.due_at).total_seconds())

    def begin(self) -> None:
        begun_at = time.monotonic()
        # First: whoever sees on another thread that it has begun may ask when.
        self.started_at = self.claimed.claimed_at + timedelta(0, begun_at - self.received_at)
        self.begun_at = begun_at

    # --- time -------------------------------------------------------------------------

    @property
    def deferred(self) -> bool:
        return self.deferred_since is not None

    @property
    def deadline(self) -> float | None:
        """When its time is up, by the monotonic clock; None while it does not run."""
        timeout = self.task.options.timeout
        if timeout is None or self.deferred:
            return None
        return self.begun_at + timeout.total_seconds() + self.deferred_for

    def stop_clock(self) -> None:
        self.deferred_since = time.monotonic()
        if self.limit is not None:
            self.limit.reschedule(None)

    def start_clock(self) -> None:
        if self.deferred_since is None:
            return
        self.deferred_for += time.monotonic() - self.deferred_since
        self.deferred_since = None
        if self.limit is not None and self.deadline is not None:
            loop = asyncio.get_running_loop()
            self.limit.reschedule(loop.time() + self.deadline - time.monotonic())

    def stop(self) -> None:
        """End it from outside, as far as it can be: a thread only where it waits."""
        self.stirred.set()
        if self.interrupt is not None:
            self.interrupt()

    # --- resolve ----------------------------------------------------------------------

    def arguments(self) -> tuple[tuple[object, ...], dict[str, Any]]:
        """Decode what was stored; the handle comes first where the task asks for it."""
        signature = self.task.signature
        positional, named, self.context = signature.read_call(self.claimed.args)
        if not signature.takes_handle:
            return positional, named
        if self.desk is None:
            message = "an attempt that runs has a desk"
            raise AssertionError(message)
        kind = AsyncTaskHandle if self.task.options.executor == "loop" else TaskHandle
        return (kind(self.claimed, self.desk(self), self.context), *positional), named

    # --- normalise --------------------------------------------------------------------

    def completed(self, result: object) -> Outcome:
        try:
            text = "null" if result is None else self.task.signature.encode_result(result)
            context = self.context
            writes = None if context is None else encode_writes(context, task=self.task.name)
        except Exception as error:  # noqa: BLE001 - whatever the result does when it is encoded
            return self.failed(error)
        return self.completed_with(text, writes)

    def completed_with(self, text: str, writes: str | None) -> Outcome:
        claimed = self.claimed
        # As `_told` does, without a dict: this is how nearly all of them end.
        return Completed(
            lease=claimed.lease,
            serial=claimed.serial,
            has_follow_ups=claimed.has_follow_ups,
            run_id=claimed.run_id,
            started_at=None if self.start_is_known() else self.started_at,
            result=text,
            writes=writes,
        )

    def failed(self, error: BaseException, stored: str | None = None) -> Outcome:
        """Decide between another try and the end, by the task's own policy."""
        if self.cancelled or isinstance(error, Interrupted):
            return self.interrupted()
        if isinstance(error, Defer):
            return self._deferred(error)
        if isinstance(error, Suspend):
            return error.outcome(self._told())
        stored = stored or stored_error(error)
        said = ": ".join(filter(None, (type(error).__name__, message_of(error))))
        delay = (
            None
            if isinstance(error, _BEYOND_RETRY)
            else self.task.options.retry.delay_after(
                self.claimed.retries + 1, _as_exception(error), random=random.random
            )
        )
        if delay is None:
            log.error("%s %s failed for good: %s", self.task.name, self.id, said)
            return Failed(error=stored, **self._told())
        log.info("%s %s failed, next try in %s: %s", self.task.name, self.id, delay, said)
        return RetryScheduled(error=stored, delay=delay, **self._told())

    def interrupted(self) -> Outcome:
        """The handler was stopped from outside: given back, or cancelled on request."""
        if self.cancelled:
            return Cancelled(reason="asked to stop", **self._told())
        return Released(reason="the worker stops", **self._told())

    def _deferred(self, error: Defer) -> Outcome:
        since_claim = timedelta(seconds=time.monotonic() - self.received_at)
        delay = error.delay_from(self.claimed.claimed_at + since_claim)
        return DeferredFor(delay=delay, reason=error.reason, **self._told())

    def _told(self) -> dict[str, Any]:
        return {
            "lease": self.claimed.lease,
            "serial": self.claimed.serial,
            "has_follow_ups": self.claimed.has_follow_ups,
            "run_id": self.claimed.run_id,
            "started_at": None if self.start_is_known() else self.started_at,
        }

    def start_is_known(self) -> bool:
        """Whether its start is in the database; once it is not, this attempt has to tell it."""
        if self.start_told or not self.begun_at:
            return True
        if self.start_was_told is not None:
            self.start_told = self.start_was_told(self.claimed.lease)
            self.start_was_told = None
        return self.start_told


def _as_exception(error: BaseException) -> BaseException:
    """Something that the handler awaited was cancelled: an error like others to its policy."""
    return Exception(str(error)) if isinstance(error, asyncio.CancelledError) else error
