"""Writers who share a transaction on SQLite, and what becomes of it for each of them."""

import sqlite3
import threading
from collections.abc import Callable
from enum import Enum, auto

from penstock.errors import PenstockError


class ToBeUndone(Exception):
    """What a work raises where nothing of it may be committed."""


class Interrupted(BaseException):
    """A signal ended who wrote for several, before it could say what became of it."""

    def __init__(self) -> None:
        super().__init__("the thread that wrote it was interrupted")


class Fate(Enum):
    COMMITTED = auto()
    UNDONE = auto()  # because of somebody: whose fault it was comes out when each is alone


class Together:
    """Jobs that share a transaction.

    What became of it is told to all of them by one assignment, which no signal can halve.
    """

    __slots__ = ("fate", "jobs")

    def __init__(self, *jobs: "Job") -> None:
        self.fate: Fate | BaseException | None = None  # None: not decided yet
        self.jobs: list[Job] = []
        for job in jobs:
            self.take(job)

    def take(self, job: "Job") -> None:
        job.together = self
        self.jobs.append(job)


NOBODYS = Together()  # for what nobody wants to have written any more
NOBODYS.fate = Interrupted()


class Job:
    """What one thread wants to write, and with whom it is written."""

    __slots__ = ("doing", "together", "work")

    def __init__(self, doing: str, work: Callable[[sqlite3.Connection], None]) -> None:
        self.doing = doing
        self.work = work
        self.together: Together | None = None

    @property
    def fate(self) -> Fate | BaseException | None:
        return None if self.together is None else self.together.fate

    @property
    def is_free(self) -> bool:
        """Whether it is known that nothing of it has been written and nobody is about to."""
        return self.together is None or self.together.fate is Fate.UNDONE

    @property
    def is_done(self) -> bool:
        fate = self.fate  # once: whoever has no lock may find another one the next time
        return fate is not None and fate is not Fate.UNDONE


def may_be_a_signals(error: Exception) -> bool:
    """Whether a signal's handler may have raised it, as handlers with time limits do.

    Python runs them in the main thread, and they raise what neither the database nor a work does.
    """
    return threading.current_thread() is threading.main_thread() and not isinstance(
        error, sqlite3.Error | PenstockError | ToBeUndone
    )


def raised_the_like(job: Job) -> bool:
    """Whether a job, done by itself, raises what might as well come from a signal's handler."""
    return job.is_free or (isinstance(job.fate, Exception) and may_be_a_signals(job.fate))
