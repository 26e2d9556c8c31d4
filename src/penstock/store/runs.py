"""What is written about runs of workflows, whatever the database.

The decisions are pure (`model/graph.py`). The scripts of `starting`, `advancing` and
`steering` give them what is stored, and hand what comes of it to a `RunWriter`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from penstock.model.events import RunEvent
from penstock.model.executions import Lease, NewExecution
from penstock.model.outcomes import Completed, Outcome
from penstock.model.runs import RunState
from penstock.store.batches import encode_rows
from penstock.store.scripts import Script, Step
from penstock.store.sql import Statement

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class RunRow(msgspec.Struct):
    """A run as it is written when it starts."""

    n: int
    id: str
    workflow: str
    state: str
    graph: str
    fingerprint: str
    inputs: str
    timeout_us: int | None
    follow_ups: str | None
    parent_id: str | None


class TaskRow(msgspec.Struct):
    """A task of a run as it is written when the run starts."""

    n: int
    id: str
    root_id: str
    task: str
    queue: str
    priority: int
    max_crashes: int
    args: str
    state: str
    follow_ups: str | None
    trace: str | None = None


class Change(msgspec.Struct, omit_defaults=True):
    """A waiting task that goes: ready with these arguments (None: as they are), or skipped.

    One that runs for each element of a list waits for them, and ends with the last.
    """

    n: int
    id: str
    state: str
    args: str | None = None
    result: str | None = None
    error: str | None = None
    writes: str | None = None
    awaits: str | None = None


class End(msgspec.Struct):
    """How a run ends."""

    n: int
    id: str
    state: str
    error: str | None
    data: str | None


class Output(NamedTuple):
    """What a task has just left behind, known without another look."""

    result: str
    writes: str | None


class Locked(NamedTuple):
    """A live run that nobody else can change meanwhile."""

    id: str
    workflow: str
    state: str
    graph: str
    inputs: str
    cancel_requested: bool
    error: str | None
    follow_ups: str | None


class RunChange(NamedTuple):
    """What a person, or the clock, does to a run as a whole."""

    state: RunState | None = None
    event: RunEvent | None = None
    cancel: bool = False
    error: str | None = None
    data: str | None = None  # of the event


class RunWriter(Protocol):
    """How one database writes what has been decided."""

    @property
    def statements(self) -> Mapping[str, Statement]: ...

    def start(self, runs: Sequence[RunRow], tasks: Sequence[TaskRow]) -> Script[list[str]]:
        """Write what is not there yet; return the ids of the runs that were written."""
        ...

    def let_go(self, changes: Sequence[Change], ends: Sequence[End]) -> Script[None]: ...

    def hold(self, task_ids: Sequence[str]) -> Script[None]: ...

    def add(self, elements: Sequence[TaskRow]) -> Script[None]:
        """Write elements of a list, and let them go."""
        ...

    def reset(self, task_ids: Sequence[str]) -> Script[None]:
        """Let ended tasks, or elements, wait again."""
        ...

    def create(self, executions: Sequence[NewExecution]) -> Script[object]: ...

    def change(self, run_id: str, change: "RunChange") -> Script[None]: ...

    def revive(self, run_id: str, task_ids: Sequence[str], *, ended: bool) -> Script[None]:
        """Let ended tasks of a run wait again, and the run live if it has `ended`."""
        ...


def outputs_of(outcomes: Iterable[Outcome], lost: Iterable[Lease] = ()) -> dict[str, Output]:
    """What the tasks left behind that have just completed; what was lost counts for nothing."""
    refused = set(lost)
    return {
        outcome.lease.execution_id: Output(outcome.result, outcome.writes)
        for outcome in outcomes
        if isinstance(outcome, Completed) and outcome.lease not in refused
    }


def lock(statements: Mapping[str, Statement], run_ids: Iterable[str]) -> Script[list[Locked]]:
    """Lock the live ones among these runs, before anything else is read or written."""
    rows = yield Step(statements["lock_runs"], {"ids": encode_rows(sorted(set(run_ids)))})
    return [Locked(*row) for row in rows]


def raw_members(text: str) -> dict[str, bytes]:
    """The members of a stored object, each as it is written there."""
    return {name: bytes(raw) for name, raw in _members(text).items()}
