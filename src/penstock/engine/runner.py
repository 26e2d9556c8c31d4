"""Runs what has been claimed, as many at a time as there are slots.

Claimed tasks that have no slot yet wait here for a moment: a little work in stock, so that
short tasks need not wait for the database between one and the next.
"""

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from penstock.engine.attempts import Attempt, CompletionUndone, TimedOut
from penstock.engine.current import current_execution
from penstock.engine.deadlines import Deadlines
from penstock.engine.desk import AttemptDesk
from penstock.engine.forks import current_pid
from penstock.engine.hooks import NOBODY, AttemptBegan, AttemptEnded, HookSet
from penstock.engine.processes import ChildDied, Processes
from penstock.engine.settler import Settler
from penstock.engine.slots import SlotPool
from penstock.engine.stock import Stock
from penstock.engine.threads import Threads
from penstock.errors import StoreUnavailable
from penstock.model.executions import Lease
from penstock.model.outcomes import Completed, Outcome, Released
from penstock.store.contract import Store

log = logging.getLogger("penstock.worker")

STOCK_TIME = 0.05  # seconds of work that may wait here, by how long tasks took lately
MOST_IN_STOCK = 1_000
TELL_AGAIN_AFTER = 0.5
REST_AFTER = 50  # short tasks on the loop
REST = 0.0001
_SMOOTHING = 0.1


