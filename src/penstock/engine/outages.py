"""A database that does not answer: wait with backoff, one log line per change, not per try."""

import logging
import random
import threading
import time
from typing import Literal, get_args

from penstock.engine.hooks import NOBODY, HookSet

log = logging.getLogger("penstock.worker")

Operation = Literal["claim tasks", "settle outcomes", "send heartbeats", "do the chores"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0


class Outage:
    """What one thread knows about the database being out of reach."""

    def __init__(self, doing: Operation, hooks: HookSet = NOBODY) -> None:
        self._doing = doing
        self._hooks = hooks
        self._since: float | None = None
        self._pause = FIRST_PAUSE

    @property
    def under_way(self) -> bool:
        return self._since is not None

    def begins(self, error: BaseException) -> None:
        """Say it once; called again, it only lengthens the pause."""
        if self._hooks.listen:
            self._hooks.store_failed(self._doing, error)
        if self._since is None:
            self._since = time.monotonic()
            # The text alone: who collects records would keep what the error's frames have open.
            said = str(error)
            log.warning("cannot %s, waiting for the database: %s", self._doing, said)
        else:
            self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def ends(self) -> None:
        if self._since is not None:
            gone_for = time.monotonic() - self._since
            log.warning("the database is back after %.1f s: we %s again", gone_for, self._doing)
            self._since = None
            self._pause = FIRST_PAUSE

    @property
    def pause(self) -> float:
        """How long to wait before the next try; random, so that workers do not come at once."""
        return self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret

    def wait(self, stopping: threading.Event) -> None:
        stopping.wait(self.pause)
