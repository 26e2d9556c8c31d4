"""Which faults happen when: decided by the seed alone, before anything runs."""

from random import Random
from typing import NamedTuple

LEASE = 1.5
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 4.5

# How often each comes, compared with the others.
OF_WORKERS = {
    "kill": 6,
    "stop_for_long": 4,
    "stop_for_a_moment": 2,
    "terminate": 3,
    "terminate_twice": 2,
    "crash_point": 8,
    "pause_queue": 1,
    "meddle": 3,
    "meddle_with_runs": 3,
}
OF_POSTGRES = {
    "terminate_backends": 3,
    "cut": 3,
    "stall": 2,
    "refuse": 2,
    "half_open": 2,
    "swallow_replies": 3,
    "drop_notifications": 1,
    "delay": 1,
    "restart_fast": 1,
    "crash_server": 1,
    "hold_transaction": 1,
    "lock_tables": 1,
}
OF_SQLITE = {
    "hold_write_lock": 3,
    "hold_read_snapshot": 1,
    "kill_foreign_writer": 2,
}
CRASH_POINTS = (
    "after_claim kill",
    "after_claim lose_reply 3",
    "before_settle kill 1 20",
    "after_settle kill 1 20",
    "before_settle lose_reply 3",
    "after_settle lose_reply 5",
    "after_start kill",
    "after_start lose_reply 3",
    "after_heartbeat lose_reply 3",
    "after_recover lose_reply 2",
    "after_promote lose_reply 3",
    "after_reconcile lose_reply 2",
    "after_propagate lose_reply 3",
    "before_propagate kill 1 5",
    "after_defer kill",
    "after_undefer lose_reply 2",
    "after_read_back lose_reply 2",
    "before_settle stop 1 10",
    "after_claim stop 1 5",
)


class Planned(NamedTuple):
    at: float  # seconds after the beginning
    kind: str
    chance: float  # from 0 to 1: whom it strikes
    lasts: float  # seconds, for those that end by themselves


def plan(seed: int, seconds: float, *, postgres: bool) -> list[Planned]:
    """Return every fault of a soak, in order; the same for the same arguments."""
    random = Random(seed)
    weights = OF_WORKERS | (OF_POSTGRES if postgres else OF_SQLITE)
    kinds, shares = list(weights), list(weights.values())
    planned, at = [], 3.0
    while at < seconds:
        (kind,) = random.choices(kinds, shares)
        lasts = LEASE * random.uniform(0.3, 2.0)
        planned.append(Planned(at, kind, random.random(), lasts))
        at += random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE)
    return planned
