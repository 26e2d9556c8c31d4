"""Writes how attempts ended: everything that is there, in one transaction.

At once when little happens; under load outcomes gather while a transaction is under way,
so batches grow by themselves.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime

from penstock.engine.outages import Outage
from penstock.errors import StoreUnavailable
from penstock.model.executions import Lease
from penstock.model.outcomes import Outcome
from penstock.store.contract import Store

log = logging.getLogger("penstock.worker")

MOST_IN_A_BATCH = 500
AWAKE_FOR = 1.0
RECORD_START_AFTER = 0.05  # short tasks tell their start with their outcome: no extra commit


class Settler:
    """The only one who settles; whatever it is given is written, or refused, exactly once."""

    def __init__(self, store: Store, *, when_settled: Callable[[list[Outcome]], None]) -> None:
        self._store = store
        self._when_settled = when_settled
        self._outcomes: deque[Outcome] = deque()
        self._starts: dict[Lease, tuple[float, datetime]] = {}
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._busy = False
        self._asleep = False
        self._outage = Outage("settle outcomes")
        self.last_turn = time.monotonic()

    def put(self, outcome: Outcome) -> None:
        with self._changed:
            self._outcomes.append(outcome)
            self._changed.notify()

    def note_start(self, lease: Lease, started_at: datetime) -> None:
        """Tell the start of an attempt that may turn out to be long."""
        self._starts[lease] = (time.monotonic(), started_at)
        if self._asleep:
            with self._changed:
                self._changed.notify()

    def start_was_told(self, lease: Lease) -> bool:
        """True if the start is in the database already; False if the outcome has to tell it."""
        return self._starts.pop(lease, None) is None

    @property
    def backlog(self) -> int:
        return len(self._outcomes)

    def run_until_stopped(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._record_starts()
            if batch:
                self.last_turn = time.monotonic()
                self._settle(batch)
            self._busy = False

    def stop(self) -> None:
        """Settle what is there, then end."""
        with self._changed:
            self._stop.set()
            self._changed.notify()

    @property
    def idle(self) -> bool:
        return not self._outcomes and not self._busy

    def _next_batch(self) -> list[Outcome] | None:
        with self._changed:
            if not self._outcomes and not self._stop.is_set():
                # Under load nobody needs to wake us for a start: we look soon anyway.
                self._asleep = not self._starts and time.monotonic() - self.last_turn > AWAKE_FOR
                self._changed.wait(None if self._asleep else RECORD_START_AFTER)
                self._asleep = False
            if not self._outcomes and self._stop.is_set():
                return None
            self._busy = True
            count = min(len(self._outcomes), MOST_IN_A_BATCH)
            return [self._outcomes.popleft() for _ in range(count)]

    def _record_starts(self) -> None:
        before = time.monotonic() - RECORD_START_AFTER
        due = [(lease, at) for lease, (noted, at) in tuple(self._starts.items()) if noted <= before]
        if not due:
            return
        # Out of the table first: an outcome that arrives now must not tell it a second time.
        told = [(lease, at) for lease, at in due if self._starts.pop(lease, None) is not None]
        try:
            self._store.start([lease for lease, _ in told], started_at=[at for _, at in told])
        except StoreUnavailable as error:
            self._outage.begins(error)
            now = time.monotonic()
            self._starts.update({lease: (now, at) for lease, at in told})

    def _settle(self, outcomes: list[Outcome]) -> None:
        try:
            lost = self._store.settle(outcomes)
        except StoreUnavailable as error:
            # The work is done; only its record is missing. Keep it until the database is back.
            self._outage.begins(error)
            with self._changed:
                self._outcomes.extendleft(reversed(outcomes))
            self._outage.wait(self._stop)
            return
        self._outage.ends()
        self._when_settled(outcomes)
        for lease in lost:
            log.warning(
                "outcome of %s refused: its lease went to another worker", lease.execution_id
            )
