"""Why an execution is where it is: the facts that the claim looks at, at one moment."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from penstock.model.events import Event
from penstock.model.executions import Snapshot
from penstock.model.graph import decode_graph
from penstock.model.ids import place_of, placed_id
from penstock.model.runs import RunSnapshot
from penstock.model.states import FINAL, State
from penstock.model.workers import Peer


class Standing(NamedTuple):
    """Another execution, and how long it has been in its state."""

    id: str
    task: str
    state: State
    since: datetime | None


class Load(NamedTuple):
    """What one worker runs of one task."""

    worker_id: str
    task: str
    running: int  # claimed and not ended, deferred ones too
    active: int  # those of them that have a slot
    longest_id: str | None  # of the active ones, the one that was claimed first
    longest_since: datetime | None


class QueueDepth(NamedTuple):
    """What is ready in a queue, and how long ago the first of it became so."""

    queue: str
    ready: int
    oldest_age: timedelta


class ReadyTask(NamedTuple):
    """How many executions of one task are ready in a queue."""

    queue: str
    task: str
    ready: int


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One execution with all that decides when it runs, in one unchanging view."""

    at: datetime  # by the database's clock
    snapshot: Snapshot
    history: tuple[Event, ...]
    due_in: timedelta | None  # while scheduled; negative when it is overdue
    head: Standing | None  # the first live execution of its serial, if that is another one
    predecessor: Standing | None  # the one right ahead of it there
    ahead_in_serial: int
    paused_at: datetime | None  # its queue
    ahead: Mapping[str, int]  # ready ones that a claim of its queue takes first, by task
    workers: tuple[Peer, ...]
    loads: tuple[Load, ...]
    run: RunSnapshot | None = None  # the run that it is a task of
    waits_for: tuple[Standing, ...] = ()  # direct dependencies not ended yet, in the graph's order

    @property
    def state(self) -> State:
        return self.snapshot.state


def dependencies(run: RunSnapshot, task_id: str) -> list[str]:
    """The tasks of a run that one of them directly depends on, in the order of the graph."""
    nodes = decode_graph(run.graph).nodes
    return [placed_id(run.id, place) for place in sorted(nodes[place_of(task_id)].after)]


def not_ended(ids: Sequence[str], standings: Mapping[str | None, Standing]) -> tuple[Standing, ...]:
    """Those of these executions that somebody may still wait for."""
    found = (standings[id_] for id_ in ids if id_ in standings)
    return tuple(one for one in found if one.state not in FINAL)
