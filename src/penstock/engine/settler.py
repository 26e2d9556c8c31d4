"""Writes how attempts ended: everything that is there, in one transaction.

At once when little happens; under load outcomes gather while a transaction is under way,
so batches grow by themselves.
"""

import gc
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from datetime import datetime
from itertools import groupby

import msgspec
from msgspec.structs import replace

from penstock.engine.hooks import NOBODY, HookSet
from penstock.engine.outages import Outage
from penstock.errors import LockKept, StoreBusy, StoreUnavailable
from penstock.model.executions import Lease, StepDone
from penstock.model.outcomes import DeferredFor, Outcome, RetryScheduled, SuspendedFor
from penstock.model.states import SubState
from penstock.store.contract import Store

log = logging.getLogger("penstock.worker")

MOST_IN_A_BATCH = 500
AWAKE_FOR = 1.0
FIRST_LOOK = 0.02  # at a transaction that a handler has left open, then less and less often
LAST_LOOK = 1.0
_SCHEDULED = frozenset({RetryScheduled, DeferredFor, SuspendedFor})
RECORD_START_AFTER = 0.05  # short tasks tell their start with their outcome: no extra commit
# How long who goes on with a task waits for a lock of SQLite's that somebody keeps. A step that is
# refused has been taken, and will be taken again; but meanwhile nobody's outcome is written.
LOCK_PATIENCE = 120.0
LONGEST_TELLING = 5.0  # an outage may keep a start back; who waits for it goes on then


class _Awaited(msgspec.Struct, frozen=True):
    """Something whose writing a handler waits for, inside a transaction of its own perhaps."""

    written: "Future[bool]"
    patience: float  # with somebody who keeps SQLite's lock
    since: float


class _Change(_Awaited, frozen=True):
    lease: Lease
    sub_state: SubState
    reason: str | None


class _Doubt(msgspec.Struct, eq=False):
    """An end that the handler's own transaction decides."""

    lease: Lease
    if_undone: Callable[[], Outcome]
    look_at: float = 0.0
    pause: float = FIRST_LOOK

    def look_later(self, now: float) -> None:
        self.look_at = now + self.pause
        self.pause = min(2 * self.pause, LAST_LOOK)


class _Remembered(_Awaited, frozen=True):
    step: StepDone


