"""Who works, and what others can see of it."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

# A shorter beat or poll would keep the database busy with nothing else.
SHORTEST_REST = timedelta(milliseconds=10)


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker tells the others about itself when it starts."""

    id: str
    name: str = ""
    host: str = ""
    identity: str = ""  # proves on the same host that the process is gone
    queues: Collection[str] = ()
    tasks: Collection[str] = ()
    slots: int = 1
    max_running: Mapping[str, int] | None = None  # by task, where one is declared; None: not told
    metrics: str | None = None  # where it serves them, "" if nowhere; None: not told


class Beat(NamedTuple):
    """A worker's heartbeat as somebody saw it: a count that rises while it lives."""

    worker_id: str
    beat: int


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another worker as the database shows it."""

    info: WorkerInfo
    beat: int
    beat_at: datetime
    started_at: datetime

    @property
    def seen(self) -> Beat:
        return Beat(self.info.id, self.beat)


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a heartbeat."""

    alive: bool  # False: declared dead meanwhile; everything it held is lost
    cancel_requested: tuple[str, ...] = ()  # executions it runs that should stop
    peers: tuple[Peer, ...] = ()
