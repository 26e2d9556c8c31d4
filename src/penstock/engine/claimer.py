"""Claims tasks for the free slots, and a little stock where tasks are short."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from penstock.engine.attempts import AnyTask, Attempt
from penstock.engine.outages import Outage
from penstock.engine.runner import Runner
from penstock.engine.settler import Settler
from penstock.errors import StoreUnavailable
from penstock.model.executions import Claimed, Lease
from penstock.store.contract import Store

log = logging.getLogger("penstock.worker")

MOST_AT_ONCE = 500
MOST_UNSETTLED = 2_000
STOCK_AGE = 0.1  # what has waited here for so long is better off with another worker
RECONCILE_EVERY = 30.0


class Claimer:
    """The only one who claims; it also reconciles, so that no claim is under way then."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        settler: Settler,
        *,
        worker_id: Callable[[], str],
        queues: Callable[[], Sequence[str]],
        tasks: Callable[[], dict[str, AnyTask]],
        held: set[Lease],
        poll: float,
    ) -> None:
        self._store = store
        self._runner = runner
        self._settler = settler
        self._worker_id = worker_id
        self._queues = queues
        self._tasks = tasks
        self._held = held
        self._poll = poll
        self._turn = 0
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._may_have_more = False
        self._reconcile_at = time.monotonic() + RECONCILE_EVERY
        self._outage = Outage("claim tasks")
        self.last_turn = time.monotonic()
        self.found_nothing = threading.Event()
        runner.wants_more = self.more_room

    def wake(self) -> None:
        """There may be work."""
        self._may_have_more = True
        self._wake.set()

    def more_room(self) -> None:
        """A slot is free: worth a look only if the last claim left something behind."""
        if self._may_have_more:
            self._wake.set()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def run_until_stopped(self) -> None:
        while not self._stop.is_set():
            # Clear before claiming, never after: a wake-up that lands while we claim
            # must still be set when we go to sleep.
            self._wake.clear()
            self.last_turn = time.monotonic()
            try:
                if self._fill_free_slots():
                    continue
                self._reconcile_when_due()
            except StoreUnavailable as error:
                self._outage.begins(error)
                self._reconcile_at = 0.0  # a claim whose reply was lost left tasks that nobody runs
                self._outage.wait(self._stop)
                continue
            self._outage.ends()
            self._wake.wait(self._nap())

    def _nap(self) -> float:
        if self._runner.stock:
            return STOCK_AGE
        return min(self._poll, max(0.0, self._reconcile_at - time.monotonic()))

    def _fill_free_slots(self) -> bool:
        """Claim as much as there is room for; True if there may be more and room for it."""
        if self._runner.stock:
            self._runner.give_back_stock(older_than=STOCK_AGE)
        room = min(self._runner.room, MOST_AT_ONCE, MOST_UNSETTLED - self._settler.backlog)
        if room <= 0:
            return False
        asked, got = 0, 0
        for tasks, limit in self._groups(room):
            asked += limit
            got += self._claim(tasks, limit)
        self._may_have_more = got > 0 and got >= asked
        if got == 0:
            self.found_nothing.set()
        return self._may_have_more

    def _groups(self, room: int) -> list[tuple[list[str], int]]:
        """Tasks that are limited to some running at a time are claimed one by one."""
        known = self._tasks()
        limited = {
            name: task.options.max_running
            for name, task in known.items()
            if task.options.max_running is not None
        }
        free = [name for name in known if name not in limited]
        groups = [(free, room)] if free else []
        for name, most in limited.items():
            left = min(room, most - self._runner.running_of(known[name].name))
            if left > 0:
                groups.append(([name], left))
        return groups

    def _claim(self, tasks: list[str], limit: int) -> int:
        worker_id = self._worker_id()
        claimed = self._store.claim(
            worker_id,
            queues=self._queues_in_turn(),
            tasks=tasks,
            limit=limit,
            suspects=not self._runner.runs_suspect,
        )
        if claimed:
            self.found_nothing.clear()
            self._hand_over(claimed)
        return len(claimed)

    def _queues_in_turn(self) -> list[str]:
        queues = list(self._queues())
        self._turn += 1
        first = self._turn % max(1, len(queues))
        return queues[first:] + queues[:first]

    def _hand_over(self, claimed: Sequence[Claimed]) -> None:
        self._held.update(one.lease for one in claimed)
        known, now = self._tasks(), time.monotonic()
        attempts = [Attempt(one, known[one.task], now) for one in claimed]
        for attempt in attempts:
            if attempt.claimed.suspect:
                # Known before the handler begins: if it takes the process down, it is charged.
                self._store.start([attempt.claimed.lease])
                attempt.start_told = True
        self._runner.take(attempts)

    def _reconcile_when_due(self) -> None:
        if time.monotonic() < self._reconcile_at:
            return
        self._reconcile_at = time.monotonic() + RECONCILE_EVERY
        for lease in self._store.reconcile(self._worker_id(), tuple(self._held)):
            log.warning("the lease on %s went to another worker", lease.execution_id)
