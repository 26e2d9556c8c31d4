"""What an execution of a workflow is: a run, as asked for and as the database knows it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

import msgspec

from penstock.model.events import RunEvent


class RunState(StrEnum):
    """Where a run stands."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


RUN_TRANSITIONS: Mapping[tuple[RunState | None, RunEvent], RunState] = MappingProxyType(
    {
        (None, RunEvent.STARTED): RunState.RUNNING,
        (RunState.RUNNING, RunEvent.PAUSED): RunState.PAUSED,
        (RunState.PAUSED, RunEvent.RESUMED): RunState.RUNNING,
        (RunState.RUNNING, RunEvent.CANCEL_REQUESTED): RunState.RUNNING,
        (RunState.PAUSED, RunEvent.CANCEL_REQUESTED): RunState.PAUSED,
        (RunState.RUNNING, RunEvent.COMPLETED): RunState.COMPLETED,
        (RunState.RUNNING, RunEvent.FAILED): RunState.FAILED,
        (RunState.RUNNING, RunEvent.CANCELLED): RunState.CANCELLED,
        # What was running goes on while the run is paused, and may be the last of it.
        (RunState.PAUSED, RunEvent.COMPLETED): RunState.COMPLETED,
        (RunState.PAUSED, RunEvent.FAILED): RunState.FAILED,
        (RunState.PAUSED, RunEvent.CANCELLED): RunState.CANCELLED,
        (RunState.COMPLETED, RunEvent.RERUN): RunState.RUNNING,
        (RunState.FAILED, RunEvent.RERUN): RunState.RUNNING,
        (RunState.CANCELLED, RunEvent.RERUN): RunState.RUNNING,
    }
)

FINAL_RUN = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED})


class NewRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One requested run of a workflow; its id is known before anything is committed."""

    id: str
    workflow: str
    graph: str  # JSON text, as `encode_graph` made it
    fingerprint: str  # of the graph, its rules and the code of its tasks
    inputs: str  # JSON text of an object
    timeout: timedelta | None = None
    follow_ups: str | None = None  # JSON text: what is to be enqueued when it ends
    parent_id: str | None = None  # the task that started it and waits for its end
    trace: str | None = None  # of all its tasks: JSON text, as of an execution


class RunSnapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run as the database knew it at one moment."""

    id: str
    workflow: str
    state: RunState
    graph: str
    fingerprint: str
    inputs: str
    cancel_requested: bool
    error: str | None
    deadline: datetime | None
    created_at: datetime
    finished_at: datetime | None


RunAnswer = Literal["done", "already", "finished", "live", "nothing", "unknown"]
"""What became of a request to pause, resume, cancel or rerun a run.

"live": what is to be rerun has not ended. "nothing": there is nothing to rerun.
"""
