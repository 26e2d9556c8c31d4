"""How an attempt ended. An outcome is a value, matched once, where it is settled."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from penstock.model.events import EventType
from penstock.model.executions import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    lease: Lease
    serial: str | None = None  # as claimed: its successor is released when it ends
    has_follow_ups: bool = False  # as claimed: what follows its end is enqueued with it
    run_id: str | None = None  # as claimed: the workflow's run that goes on when it ends
    started_at: datetime | None = None  # None: never started, or already recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed(_Ended):
    """The handler returned; `result` and what it wrote into the context are JSON text."""

    result: str = "null"
    writes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(_Ended):
    """The handler raised and will not be tried again; `error` is JSON text."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryScheduled(_Ended):
    """The handler raised and is tried again after `delay`."""

    error: str
    delay: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredFor(_Ended):
    """The handler asked to come back after `delay`; the attempt is not spent."""

    delay: timedelta
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended(_Ended):
    """The handler waits for a signal or a run, without a worker; the attempt is not spent."""

    awaits: str  # what `signal_named` or `end_of_run` returns


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedFor(_Ended):
    """The same, for `timeout` at most: then it comes back with empty hands."""

    awaits: str
    timeout: timedelta


SUSPENDED = (Suspended, SuspendedFor)


def signal_named(name: str) -> str:
    return f"signal:{name}"


def end_of_run(run_id: str) -> str:
    return f"run:{run_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(_Ended):
    """The worker gives the task back to its old place; the attempt is not spent."""

    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(_Ended):
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