class Runner:
    """Everything between a claim and its outcome."""

    def __init__(
        self,
        slots: int,
        *,
        loop: asyncio.AbstractEventLoop,
        settler: Settler,
        store: Store,
        may_have_lost_all: Callable[[], bool],
        has_lost: Callable[[Lease], bool],
        own_loop: bool = True,
        hooks: HookSet = NOBODY,
    ) -> None:
        self._hooks = hooks
        self._pid = current_pid()
        self._store = store
        self.may_have_lost_all = may_have_lost_all
        self.has_lost = has_lost
        self.slots = SlotPool(slots, when_free=self._begin_more_soon)
        # By lease: a task that was taken from us may come back while its old attempt goes on.
        self.running: dict[Lease, Attempt] = {}
        self._stock = Stock()
        # Beside the others: thousands may be waiting here, and each claim asks.
        self._suspects: dict[Lease, Attempt] = {}
        self._lock = threading.RLock()
        self._loop = loop
        self._own_loop = own_loop
        self._loop_thread: int | None = None
        self._will_begin_more = False
        self._settler = settler
        # Made once: every attempt gets them.
        self._desk = self._desk_of
        self._start_was_told = settler.start_was_told
        self._threads = Threads("penstock-task")
        self._processes = Processes()
        self._deadlines = Deadlines()
        self._usual_duration = self._too_long_for_stock
        self._stock_limit = MOST_IN_STOCK  # halved by stock that was no use, grows with the work
        self._begun_since_rest = 0
        self._closing = False
        self.wants_more: Callable[[], None] = lambda: None
        self.taken = 0
        self.runaways = 0  # threads that went on after their timeout

    # --- what the claimer needs to know -----------------------------------------------

    @property
    def room(self) -> int:
        """How many more tasks may be claimed now."""
        with self._lock:
            return self.slots.free + self._stock_target - self._stock.count

    @property
    def _stock_target(self) -> int:
        return min(
            self._stock_limit, int(self.slots.size * STOCK_TIME / max(self._usual_duration, 1e-5))
        )

    @property
    def _too_long_for_stock(self) -> float:
        return max(1.0, 2 * self.slots.size * STOCK_TIME)

    @property
    def stock(self) -> int:
        return self._stock.count

    def stock_by_queue(self) -> dict[str, int]:
        if not self._stock.count:
            return {}
        with self._lock:
            return self._stock.queues

    @property
    def idle(self) -> bool:
        with self._lock:
            return not self._stock and not self.running

    def running_of(self, task: str) -> int:
        with self._lock:
            waiting = sum(attempt.task.name == task for attempt in self._stock)
            return waiting + sum(one.task.name == task for one in tuple(self.running.values()))

    @property
    def runs_suspect(self) -> bool:
        return bool(self._suspects)

    @property
    def takes_suspects(self) -> bool:
        """Whether a suspect could begin at once, beside what runs here."""
        # What is in stock gets the slots that are free, in the loop's next turn at the latest.
        if self.slots.free <= self._stock.count:
            return False
        return not any(attempt.on_last_chance for attempt in tuple(self._suspects.values()))

    # --- beginning --------------------------------------------------------------------

    def take(self, attempts: Sequence[Attempt]) -> None:
        """Run these as slots become free."""
        with self._lock:
            self.taken += len(attempts)
            self._stock.add(attempts)
            for one in attempts:
                if one.claimed.suspect:
                    self._suspects[one.claimed.lease] = one
        self._begin_more()

    def _begin_more_soon(self) -> None:
        """A slot is free. On the loop many become free in one turn: all are filled at once."""
        if threading.get_ident() != self._loop_thread:
            self._begin_more()
        elif not self._will_begin_more:
            self._will_begin_more = True
            self._loop.call_soon(self._begin_more)

    def _begin_more(self) -> None:
        self._will_begin_more = False
        for_loop: list[Attempt] = []
        with self._lock:
            slots = self.slots.take(len(self._stock))
            try:
                while slots:
                    attempt = self._stock.pop()
                    attempt.slot = slots.pop()
                    self.running[attempt.claimed.lease] = attempt
                    if attempt.task.options.executor == "loop":
                        for_loop.append(attempt)
                    else:
                        self._threads.run(partial(self._run_on_thread, attempt))
            except BaseException:  # no thread could be started, say
                self.slots.put_back(slots)
                raise
            hungry = len(self._stock) <= self._stock_target // 2
        if for_loop:
            if threading.get_ident() == self._loop_thread:
                self._begin_on_loop(for_loop)
            else:
                # One hop for all of them: a hop costs more than a whole claim does per task.
                self._loop.call_soon_threadsafe(self._begin_on_loop, for_loop)
        if hungry and not self._closing:
            self.wants_more()

    # --- on the loop ------------------------------------------------------------------

    def _begin_on_loop(self, attempts: Sequence[Attempt]) -> None:
        self._loop_thread = threading.get_ident()
        if self._stock:
            self._let_others_work(len(attempts))
        for attempt in attempts:
            # A context of its own: it may be the end of another task that brings us here.
            task = self._loop.create_task(
                self._run_on_loop(attempt), name=attempt.task.name, context=contextvars.Context()
            )
            # So the attempt keeps its task, which the loop does not.
            attempt.interrupt = partial(self._cancel_on_loop, task)
            if attempt.released or attempt.cancelled:
                attempt.interrupt()  # asked for before there was anything to stop

    def _let_others_work(self, begun: int) -> None:
        """Leave the interpreter to the claimer and the settler for a moment, now and then.

        They need its lock between two statements. The loop gives it away in every turn, and has it
        back before anybody has woken up; who waits begins anew each time, so that no switch
        interval ever ends (ADR 0019).
        """
        self._begun_since_rest += begun
        if self._begun_since_rest >= REST_AFTER:
            self._begun_since_rest = 0
            time.sleep(REST)

    def _cancel_on_loop(self, task: asyncio.Task[None]) -> None:
        self._loop.call_soon_threadsafe(task.cancel)

    async def _run_on_loop(self, attempt: Attempt) -> None:
        current_execution.set(attempt.id)
        self._begin(attempt)
        timeout = attempt.task.options.timeout
        try:
            args, kwargs = attempt.arguments()
            if timeout is None:
                result = await attempt.task.function(*args, **kwargs)
            else:
                result = await _within(attempt, timeout, attempt.task.function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - also SystemExit: a task cannot stop the worker
            # Stopped from outside, a handler may raise anything while it cleans up.
            stopped = attempt.released or attempt.cancelled or self._loop_ends(error)
            outcome = attempt.interrupted() if stopped else attempt.failed(error)
        else:
            outcome = attempt.completed(result)
        self._end(attempt, outcome)

    def _loop_ends(self, error: BaseException) -> bool:
        """Whether somebody's own loop comes to its end, which cancels all that runs on it."""
        if self._own_loop or not isinstance(error, asyncio.CancelledError):
            return False
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0

    # --- on threads and in processes --------------------------------------------------

    def _run_on_thread(self, attempt: Attempt) -> None:
        contextvars.Context().run(self._run_plainly, attempt)

    def _run_plainly(self, attempt: Attempt) -> None:
        current_execution.set(attempt.id)
        self._begin(attempt)
        options = attempt.task.options
        self.watch_deadline(attempt)
        try:
            if options.executor == "process":
                outcome = self._run_in_process(attempt)
            else:
                args, kwargs = attempt.arguments()
                outcome = attempt.completed(attempt.task.function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - also SystemExit: a task cannot stop the worker
            outcome = attempt.failed(error)
        self._end(attempt, outcome)

    def _run_in_process(self, attempt: Attempt) -> Outcome:
        # Its handle may complete from over there, where nobody knows when it began.
        if attempt.task.signature.takes_handle and not attempt.start_is_known():
            self._tell_start(attempt)
        if attempt.released or attempt.cancelled:
            return attempt.interrupted()
        child = self._processes.take()
        with self._lock:
            attempt.interrupt = child.kill
            if attempt.ended or attempt.released or attempt.cancelled:
                child.kill()  # asked for while it was being made
        try:
            answer = child.run(attempt.task, attempt.claimed)
        except ChildDied as error:
            attempt.in_doubt = attempt.task.signature.takes_handle
            stopped = attempt.released or attempt.cancelled
            return attempt.interrupted() if stopped else attempt.failed(error)
        finally:
            with self._lock:
                attempt.interrupt = None  # from here on the child may be another task's
            self._processes.put_back(child)
        attempt.in_doubt = answer.in_doubt
        if answer.error is not None:
            return attempt.failed(answer.error, answer.stored)
        return attempt.completed_with(answer.result, answer.writes)

    def _tell_start(self, attempt: Attempt) -> None:
        """Wait until the database has heard of it, or until somebody stops the attempt."""
        while not (attempt.start_told or attempt.released or attempt.cancelled):
            try:
                self._store.start([attempt.claimed.lease], started_at=[attempt.started_at])
            except StoreUnavailable as error:
                log.debug("cannot tell the start of %s yet: %s", attempt.id, error)
                attempt.stirred.wait(TELL_AGAIN_AFTER)
            else:
                attempt.start_told = True

    def watch_deadline(self, attempt: Attempt) -> None:
        """End it when its time is up; to be called again whenever its clock has stood still."""
        self._stop_watching(attempt)
        if attempt.deadline is not None and attempt.limit is None:
            attempt.watched = self._deadlines.call_at(
                attempt.deadline, lambda: self._time_is_up(attempt)
            )

    def _stop_watching(self, attempt: Attempt) -> None:
        if attempt.watched is not None:
            self._deadlines.forget(attempt.watched)
            attempt.watched = None

    def _time_is_up(self, attempt: Attempt) -> None:
        timeout = attempt.task.options.timeout
        deadline = attempt.deadline
        if attempt.ended or timeout is None or deadline is None or deadline > time.monotonic():
            return  # it waits, or has waited: then its new deadline is watched
        self._end(attempt, attempt.failed(TimedOut(attempt.task.name, timeout)))
        if attempt.task.options.executor == "process":
            self._stop(attempt)
        else:
            self.runaways += 1
            log.warning(
                "%s %s went past its timeout; its thread cannot be stopped and goes on, "
                "but nothing that it does counts any more",
                attempt.task.name,
                attempt.id,
            )

    # --- beginning and end ------------------------------------------------------------

    def _begin(self, attempt: Attempt) -> None:
        attempt.begin()
        attempt.desk = self._desk
        if not attempt.start_told:
            attempt.start_was_told = self._start_was_told
            self._settler.note_start(attempt.claimed.lease, attempt.begun_at, attempt.started_at)
        if self._hooks.listen:
            self._hooks.attempt_began(AttemptBegan(attempt.claimed, attempt.task.name))

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        if current_pid() != self._pid:
            os._exit(0)  # a copy that the task has forked: it has none of our threads
        with self._lock:
            if attempt.ended:
                return  # its time was up before it came to an end by itself
            attempt.ended = True
        if attempt.watched is not None:
            self._stop_watching(attempt)
        if attempt.begun_at:  # or it waited behind what blocks the loop until the worker ended
            took = time.monotonic() - attempt.begun_at
            if self._stock_limit < MOST_IN_STOCK:
                self._stock_limit += 1
            self._usual_duration += _SMOOTHING * (took - self._usual_duration)
            if self._hooks.listen:
                self._tell_end(attempt, outcome, took)
        if attempt.in_doubt:
            self._settler.put_in_doubt(attempt.claimed.lease, partial(_if_undone, attempt, outcome))
        else:
            self._settler.put(outcome)
        with self._lock:
            # Not before the settler has it: nothing may look idle in between.
            self.running.pop(attempt.claimed.lease, None)
            if self._suspects:
                self._suspects.pop(attempt.claimed.lease, None)
        if attempt.slot is not None:
            attempt.slot.end()

    def _tell_end(self, attempt: Attempt, outcome: Outcome, took: float) -> None:
        self._hooks.attempt_ended(
            AttemptEnded(
                claimed=attempt.claimed,
                task=attempt.task.name,
                outcome=outcome,
                took=max(0.0, took - attempt.deferred_for),
                waited=attempt.waited,
            )
        )

    def _desk_of(self, attempt: Attempt) -> AttemptDesk:
        return AttemptDesk(attempt, self._store, self._settler, self)

    @property
    def stopping(self) -> bool:
        return self._closing

    # --- stopping ---------------------------------------------------------------------

    def cancel(self, execution_ids: Sequence[str]) -> None:
        """Ask these to stop, those that can be stopped from outside at once."""
        asked = set(execution_ids)
        for attempt in tuple(self.running.values()):
            if attempt.id in asked and not attempt.cancelled:
                attempt.cancelled = True
                self._stop(attempt)

    def give_back_stock(self, *, older_than: float = 0.0) -> None:
        """Release what has been claimed and has not begun, for others to take."""
        before = time.monotonic() - older_than
        with self._lock:
            given_back = self._stock.take_received_until(before)
            if given_back:
                # No slot became free meanwhile: without this we would claim them again at once,
                # and give them back again, for as long as these tasks run.
                self._usual_duration = max(self._usual_duration, self._too_long_for_stock)
                self._stock_limit //= 2
        for attempt in given_back:
            claimed = attempt.claimed
            self._suspects.pop(claimed.lease, None)
            self._settler.put(
                Released(
                    lease=claimed.lease,
                    serial=claimed.serial,
                    run_id=claimed.run_id,
                    reason="no slot was free",
                )
            )

    def drop_stock(self) -> None:
        """Forget what has not begun: others have taken it back."""
        with self._lock:
            for attempt in self._stock:
                self._suspects.pop(attempt.claimed.lease, None)
            self._stock.clear()

    def begin_nothing_more(self) -> None:
        """From now on nothing new begins."""
        self._closing = True
        self.give_back_stock()

    def interrupt(self) -> None:
        """Release what still runs; threads go on until they end by themselves."""
        for attempt in tuple(self.running.values()):
            attempt.released = True
            self._stop(attempt)

    def end_deferrals(self) -> None:
        """Release at once what only waits."""
        for attempt in tuple(self.running.values()):
            if attempt.deferred:
                attempt.released = True
                self._stop(attempt)

    def _stop(self, attempt: Attempt) -> None:
        with self._lock:
            attempt.stop()

    def release_rest(self) -> None:
        """Give back what cannot be stopped: for a process that is about to end."""
        for attempt in tuple(self.running.values()):
            self._end(attempt, attempt.interrupted())

    def close(self) -> None:
        self._threads.close()
        self._processes.close()
        self._deadlines.close()


def _if_undone(attempt: Attempt, outcome: Outcome) -> Outcome:
    """What is to be settled if the transaction with the completion did not commit."""
    if isinstance(outcome, Completed):
        return attempt.failed(CompletionUndone(attempt.task.name))
    return outcome


async def _within(attempt: Attempt, most: timedelta, running: object) -> object:
    limit = attempt.limit = asyncio.timeout(most.total_seconds())
    try:
        async with limit:
            return await running  # type: ignore[misc]
    except TimeoutError:
        if limit.expired():
            raise TimedOut(attempt.task.name, most) from None
        raise
