"""Claims tasks for the free slots, and a little stock where tasks are short."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from penstock.engine.attempts import AnyTask, Attempt
from penstock.engine.catalogue import Known
from penstock.engine.hooks import NOBODY, HookSet
from penstock.engine.outages import Outage
from penstock.engine.runner import Runner
from penstock.engine.settler import Settler
from penstock.errors import StoreUnavailable
from penstock.model.executions import Claimed, Lease
from penstock.model.outcomes import Released
from penstock.store.contract import Store

log = logging.getLogger("penstock.worker")

MOST_AT_ONCE = 500
MOST_BESIDE_LIGHT = 50  # the next task of a light queue must not wait for a long claim of others
LIGHT_FOR = 1.0  # seconds for which a queue counts as light after a claim that emptied it
NEGLECTED_EVERY = 0.002
MOST_UNSETTLED = 2_000
STOCK_AGE = 0.1  # what has waited here for so long is better off with another worker
RECONCILE_EVERY = 30.0
LOOK_AGAIN_AFTER = 0.25

T = TypeVar("T")


class Claimer:
    """The only one who claims; it also reconciles, and no claim is under way then."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        settler: Settler,
        *,
        worker_id: Callable[[], str],
        known: Callable[[], Known],
        held: set[Lease],
        poll: float,
        hooks: HookSet = NOBODY,
    ) -> None:
        self._store = store
        self._hooks = hooks
        self._runner = runner
        self._settler = settler
        self._worker_id = worker_id
        self._known = known
        self._held = held
        self._poll = poll
        self._turn = 0
        self._light: dict[str, float] = {}  # queues, and when a claim last took all they had
        self._hinted = False  # somebody has said that there is work, and we have not looked yet
        self._neglected_at = 0.0
        self._look_soon = False
        self._room_was_made = False
        self._wants_quiet = False  # a suspect on its last chance waits for the others to end
        self._wake = threading.Event()
        self._at_work = threading.Lock()  # held by the thread that claims or reconciles
        self._rest_until = 0.0
        self._stop = threading.Event()
        self._may_have_more = False
        self._reconcile_at = time.monotonic() + RECONCILE_EVERY
        self._outage = Outage("claim tasks", hooks)
        self.last_turn = time.monotonic()
        self.last_answer = self.last_turn  # or last look that found no room to ask for
        self._asked = 0
        self._answered = 0
        runner.wants_more = self.more_room

    def wake(self) -> None:
        """There may be work."""
        self._hinted = True
        self._may_have_more = True
        self._wake.set()

    def more_room(self) -> None:
        """A slot is free: worth a look only if the last claim left something behind."""
        self._room_was_made = True  # in this order: a claim that is under way looks here last
        if self._may_have_more:
            self._wake.set()

    def look_again(self) -> int:
        """Ask for a look that begins from now on; `found_nothing_since` answers."""
        self._asked += 1
        self.wake()
        return self._asked

    def found_nothing_since(self, asked: int) -> bool:
        return self._answered >= asked

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def run_until_stopped(self) -> None:
        while not self._stop.is_set():
            # Clear before claiming, never after: a wake-up that lands while we claim
            # must still be set when we go to sleep.
            self._wake.clear()
            try:
                with self._at_work:
                    more = self._look()
            except StoreUnavailable as error:
                self._outage.begins(error)
                self._outage.wait(self._stop)
                continue
            if more:
                continue
            self._outage.ends()
            self._rest()
        self._at_work.acquire()  # for good: whoever was looking has handed over what it claimed

    def look_here(self) -> None:
        """There may be work: look for it on the thread that heard of it.

        Waking the claimer's own would be a tenth of the way from a commit to the handler. That
        one is woken where it is at work, and for all that goes beyond a single look.
        """
        busy = self._runner.stock or self.out_of_reach or self._stop.is_set()
        if busy or not self._at_work.acquire(blocking=False):
            self.wake()
            return
        try:
            self._hinted = True
            if self._look() or self._runner.stock:
                self._wake.set()
        except StoreUnavailable:
            self.wake()  # it meets the outage itself, and knows how to wait
        finally:
            self._at_work.release()

    def _look(self) -> bool:
        """Claim, and if nothing may be left also reconcile; whoever calls is at work alone."""
        self.last_turn = time.monotonic()
        try:
            more = self._fill_free_slots()
            self.last_answer = time.monotonic()
            if not more:
                self._reconcile_when_due()
        except StoreUnavailable:
            self._reconcile_at = 0.0  # a claim whose reply was lost left tasks that nobody runs
            raise
        self._rest_until = time.monotonic() + self._nap()
        return more

    def _rest(self) -> None:
        """Sleep until somebody calls or it is time, which a look on another thread may change."""
        while (left := self._rest_until - time.monotonic()) > 0:
            if self._wake.wait(min(left, LOOK_AGAIN_AFTER)):
                return

    @property
    def out_of_reach(self) -> bool:
        """Whether the database leaves our questions without an answer."""
        return self._outage.under_way

    def _nap(self) -> float:
        if self._runner.stock:
            return NEGLECTED_EVERY if self._hinted else STOCK_AGE
        longest = LOOK_AGAIN_AFTER if self._look_soon else self._poll
        return min(longest, max(0.0, self._reconcile_at - time.monotonic()))

    def _fill_free_slots(self) -> bool:
        """Claim as much as there is room for; True if there may be more and room for it."""
        stock = self._runner.stock_by_queue()
        if stock:
            # By turns with others, the stock of a queue takes so many times as long.
            self._runner.give_back_stock(older_than=STOCK_AGE * len(stock))
        self._room_was_made = False
        most = min(self._most_at_once(), MOST_UNSETTLED - self._settler.backlog)
        free = self._runner.room
        room = min(free, most)
        known = self._known()
        queues = self._queues_by_need(known.queues, stock)
        neglected = room <= 0 < most and self._looks_at_neglected(queues, stock)
        if neglected:
            queues = [queue for queue in queues if queue not in stock]
            room = min(most, self._runner.slots.size)
        if room <= 0:
            self._look_soon = free > 0  # nobody tells us when the settler has caught up
            return False
        asked = self._asked
        self._hinted = False
        self._may_have_more = False  # not after the claims: a wake-up may land meanwhile
        got, more, held_back = 0, False, neglected
        for tasks, most in _in_turn(self._groups(known, room), self._turn):
            limit = min(most, room - got)
            if limit <= 0:
                held_back = True
                continue
            suspects = self._takes_suspects()
            claimed = self._claim(queues, tasks, limit, suspects=suspects)
            if claimed:
                self._note_light(claimed, limit)
                self._hand_over(claimed, known.tasks)
            got += len(claimed)
            # Of suspects there is never more than one in an answer, however many are left.
            more = more or len(claimed) == limit or any(one.suspect for one in claimed)
            held_back = held_back or not suspects
        self._may_have_more = self._may_have_more or more or held_back
        if self._may_have_more and self._room_was_made:
            self._wake.set()
        # Only a look that finds nothing is a thorough one: what was given back at an old place
        # may have been passed over.
        self._look_soon = got > 0
        if got == 0 and not neglected:
            self._answered = asked
        if self._hooks.listen:
            self._hooks.claim_polled(got)
        return more

    def _most_at_once(self) -> int:
        since = time.monotonic() - LIGHT_FOR
        lately = max(self._light.values(), default=since) > since
        return MOST_BESIDE_LIGHT if lately else MOST_AT_ONCE

    def _note_light(self, claimed: Sequence[Claimed], limit: int) -> None:
        """A claim takes all that a queue has before it goes on to the next one."""
        now = time.monotonic()
        self._light.update([(one.queue, now) for one in claimed])
        if len(claimed) == limit:
            self._light.pop(claimed[-1].queue, None)

    def _queues_by_need(self, queues: Sequence[str], stock: Mapping[str, int]) -> list[str]:
        """Those with the least in stock first; equals take turns."""
        self._turn += 1
        queues = _in_turn(queues, self._turn)
        return sorted(queues, key=lambda queue: stock.get(queue, 0)) if stock else queues

    def _looks_at_neglected(self, queues: Sequence[str], stock: Mapping[str, int]) -> bool:
        """Whether to claim for queues that have nothing in stock, although it is full.

        Otherwise their tasks would wait until half the stock of the others is used up. Only
        after a wake-up, and not at each of many: most of them are about the others.
        """
        if not stock or all(queue in stock for queue in queues):
            self._hinted = False
        now = time.monotonic()
        if not self._hinted or now < self._neglected_at:
            return False
        self._neglected_at = now + NEGLECTED_EVERY
        return True

    def _groups(self, known: Known, room: int) -> list[tuple[frozenset[str], int]]:
        """Names of tasks, and how many of them may be claimed.

        Tasks of which fewer may run than there is room for are claimed by themselves; all
        others together, so that they keep their order.
        """
        together = known.unlimited
        alone: list[tuple[frozenset[str], int]] = []
        for task, names, most in known.limited:
            left = most - self._runner.running_of(task)
            if left >= room:
                together |= names
            else:
                alone.append((names, left))
        return [(together, room), *alone] if together else alone

    def _takes_suspects(self) -> bool:
        """Whether to ask for a task that was running when a worker died.

        Such tasks may run beside each other while they have a crash to spare. On its last
        chance a task has no other suspect beside it: what ends it then is its own doing.
        """
        self._wants_quiet = self._wants_quiet and self._runner.runs_suspect
        return self._runner.takes_suspects and not self._wants_quiet

    def _claim(
        self, queues: Sequence[str], tasks: frozenset[str], limit: int, *, suspects: bool
    ) -> list[Claimed]:
        return self._store.claim(
            self._worker_id(), queues=queues, tasks=tasks, limit=limit, suspects=suspects
        )

    def _hand_over(self, claimed: Sequence[Claimed], tasks: Mapping[str, AnyTask]) -> None:
        now = time.monotonic()
        attempts = [Attempt(one, tasks[one.task], now) for one in claimed]
        if suspects := [attempt for attempt in attempts if attempt.claimed.suspect]:
            others = [attempt for attempt in attempts if not attempt.claimed.suspect]
            # Nothing is held before all is known: what a lost reply leaves behind is reconciled.
            attempts = [*self._begun(suspects), *others]
        self._held.update([attempt.claimed.lease for attempt in attempts])
        self._runner.take(attempts)

    def _begun(self, suspects: Sequence[Attempt]) -> Iterator[Attempt]:
        """Those that may begin, and are known to: if one takes the process down, it is charged."""
        for attempt in suspects:
            lease = attempt.claimed.lease
            if attempt.on_last_chance and self._runner.runs_suspect:
                self._wants_quiet = True
                self._settler.put(
                    Released(
                        lease=lease,
                        serial=attempt.claimed.serial,
                        run_id=attempt.claimed.run_id,
                        reason="other suspects run here",
                    )
                )
            elif not self._store.start([lease]):
                attempt.start_told = True
                yield attempt

    def _reconcile_when_due(self) -> None:
        if time.monotonic() < self._reconcile_at:
            return
        self._reconcile_at = time.monotonic() + RECONCILE_EVERY
        lost = self._store.reconcile(self._worker_id(), tuple(self._held))
        # What was settled while we compared is lost to nobody; what is lost is said once.
        for lease in self._held.intersection(lost):
            self._held.discard(lease)
            log.warning("the lease on %s went to another worker", lease.execution_id)


def _in_turn(all_of_them: Sequence[T], turn: int) -> list[T]:
    """The same, but another one comes first each time."""
    first = turn % (len(all_of_them) or 1)
    return [*all_of_them[first:], *all_of_them[:first]]
