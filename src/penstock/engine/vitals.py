"""How a worker is, at one moment: what health checks and gauges are made of."""

from typing import NamedTuple, Protocol


class Vitals(NamedTuple):
    """One look at a worker; nothing in it was asked of the database for this."""

    worker_id: str
    slots: int
    slots_free: int
    running: int  # attempts that have begun and not ended, deferred ones too
    in_stock: int  # claimed, and waiting for a slot
    unsettled: int  # ended, and not in the database yet
    runaways: int  # threads that went on after their timeout
    since_poll: float  # seconds since the claimer last had an answer, or needed none
    poll: float  # seconds between two looks at the latest
    out_of_reach: bool  # the claimer asks, and the database does not answer
    lease_lost: bool  # no heartbeat has arrived for a lease: others may think us dead
    beating_for: float  # seconds for which every heartbeat has arrived; 0 while none does
    stopping: bool
    given_up: bool  # a part of it died or hung, in a process that is not its own to end


class Living(Protocol):
    """Whoever can be asked how it is."""

    @property
    def id(self) -> str: ...

    def vitals(self) -> Vitals: ...
