"""What `verify` looks at: a stretch of the tables, as it was at one moment."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.model.graph import Graph
from penstock.model.retelling import Retelling, RunRetelling


class Place(NamedTuple):
    """A row of the outbox."""

    execution_id: str
    queue: str
    priority: int
    suspect: bool
    task: str


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """One execution: its row as it is stored, its places in the outbox, its history told again."""

    id: str
    root_id: str
    task: str
    queue: str
    priority: int
    state: str  # perhaps none of the states that there are
    sub_state: str | None
    attempt: int
    retries: int
    crashes: int
    suspect: bool
    fence: int
    worker_id: str | None
    has_due_time: bool
    finished: bool  # has a time at which it finished
    serial: str | None
    ahead: str | None  # the first live execution before it in its serial
    serial_is_known: bool  # to the table that orders the serials
    will_be_released: bool  # somebody has left word that its serial goes on
    twin: str | None  # another live execution with its key
    places: Sequence[Place] = ()
    told: Retelling = msgspec.field(default_factory=Retelling)
    run_id: str | None = None  # the run that it is a task of, as its id says
    awaits: str | None = None  # what it waits for since it has begun: "signal:…", "elements:3"


class RunExamination(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its row as it is stored, the tasks behind its id, its own events told again."""

    id: str
    state: str  # perhaps none of the states that there are
    graph: Graph | None  # None: it cannot be read
    cancel_requested: bool
    out_of_time: bool
    finished: bool  # has a time at which it finished
    will_go_on: bool  # somebody has left word that it has to be looked at
    parent_cancelled: bool  # the task that started it ended so
    tasks: Sequence[Examination] = ()  # in the order of their ids, and so of the graph
    elements: Mapping[int, Sequence[Examination]] = msgspec.field(default_factory=dict)  # by place
    # Of rules about values, by place.
    verdicts: Mapping[int, bool] = msgspec.field(default_factory=dict)
    told: RunRetelling = msgspec.field(default_factory=RunRetelling)


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """All that there is between two ids, at one moment."""

    executions: Sequence[Examination]
    strays: Sequence[Place]  # places in the outbox that belong to no execution
    remains: Mapping[str, Retelling]  # histories whose execution is not there any more
    events: int
    until: str  # the last id of the stretch
    next: str | None  # where the next stretch begins; None: this was the last
    runs: Sequence[RunExamination] = ()  # each with all of its tasks
    remains_of_runs: Mapping[str, RunRetelling] = msgspec.field(default_factory=dict)
    schema: str = ""  # what stands before the names of the tables, if anything does
