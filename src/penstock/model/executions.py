"""What an execution is: as asked for, as handed out, and as the database knows it.

There are many of them at a time: a Struct is made in a tenth of the time that a frozen dataclass
takes, and the garbage collector need not look at what refers to no containers.
"""

from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec

from penstock.model.states import State, SubState

DEFAULT_QUEUE = "default"
DEFAULT_MAX_CRASHES = 3


class NewExecution(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One requested instance of a task; its id is known before anything is committed."""

    id: str
    task: str
    args: str  # JSON text, as `payloads.encode` made it
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    run_at: datetime | None = None
    delay: timedelta | None = None  # counted from the database's clock; excludes `run_at`
    key: str | None = None
    serial: str | None = None
    max_crashes: int = DEFAULT_MAX_CRASHES
    follow_ups: str | None = None  # JSON text: what is to be enqueued when it ends
    trace: str | None = None  # JSON text: what a tracing system passes on, as headers

    @property
    def is_free(self) -> bool:
        """Whether nothing can hold it back: neither another execution nor the time."""
        return (
            self.key is None and self.serial is None and self.run_at is None and self.delay is None
        )


class Created(msgspec.Struct, frozen=True, gc=False):
    """The answer to one requested execution: `created` is False when its key was taken."""

    id: str
    created: bool
    state: State


class Lease(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The right to settle an execution, until someone else gets a newer one.

    The fence changes whenever the execution starts or stops running, so a lease that
    is no longer the newest matches nothing.
    """

    execution_id: str
    fence: int
    worker_id: str


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A task that has been handed to a worker."""

    lease: Lease
    task: str
    args: str
    queue: str
    priority: int
    seq: int
    attempt: int
    retries: int
    crashes: int
    suspect: bool
    serial: str | None
    has_follow_ups: bool
    claimed_at: datetime
    run_id: str | None = None  # of the workflow's run that it is part of
    due_at: datetime | None = None  # None: nobody knows any more, as after a rerun
    trace: str | None = None  # as it was asked for


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An execution as the database knew it at one moment."""

    id: str
    root_id: str
    task: str
    args: str
    queue: str
    priority: int
    state: State
    sub_state: SubState | None
    attempt: int
    retries: int
    crashes: int
    max_crashes: int
    suspect: bool
    cancel_requested: bool
    fence: int
    worker_id: str | None
    key: str | None
    serial: str | None
    run_at: datetime | None  # as asked for, or as the last retry put it
    result: str | None
    error: str | None
    progress: str | None
    writes: str | None  # what it wrote into its workflow's context: JSON text
    created_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    awaits: str | None = None  # what it waits for without a worker: a signal, a run, its elements


class Recovered(NamedTuple):
    """An execution taken from a dead worker, and where that left it."""

    id: str
    state: State
    lost_worker: str


class Promoted(NamedTuple):
    """How many executions became ready, and how long until the next one is due."""

    promoted: int
    next_due: timedelta | None


class Swept(NamedTuple):
    """How many rows a sweep removed, and where the next batch begins (None: at the end)."""

    removed: int
    next: str | None


class StepDone(NamedTuple):
    """The result of a step, as JSON text: no later attempt need take it again."""

    lease: Lease
    name: str
    result: str


class Memory(NamedTuple):
    """What a task has done in earlier attempts, and what others have told it: JSON texts."""

    steps: dict[str, str]
    signals: dict[str, str]


SignalAnswer = Literal["told", "already", "finished", "unknown"]
CancelAnswer = Literal["cancelled", "requested", "finished", "unknown"]
Whereabouts = Literal["settled", "open", "undone", "lost"]
RerunAnswer = Literal["rerun", "hastened", "live", "unknown"]
DismissAnswer = Literal["dismissed", "kept", "part", "unknown"]
