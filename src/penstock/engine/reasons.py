"""What a reason is: a code for programs, a sentence for people, and what to do next."""

from enum import StrEnum
from typing import NamedTuple


class Code(StrEnum):
    """Every reason there is, in the order in which an execution meets them."""

    NOT_DUE = "not_due"
    DUE = "due"
    BEHIND = "behind"
    DEPENDENCIES = "dependencies"
    RUN_PAUSED = "run_paused"
    SIGNAL = "signal"
    CHILD = "child"
    ELEMENTS = "elements"
    TO_BE_RELEASED = "to_be_released"
    QUEUE_PAUSED = "queue_paused"
    NO_WORKER = "no_worker"
    WORKERS_SILENT = "workers_silent"
    TASK_UNKNOWN = "task_unknown"
    QUEUE_UNSERVED = "queue_unserved"
    SLOTS_FULL = "slots_full"
    MAX_RUNNING = "max_running"
    AHEAD = "ahead"
    SUSPECT = "suspect"
    NEXT = "next"
    CLAIMED = "claimed"
    RUNNING = "running"
    DEFERRED = "deferred"
    CANCEL_REQUESTED = "cancel_requested"
    WORKER_SILENT = "worker_silent"
    WORKER_GONE = "worker_gone"
    COMPLETED = "completed"
    FAILED = "failed"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class Reason(NamedTuple):
    """Why an execution is where it is."""

    code: Code
    sentence: str
    next_step: str
