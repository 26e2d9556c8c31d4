"""Hints that there may be something to do. A lost one costs time, never work."""

from datetime import timedelta
from enum import Flag, auto
from typing import NamedTuple


class WakeUp(Flag):
    """What may be worth a look."""

    NOTHING = 0
    READY = auto()  # the outbox
    SCHEDULED = auto()  # something may be due earlier than thought
    WAITING = auto()  # something waits behind what may have ended
    CANCEL = auto()  # somebody asks a running task to stop
    ANYTHING = READY | SCHEDULED | WAITING | CANCEL


class Chores(NamedTuple):
    """What maintenance would find to do."""

    orphans: bool  # running tasks whose worker is no more
    propagations: bool
    next_due: timedelta | None
