"""A worker that a test turns by hand: one task at a time, in one order, on the test's clock."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from penstock.app import App
from penstock.engine.attempts import AnyTask, Attempt
from penstock.errors import PenstockError
from penstock.model.executions import Claimed
from penstock.model.ids import new_id
from penstock.model.workers import WorkerInfo
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from penstock.testing.under_way import UnderWay, begin

NAME = "manual"


class NeverIdle(PenstockError):
    """Tasks go on producing tasks."""

    def __init__(self, task: str, *, limit: int) -> None:
        self.task = task
        self.limit = limit
        super().__init__(
            f"{limit} attempts have run and there is still something due, {task!r} for one. Does "
            "it enqueue itself, or retry without a delay? If it is meant to, pass a higher `limit`."
        )


class ManualWorker:
    """Does what workers do, and nothing by itself."""

    def __init__(self, app: App, clock: ManualClock) -> None:
        self._app = app
        self._clock = clock
        self._runner = asyncio.Runner()
        self._id: str | None = None
        self._parked: list[UnderWay] = []
        self._doubts: list[UnderWay] = []
        self._dead: dict[str, datetime] = {}  # when they died
        self._doomed: list[str] = []  # tasks at the end of which the worker is to die

    @property
    def _store(self) -> Store:
        return self._app.store

    # --- turns ------------------------------------------------------------------------

    def turns(
        self, *, queues: Sequence[str] | None, limit: int, raise_errors: bool
    ) -> Iterator[UnderWay]:
        """Hand out what is due, one after the other, until nothing is.

        Whoever takes them carries each on before asking for the next.
        """
        self._live()
        count = 0
        while (one := self._next_due() or self._claimed(queues)) is not None:
            count += 1
            if count > limit:
                self._parked.append(one)
                raise NeverIdle(one.attempt.task.name, limit=limit)
            yield one
            self._after(one)
            # What is not an Exception is meant for the test itself, as pytest.fail() is.
            if one.error is not None and (raise_errors or _is_for_the_test(one.error)):
                raise one.error

    def next_moment(self) -> datetime | None:
        """When something will be due that is not due yet; None if nothing will."""
        self._live()
        next_due = self._store.promote().next_due
        moments = [one.wakes_at for one in self._parked if one.wakes_at is not None]
        moments += [died + self._lease for died in self._dead.values()]
        if next_due is not None:
            moments.append(self._clock.now() + next_due)
        return min(moments, default=None)

    def _next_due(self) -> UnderWay | None:
        self._hear_of_cancelling()
        now = self._clock.now()
        for one in sorted(self._parked, key=lambda one: one.wakes_at or now):
            if one.ending or one.wakes_at is None or one.wakes_at <= now:
                self._parked.remove(one)
                return one
        return None

    def _claimed(self, queues: Sequence[str] | None) -> UnderWay | None:
        self._make_ready()
        known = self._known()
        served = sorted(depth.queue for depth in self._store.depths())
        if queues is not None:
            served = [queue for queue in queues if queue in served]
        names = [name for name, task in known.items() if self._may_begin(task)]
        if not served or not names:
            return None
        for claimed in self._store.claim(self._own_id(), queues=served, tasks=names, limit=1):
            return self._begun(claimed, known[claimed.task])
        return None

    def _begun(self, claimed: Claimed, task: AnyTask) -> UnderWay:
        attempt = Attempt(claimed, task, 0.0)
        # At once, and not with the outcome: if the worker dies, it had begun.
        self._store.start([claimed.lease])
        attempt.start_told = True
        return begin(attempt, self._store, self._clock, self._runner)

    def _may_begin(self, task: AnyTask) -> bool:
        most = task.options.max_running
        waiting = sum(one.attempt.task.name == task.name for one in self._parked)
        return most is None or waiting < most

    def _make_ready(self) -> None:
        self._decide_doubts()
        self._store.promote()
        while self._store.chores().propagations and self._store.propagate():
            pass

    def _known(self) -> Mapping[str, AnyTask]:
        self._app.import_included()
        tasks = self._app.tasks
        aliases = {alias: task for task in tasks.values() for alias in task.options.aliases}
        return aliases | tasks

    # --- after a turn -----------------------------------------------------------------

    def _after(self, one: UnderWay) -> None:
        if one.outcome is None:
            self._parked.append(one)
            return
        attempt = one.attempt
        attempt.ended = True
        if attempt.slot is not None:
            attempt.slot.end()
        if one.lost:
            return
        if attempt.task.name in self._doomed:
            self._doomed.remove(attempt.task.name)
            self._die()
        elif attempt.in_doubt:
            self._doubts.append(one)
            self._decide_doubts()
        else:
            self._store.settle([one.outcome])

    def _decide_doubts(self) -> None:
        """Look what became of the transactions in which handlers have completed."""
        doubts, self._doubts = self._doubts, []
        for one in doubts:
            match self._store.read_back([one.attempt.claimed.lease]):
                case ["open"]:
                    self._doubts.append(one)
                case ["undone"]:
                    self._store.settle([one.undone()])
                case _:
                    pass  # it committed, or it is somebody else's by now

    # --- life and death ---------------------------------------------------------------

    @property
    def _lease(self) -> timedelta:
        return self._app.settings.worker.lease

    def _own_id(self) -> str:
        if self._id is None:
            self._id = new_id()
            self._store.register(WorkerInfo(id=self._id, name=NAME, tasks=sorted(self._known())))
        return self._id

    def _live(self) -> None:
        """Beat, and recover what workers have left that died a lease ago."""
        if not self._store.heartbeat(self._own_id()).alive:
            self._lose_all()
            self._own_id()
        now = self._clock.now()
        gone = {id_ for id_, died in self._dead.items() if now - died >= self._lease}
        if gone:
            beats = {peer.seen for peer in self._store.workers() if peer.info.id in gone}
            self._store.recover(self._own_id(), dead=beats)
            self._dead = {id_: died for id_, died in self._dead.items() if id_ not in gone}

    def doom(self, task: str) -> None:
        self._doomed.append(task)

    def _die(self) -> None:
        """Stop as a process does that is killed: another one goes on under another id."""
        self._dead[self._own_id()] = self._clock.now()
        self._lose_all()

    def _lose_all(self) -> None:
        self._id = None
        self._doubts.clear()
        for one in self._parked:
            one.lost = True  # what waits is woken up to end; its outcome counts for nothing

    def _hear_of_cancelling(self) -> None:
        if self._parked:
            asked = set(self._store.cancel_requests(self._own_id()))
            for one in self._parked:
                one.attempt.cancelled = one.attempt.cancelled or one.attempt.id in asked

    # --- the end ----------------------------------------------------------------------

    def leaving(self) -> Iterator[UnderWay]:
        """Hand out what still waits, to be carried to its end, and give it back."""
        for one in self._parked:
            one.attempt.released = True
        while self._parked:
            one = self._parked.pop()
            yield one
            self._after(one)

    def close(self) -> None:
        self._runner.close()
        if self._id is not None:
            self._store.unregister(self._id)


def _is_for_the_test(error: BaseException) -> bool:
    return not isinstance(error, Exception | SystemExit | asyncio.CancelledError)
