"""What `verify` looks at: a stretch of the tables, as it was at one moment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.model.retelling import Retelling


class Place(NamedTuple):
    """A row of the outbox."""

    execution_id: str
    queue: str
    priority: int
    suspect: bool
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
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
    told: Retelling = field(default_factory=Retelling)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """All that there is between two ids, at one moment."""

    executions: Sequence[Examination]
    strays: Sequence[Place]  # places in the outbox that belong to no execution
    remains: Mapping[str, Retelling]  # histories whose execution is not there any more
    events: int
    until: str  # the last id of the stretch
    next: str | None  # where the next stretch begins; None: this was the last
