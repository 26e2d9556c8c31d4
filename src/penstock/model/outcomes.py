"""How an attempt ended. An outcome is a value, matched once, where it is settled."""

from datetime import datetime, timedelta
from typing import TypeGuard

import msgspec

from penstock.model.events import EventType
from penstock.model.executions import Lease


class _Ended(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    lease: Lease
    serial: str | None = None  # as claimed: its successor is released when it ends
    has_follow_ups: bool = False  # as claimed: what follows its end is enqueued with it
    run_id: str | None = None  # as claimed: the workflow's run that goes on when it ends
    started_at: datetime | None = None  # None: never started, or already recorded


class Completed(_Ended, frozen=True, kw_only=True):
    """The handler returned; `result` and what it wrote into the context are JSON text."""

    result: str = "null"
    writes: str | None = None


class Failed(_Ended, frozen=True, kw_only=True):
    """The handler raised and will not be tried again; `error` is JSON text."""

    error: str


class RetryScheduled(_Ended, frozen=True, kw_only=True):
    """The handler raised and is tried again after `delay`."""

    error: str
    delay: timedelta


class DeferredFor(_Ended, frozen=True, kw_only=True):
    """The handler asked to come back after `delay`; the attempt is not spent."""

    delay: timedelta
    reason: str | None = None


class Suspended(_Ended, frozen=True, kw_only=True):
    """The handler waits for a signal or a run, without a worker; the attempt is not spent."""

    awaits: str  # what `signal_named` or `end_of_run` returns


class SuspendedFor(_Ended, frozen=True, kw_only=True):
    """The same, for `timeout` at most: then it comes back with empty hands."""

    awaits: str
    timeout: timedelta


SUSPENDED = (Suspended, SuspendedFor)


def signal_named(name: str) -> str:
    return f"signal:{name}"


def end_of_run(run_id: str) -> str:
    return f"run:{run_id}"


class Released(_Ended, frozen=True, kw_only=True):
    """The worker gives the task back to its old place; the attempt is not spent."""

    reason: str | None = None


class Cancelled(_Ended, frozen=True, kw_only=True):
    """The handler stopped because it was asked to."""

    reason: str | None = None


Outcome = (
    Completed
    | Failed
    | RetryScheduled
    | DeferredFor
    | Suspended
    | SuspendedFor
    | Released
    | Cancelled
)


def enqueues_nothing(outcome: Outcome) -> TypeGuard[Completed]:
    """Whether the task is done, and neither a follow-up nor the next of its serial comes of it."""
    return type(outcome) is Completed and outcome.serial is None and not outcome.has_follow_ups


def concerns_nobody(outcome: Outcome) -> TypeGuard[Completed]:
    """Whether the task is done, and nothing else goes on or begins because of it."""
    return enqueues_nothing(outcome) and outcome.run_id is None


EVENT_OF: dict[type[Outcome], EventType] = {
    Completed: EventType.COMPLETED,
    Failed: EventType.FAILED,
    RetryScheduled: EventType.RETRY_SCHEDULED,
    DeferredFor: EventType.SCHEDULED,
    Suspended: EventType.SUSPENDED,
    SuspendedFor: EventType.SCHEDULED,
    Released: EventType.RELEASED,
    Cancelled: EventType.CANCELLED,
}
