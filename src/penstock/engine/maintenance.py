"""What every worker does beside its tasks, without a leader: promote, recover, propagate.

It sleeps until the next scheduled task is due, and looks at the rest now and then.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from penstock.engine.hooks import NOBODY, HookSet
from penstock.engine.outages import Outage
from penstock.errors import StoreUnavailable
from penstock.model.executions import Recovered
from penstock.model.telling import count, some_of
from penstock.model.workers import Beat
from penstock.store.contract import Store

log = logging.getLogger("penstock.worker")

BATCH = 1000


class Maintenance:
    """One thread; everything it does is safe to do in any number of workers at once."""

    def __init__(
        self,
        store: Store,
        *,
        worker_id: Callable[[], str],
        every: float,
        when_ready: Callable[[], None],
        hooks: HookSet = NOBODY,
    ) -> None:
        self._store = store
        self._hooks = hooks
        self._worker_id = worker_id
        self._every = every
        self._when_ready = when_ready
        self._wake = threading.Event()
        self._at_work = threading.Lock()
        self._stop = threading.Event()
        self._dead: set[Beat] = set()
        self._chores_at = 0.0
        self._outage = Outage("do the chores", hooks)
        self.last_turn = time.monotonic()

    def wake(self) -> None:
        """Something may have become due earlier than we thought."""
        self._wake.set()

    def look_soon(self) -> None:
        """Something waits behind what may have ended: do the chores now."""
        self._chores_at = 0.0
        self._wake.set()

    def recover(self, dead: Iterable[Beat]) -> None:
        """Declare these workers dead, soon and on this thread."""
        self._dead.update(dead)
        self._wake.set()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def run_until_stopped(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            self.last_turn = time.monotonic()
            try:
                with self._at_work:
                    nap = self._do_what_is_due()
            except StoreUnavailable as error:
                self._outage.begins(error)
                self._outage.wait(self._stop)
                continue
            self._outage.ends()
            self._wake.wait(nap)

    def _do_what_is_due(self) -> float:
        if self._dead:
            self._recover_from(set(self._dead))
        next_due = self.promote_all()
        if time.monotonic() >= self._chores_at:
            self._chores_at = time.monotonic() + self._every
            chores = self._store.chores()
            if chores.orphans:
                self._recover_from(set())
            if chores.propagations and self._store.propagate():
                self._when_ready()
        until_chores = max(0.0, self._chores_at - time.monotonic())
        return until_chores if next_due is None else min(until_chores, next_due.total_seconds())

    def finish_up(self) -> None:
        """Promote and propagate; what this worker has begun of it elsewhere is done then, too."""
        with self._at_work:
            self.promote_all()
            self._store.propagate()

    def promote_all(self) -> timedelta | None:
        """Make everything ready that is due; return how long until the next is."""
        while True:
            promoted = self._store.promote(limit=BATCH)
            if promoted.promoted:
                self._when_ready()
            if promoted.promoted < BATCH:
                return promoted.next_due

    def _recover_from(self, dead: set[Beat]) -> None:
        while True:
            recovered = self._store.recover(self._worker_id(), dead=dead, limit=BATCH)
            if recovered:
                if self._hooks.listen:
                    self._hooks.executions_recovered(recovered)
                log.warning("recovered %s", _whose(recovered))
                self._when_ready()
            if len(recovered) < BATCH:
                self._dead -= dead
                return


def _whose(recovered: Sequence[Recovered]) -> str:
    left = Counter(one.lost_worker for one in recovered)
    return some_of([f"{count(n, 'task')} of the dead worker {whose}" for whose, n in left.items()])
