"""One try at a task: started, resolved, run, normalised into an outcome.

The three ways to run (on the loop, on a thread, in a process) differ only in the middle.
"""

import contextvars
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from penstock.engine.failures import stored_error
from penstock.engine.handle import AsyncTaskHandle, TaskHandle
from penstock.engine.signatures import ArgumentsDoNotFit
from penstock.engine.slots import SlotToken
from penstock.engine.tasks import TaskFunction
from penstock.model.executions import Claimed, Lease
from penstock.model.outcomes import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Released,
    RetryScheduled,
)

log = logging.getLogger("penstock.worker")

AnyTask = TaskFunction[..., Any, ..., Any]

current_execution: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "penstock_execution", default=None
)


class TimedOut(TimeoutError):
    """A task that did not end within its timeout."""

    def __init__(self, task: str, timeout: timedelta) -> None:
        super().__init__(
            f"{task!r} did not end within its timeout of {timeout.total_seconds():g} s"
        )


@dataclass(slots=True, eq=False)
class Attempt:
    """A claimed task in the hands of this worker."""

    claimed: Claimed
    task: AnyTask
    received_at: float  # monotonic, when the claim was answered
    slot: SlotToken | None = None
    begun_at: float = 0.0
    start_told: bool = False  # its start is in the database already
    start_was_told: Callable[[Lease], bool] | None = None
    ended: bool = False
    released: bool = False  # the worker stops: what it was doing goes back
    cancelled: bool = False  # somebody asked it to stop
    interrupt: Callable[[], None] | None = None  # None: a thread cannot be stopped from outside

    @property
    def id(self) -> str:
        return self.claimed.lease.execution_id

    @property
    def on_last_chance(self) -> bool:
        """Whether one more crash would be its last, be it to blame or only beside the culprit."""
        return self.claimed.suspect and self.claimed.crashes + 1 >= self.task.options.max_crashes

    @property
    def started_at(self) -> datetime:
        """When the handler began, by the database's clock."""
        return self.claimed.claimed_at + timedelta(seconds=self.begun_at - self.received_at)

    def begin(self) -> None:
        self.begun_at = time.monotonic()

    # --- resolve ----------------------------------------------------------------------

    def arguments(self) -> tuple[tuple[object, ...], dict[str, Any]]:
        """Decode what was stored; the handle comes first where the task asks for it."""
        signature = self.task.signature
        positional, named = signature.spread(signature.decode_arguments(self.claimed.args))
        if not signature.takes_handle:
            return positional, named
        handle = (
            AsyncTaskHandle(self.claimed)
            if self.task.options.executor == "loop"
            else TaskHandle(self.claimed)
        )
        return (handle, *positional), named

    # --- normalise --------------------------------------------------------------------

    def completed(self, result: object) -> Outcome:
        try:
            text = self.task.signature.encode_result(result)
        except Exception as error:  # noqa: BLE001 - whatever the result does when it is encoded
            return self.failed(error)
        return self.completed_with(text)

    def completed_with(self, text: str) -> Outcome:
        return Completed(result=text, **self._told())

    def failed(self, error: BaseException, stored: str | None = None) -> Outcome:
        """Decide between another try and the end, by the task's own policy."""
        stored = stored or stored_error(error)
        if self.cancelled:
            return Cancelled(reason="asked to stop", **self._told())
        delay = (
            None
            if isinstance(error, ArgumentsDoNotFit)  # the same arguments will not fit later
            else self.task.options.retry.delay_after(
                self.claimed.retries + 1, error, random=random.random
            )
        )
        if delay is None:
            log.error("%s %s failed for good: %s", self.task.name, self.id, error)
            return Failed(error=stored, **self._told())
        log.info("%s %s failed, next try in %s: %s", self.task.name, self.id, delay, error)
        return RetryScheduled(error=stored, delay=delay, **self._told())

    def interrupted(self) -> Outcome:
        """The handler was stopped from outside: given back, or cancelled on request."""
        if self.cancelled:
            return Cancelled(reason="asked to stop", **self._told())
        return Released(reason="the worker stops", **self._told())

    def _told(self) -> dict[str, Any]:
        return {
            "lease": self.claimed.lease,
            "serial": self.claimed.serial,
            "has_follow_ups": self.claimed.has_follow_ups,
            "started_at": None if self._start_is_known() else self.started_at,
        }

    def _start_is_known(self) -> bool:
        if self.start_told or not self.begun_at:
            return True
        return self.start_was_told is not None and self.start_was_told(self.claimed.lease)
