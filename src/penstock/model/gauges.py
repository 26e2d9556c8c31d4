"""What monitoring watches of a database."""

from datetime import timedelta

import msgspec

from penstock.model.waiting import QueueDepth


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """How much live and failed work there is, and who is there to do it."""

    queues: tuple[QueueDepth, ...]  # those that have ready executions
    paused: tuple[str, ...]
    scheduled: int
    running: int  # those that work; a deferred one does not count
    deferred: int
    failed: int
    workers: int  # heard of within two leases
    silent_workers: int  # the others: nobody has declared them dead yet
    oldest_transaction: timedelta | None  # None where a database cannot tell