class Settler:
    """The only one who settles; whatever it is given is written, or refused, exactly once."""

    def __init__(
        self,
        store: Store,
        *,
        when_settled: Callable[[list[Lease]], None],
        when_scheduled: Callable[[], None],
        when_ready: Callable[[], None] = lambda: None,
        hooks: HookSet = NOBODY,
    ) -> None:
        self._store = store
        self._hooks = hooks
        self._when_settled = when_settled
        self._when_scheduled = when_scheduled
        self._when_ready = when_ready
        self._outcomes: deque[Outcome] = deque()
        self._starts: dict[Lease, tuple[float, datetime]] = {}
        self._telling: list[tuple[Lease, datetime]] = []  # starts whose reply is not there yet
        self._told = threading.Condition()
        self._changes: deque[_Change] = deque()
        self._steps: deque[_Remembered] = deque()
        self._doubts: list[_Doubt] = []
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._stopped_at = 0.0
        self._busy = False
        self._waits = False  # for something to write
        self._asleep = False  # the same, and nobody looks at the starts
        self._outage = Outage("settle outcomes", hooks)
        self._in_haste = False
        self._lock_kept_since: float | None = None
        self._settled_at = time.monotonic()
        self._asking_since: float | None = None

    def put(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        # In this order, and the other way round in `_next_batch`: one of the two sees the other.
        if self._waits:
            with self._changed:
                self._changed.notify()

    def note_start(self, lease: Lease, noted: float, started_at: datetime) -> None:
        """Tell the start of an attempt that may turn out to be long; `noted` is monotonic."""
        self._starts[lease] = (noted, started_at)
        if self._asleep:
            with self._changed:
                self._changed.notify()

    def start_was_told(self, lease: Lease) -> bool:
        """True if the start is in the database already; False if the outcome has to tell it."""
        return self._starts.pop(lease, None) is None

    def wait_until_told(self, lease: Lease) -> None:
        """Wait while we tell the start of this attempt, for as long as that may take.

        Who locks its row first, in a transaction of its own, would keep us waiting for the end of
        that transaction, and with us all that this worker has to settle.
        """
        with self._told:
            self._told.wait_for(
                lambda: all(told != lease for told, _ in self._telling), LONGEST_TELLING
            )

    def change_sub_state(
        self, lease: Lease, sub_state: SubState, reason: str | None, *, awaited: bool = True
    ) -> "Future[bool]":
        """Write a sub-state with the next batch; the answer says whether the lease is held."""
        # Who asks to be deferred can be refused at once: nothing has been done for it yet.
        patience = 0.0 if sub_state is SubState.DEFERRED else LOCK_PATIENCE
        if not awaited:
            patience = math.inf
        written = _unwritten()  # a handler that is cancelled cannot take it back
        with self._changed:
            now = time.monotonic()
            self._changes.append(_Change(written, patience, now, lease, sub_state, reason))
            self._changed.notify()
        return written

    def remember(self, step: StepDone) -> "Future[bool]":
        """Store a step's result with the next batch; the answer says whether the lease is held."""
        written = _unwritten()  # it was taken, whoever waits for the answer
        with self._changed:
            self._steps.append(_Remembered(written, LOCK_PATIENCE, time.monotonic(), step))
            self._changed.notify()
        return written

    def put_in_doubt(self, lease: Lease, if_undone: Callable[[], Outcome]) -> None:
        """Settle with that outcome, unless the handler's own transaction has done or does it."""
        with self._changed:
            self._doubts.append(_Doubt(lease, if_undone))
            self._changed.notify()

    @property
    def backlog(self) -> int:
        return len(self._outcomes)

    def run_until_stopped(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._asking_since = time.monotonic()
            lock_is_kept = False
            try:
                self._write(batch)
            except StoreUnavailable as error:
                lock_is_kept = self._notes_kept_lock(error)
                self._outage.begins(error)
                # Also while we stop: a wait that a stop ends would ask again and again.
                time.sleep(self._outage.pause)
            self._asking_since = None
            if lock_is_kept:
                # Perhaps by a handler that has ended and closed nothing: a connection of sqlite3 is
                # part of a circle, and who writes nothing may wait for a collection for ever.
                gc.collect()
            self._busy = False

    @property
    def unanswered_for(self) -> float:
        """For how many seconds the database owes us an answer, or a refusal."""
        since = self._asking_since
        return 0.0 if since is None else time.monotonic() - since

    def hurry(self) -> None:
        """We stop soon: a handler that waits for a lock has no time to outlast who keeps it."""
        self._in_haste = True

    def stop(self) -> None:
        """Settle what is there, then end."""
        with self._changed:
            self._stopped_at = time.monotonic()
            self._stop.set()
            self._changed.notify()

    @property
    def idle(self) -> bool:
        return not self._outcomes and not self._doubts and not self._busy

    def _next_batch(self) -> list[Outcome] | None:
        with self._changed:
            self._waits = True
            if not (self._outcomes or self._changes or self._steps or self._may_end()):
                # Under load nobody needs to wake us for a start: we look soon anyway. Set before
                # the last look at the starts: who notes one after it sees that we sleep.
                self._asleep = time.monotonic() - self._settled_at > AWAKE_FOR
                if self._starts or self._telling or self._doubts:
                    self._asleep = False
                self._changed.wait(None if self._asleep else RECORD_START_AFTER)
                self._asleep = False
            self._waits = False
            if not self._outcomes and self._may_end():
                return None
            self._busy = True
            count = min(len(self._outcomes), MOST_IN_A_BATCH)
            return [self._outcomes.popleft() for _ in range(count)]

    def _may_end(self) -> bool:
        """Whether we are to stop, and no handler's transaction is worth waiting for any more."""
        if not self._stop.is_set():
            return False
        return not self._doubts or time.monotonic() > self._stopped_at + LAST_LOOK

    def _write(self, outcomes: list[Outcome]) -> None:
        """Tell the database all that is new, or keep it until the database is back."""
        # Once for both: what is deferred from now on has to wait until its start is told.
        changes = tuple(self._changes)
        try:
            self._record_starts({change.lease for change in changes})
            self._change_sub_states(changes)
            self._store_steps(tuple(self._steps))
            self._read_back()
            if outcomes:
                self._settled_at = time.monotonic()
                self._settle(outcomes)
        except StoreUnavailable:
            # The work is done; only its record is missing.
            with self._changed:
                self._outcomes.extendleft(reversed(outcomes))
            raise

    def _was_answered(self) -> None:
        self._outage.ends()
        self._lock_kept_since = None
        self._asking_since = time.monotonic()

    def _notes_kept_lock(self, error: StoreUnavailable) -> bool:
        """Whether nothing was written because somebody keeps SQLite's lock."""
        if not isinstance(error, StoreBusy):
            self._lock_kept_since = None
            return False
        if self._lock_kept_since is None:
            self._lock_kept_since = time.monotonic() - error.waited
        self._refuse_who_waits(error, self._lock_kept_since)
        return True

    def _record_starts(self, changing: Collection[Lease]) -> None:
        before = time.monotonic() - RECORD_START_AFTER
        due = [
            (lease, at)
            for lease, (noted, at) in tuple(self._starts.items())
            if noted <= before or lease in changing
        ]
        # Out of the table first, and not back into it when the reply is lost: an outcome that
        # arrives from now on must not tell it a second time.
        with self._told:
            self._telling += [one for one in due if self._starts.pop(one[0], None) is not None]
        if not self._telling:
            return
        leases, moments = zip(*self._telling, strict=True)
        self._store.start(leases, started_at=moments)
        self._was_answered()
        with self._told:
            self._telling.clear()
            self._told.notify_all()

    def _change_sub_states(self, changes: Iterable[_Change]) -> None:
        for (sub_state, reason), group in groupby(
            changes, key=lambda one: (one.sub_state, one.reason)
        ):
            together = list(group)
            leases = [change.lease for change in together]
            if sub_state is SubState.DEFERRED:
                lost = set(self._store.defer(leases, reason=reason))
            else:
                lost = set(self._store.undefer(leases))
            self._was_answered()
            # Only what has been written leaves the line: a task's changes keep their order.
            for change in together:
                self._changes.popleft()
                change.written.set_result(change.lease not in lost)

    def _store_steps(self, remembered: tuple[_Remembered, ...]) -> None:
        if not remembered:
            return
        lost = set(self._store.store_steps([one.step for one in remembered]))
        self._was_answered()
        for one in remembered:
            self._steps.popleft()
            one.written.set_result(one.step.lease not in lost)

    def _refuse_who_waits(self, busy: StoreBusy, kept_since: float) -> None:
        """Refuse those whose patience with the lock is at its end.

        A handler that defers, or takes a step, inside a transaction of its own would otherwise
        keep everybody waiting for ever.
        """
        now = time.monotonic()

        def goes_on(one: _Awaited) -> bool:
            most = 0.0 if self._in_haste and one.patience < math.inf else one.patience
            return now - max(one.since, kept_since) < most

        with self._changed:
            waiting = (*self._changes, *self._steps)
            # A refused handler goes on all the same, and then that is to be seen.
            self._changes = deque(
                one if goes_on(one) else replace(one, written=_unwritten(), patience=math.inf)
                for one in self._changes
                if goes_on(one) or one.sub_state is SubState.ACTIVE
            )
            self._steps = deque(filter(goes_on, self._steps))
        for one in waiting:
            if not goes_on(one):
                # Each its own: several threads would add their frames to the same one.
                one.written.set_exception(LockKept(waited=now - one.since, because=busy))

    def _read_back(self) -> None:
        now = time.monotonic()
        due = [doubt for doubt in self._doubts if doubt.look_at <= now]
        if not due:
            return
        found = self._store.read_back([doubt.lease for doubt in due])
        self._was_answered()
        for doubt, whereabouts in zip(due, found, strict=True):
            if whereabouts == "open":
                doubt.look_later(now)
                continue
            self._doubts.remove(doubt)
            if whereabouts == "undone":
                self.put(doubt.if_undone())
            else:
                self._when_settled([doubt.lease])
                if whereabouts == "lost":
                    _say_lost(doubt.lease)
                    self._hooks.lost_by_handler(doubt.lease)
                else:
                    self._hooks.settled_by_handler(doubt.lease)

    def _settle(self, outcomes: list[Outcome]) -> None:
        lost = self._store.settle(outcomes)
        self._was_answered()
        self._when_settled([outcome.lease for outcome in outcomes])
        # The database wakes others for the earliest only, and may take another for it that is
        # being promoted just now.
        if any(type(outcome) in _SCHEDULED for outcome in outcomes):
            self._when_scheduled()
        # The end of one task of a run makes others ready; no need to wait for the wake-up.
        if any(outcome.run_id is not None for outcome in outcomes):
            self._when_ready()
        for lease in lost:
            _say_lost(lease)
        if self._hooks.listen:
            self._hooks.settled(outcomes, lost)


def _unwritten() -> "Future[bool]":
    written: Future[bool] = Future()
    written.set_running_or_notify_cancel()
    return written


def _say_lost(lease: Lease) -> None:
    log.warning("outcome of %s refused: its lease went to another worker", lease.execution_id)
