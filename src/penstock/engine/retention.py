"""Retention: what ended long ago is removed, a little at a time, and workers take turns.

A thread of its own: however long there is something to remove, promoting and recovering
wait for none of it.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Protocol

import msgspec

from penstock.errors import StoreError
from penstock.model.durations import format_duration
from penstock.model.executions import Swept
from penstock.store.contract import Store

log = logging.getLogger("penstock.worker")

EVERY = 3600.0
FIRST_LOOK = (30.0, 90.0)  # after the start, so that a restart of all does not bring all at once

BATCH = 500  # rows: a few milliseconds, so that nobody waits long for what it locks
REST = 2.0  # as many times as a batch took: two thirds of the time are left to the tasks alone


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long what has ended is kept; failed executions and their events stay."""

    executions: timedelta
    events: timedelta


class Sweep(Protocol):
    """`sweep` or `sweep_events` of a store."""

    def __call__(
        self, *, older_than: timedelta, after: str | None, limit: int, dry_run: bool
    ) -> Swept: ...


def sweep_all(
    sweep: Sweep,
    older_than: timedelta,
    *,
    rest: Callable[[float], object],
    dry_run: bool = False,
) -> Iterator[int]:
    """Sweep to the end, and yield what each batch removed.

    After each batch `rest` is called with how long to leave the database to others, and ends
    it all by returning something true.
    """
    place: str | None = None
    while True:
        begun = time.monotonic()
        swept = sweep(older_than=older_than, after=place, limit=BATCH, dry_run=dry_run)
        took = time.monotonic() - begun
        yield swept.removed
        place = swept.next
        if place is None or rest(took * REST):
            return


class Sweeper:
    """Looks once in a while; removes what is too old when it is this worker's turn."""

    def __init__(
        self,
        store: Store,
        retention: Retention,
        *,
        worker_id: Callable[[], str],
        every: float = EVERY,
        first_look: tuple[float, float] = FIRST_LOOK,
    ) -> None:
        self._store = store
        self._retention = retention
        self._worker_id = worker_id
        self._every = every
        self._first_look = first_look
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()

    def run_until_stopped(self) -> None:
        nap = random.uniform(*self._first_look)  # noqa: S311 - not a secret
        while not self._stop.wait(nap):
            nap = self._every
            try:
                if self.is_our_turn(time.time()):
                    self.sweep()
            except StoreError as error:
                log.warning(
                    "cannot remove what is too old, leaving it for the next time: %s", error
                )
            except Exception:
                # Old rows harm nobody for another hour; a worker that ended itself would.
                log.exception("retention stumbled and goes on")

    def is_our_turn(self, now: float) -> bool:
        """Whether the turn, which goes from worker to worker, is ours at this time.

        Each worker looks once in every period, so one of them finds that it is. None is needed
        for more than a period: there is no leader to be lost.
        """
        alive = [peer.info.id for peer in self._store.workers()]
        if not alive:
            return False
        return alive[int(now // self._every) % len(alive)] == self._worker_id()

    def sweep(self) -> None:
        """Remove everything that is too old, unless we are stopped meanwhile."""
        kept = self._retention
        passes: tuple[tuple[str, Sweep, timedelta], ...] = (
            ("executions", self._store.sweep, kept.executions),
            ("events of executions", self._store.sweep_events, kept.events),
        )
        for what, sweep, older_than in passes:
            for removed in sweep_all(sweep, older_than, rest=self._stop.wait):
                if removed:
                    log.info(
                        "removed %d %s that ended more than %s ago",
                        removed,
                        what,
                        format_duration(older_than),
                    )
            if self._stop.is_set():
                return
