"""What can happen to an execution, and how its history is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class EventType(StrEnum):
    """A fact about a task, in the past tense; stored as it stands here."""

    CREATED = "task.created"
    SCHEDULED = "task.scheduled"
    MARKED_READY = "task.marked_ready"
    CLAIMED = "task.claimed"
    STARTED = "task.started"  # written a little later, or with the outcome
    DEFERRED = "task.deferred"
    RESUMED = "task.resumed"
    COMPLETED = "task.completed"
    FAILED = "task.failed"
    RETRY_SCHEDULED = "task.retry_scheduled"
    SKIPPED = "task.skipped"
    ABANDONED = "task.abandoned"
    RECOVERED = "task.recovered"
    RELEASED = "task.released"
    CANCEL_REQUESTED = "task.cancel_requested"
    CANCELLED = "task.cancelled"
    PAUSED = "task.paused"
    SUSPENDED = "task.suspended"
    RERUN = "task.rerun"


class RunEvent(StrEnum):
    """A fact about a run of a workflow, told in the same history as those of its tasks."""

    STARTED = "workflow.started"
    PAUSED = "workflow.paused"
    RESUMED = "workflow.resumed"
    COMPLETED = "workflow.completed"
    FAILED = "workflow.failed"
    CANCEL_REQUESTED = "workflow.cancel_requested"
    CANCELLED = "workflow.cancelled"
    RERUN = "workflow.rerun"


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a history; entries are only ever added, in the order of `seq`.

    A dataclass, so that web frameworks and other libraries know how to make JSON of it.
    """

    seq: int
    type: str
    at: datetime
    worker_id: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    execution_id: str | None = None  # the task's; None for what happened to a run as a whole
