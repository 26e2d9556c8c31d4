"""Hints that there may be something to do. A lost one costs time, never work."""

from datetime import timedelta
from operator import or_
from typing import NamedTuple


class WakeUp(NamedTuple):
    """What may be worth a look. Not a Flag, which takes its time in the way of every task."""

    ready: bool = False  # the outbox
    scheduled: bool = False  # something may be due earlier than thought
    waiting: bool = False  # something waits behind what may have ended
    cancel: bool = False  # somebody asks a running task to stop

    def and_also(self, other: "WakeUp") -> "WakeUp":
        return WakeUp(*map(or_, self, other))


NOTHING = WakeUp()
ANYTHING = WakeUp(ready=True, scheduled=True, waiting=True, cancel=True)


class Chores(NamedTuple):
    """What maintenance would find to do."""

    orphans: bool  # running tasks whose worker is no more
    propagations: bool
    next_due: timedelta | None
