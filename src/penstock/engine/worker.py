"""A worker: claims tasks, runs them, settles them, and looks after the work of dead ones.

Plain threads around one event loop; the store is synchronous. Each part is a file of its
own beside this one; here they are put together, started, watched and stopped.
"""

import asyncio
import atexit
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

import msgspec

from penstock.engine.attempts import AnyTask
from penstock.engine.awaiting import working_loops
from penstock.engine.catalogue import Catalogue
from penstock.engine.claimer import Claimer
from penstock.engine.forks import current_pid
from penstock.engine.heart import Heart
from penstock.engine.hooks import NOBODY, HookSet
from penstock.engine.identity import own_identity
from penstock.engine.maintenance import Maintenance
from penstock.engine.retention import Retention, Sweeper
from penstock.engine.runner import Runner
from penstock.engine.settler import Settler
from penstock.engine.vitals import Vitals
from penstock.errors import StoreError, StoreUnavailable
from penstock.model.durations import format_duration
from penstock.model.executions import Lease
from penstock.model.ids import new_id
from penstock.model.workers import Beat, WorkerInfo
from penstock.store.contract import Store

log = logging.getLogger("penstock.worker")

STUCK_AFTER = 180.0  # longer than any statement may take, and its repetition
EXIT_STUCK = 70
LOOP_PATIENCE = 0.1  # a handler that blocks the loop must not keep the process
LISTEN_FOR = 0.25
IDLE_LOOK_EVERY = 0.002
CANCEL_LOOK_EVERY = 0.1  # where every change of the file is a hint


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works; the defaults are those of the settings."""

    slots: int = 10
    queues: Sequence[str] = ()  # empty: those of the tasks it knows
    heartbeat: timedelta = timedelta(seconds=3)
    lease: timedelta = timedelta(seconds=15)
    grace: timedelta = timedelta(seconds=30)
    poll: timedelta = timedelta(seconds=30)
    same_host: bool = True  # whether processes of this machine are believed to be gone at once
    owns_process: bool = False  # a command of its own: it may end the process
    metrics: str = ""  # the address where somebody can ask how it is


class Worker:
    """One worker of this process. It is started once and stopped once."""

    def __init__(
        self,
        store: Store,
        tasks: Callable[[], Mapping[str, AnyTask]],
        options: WorkerOptions,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        retention: Retention | None = None,
        hooks: HookSet = NOBODY,
    ) -> None:
        self._store = store
        self._hooks = hooks
        self._catalogue = Catalogue(tasks, options.queues)
        self._options = options
        self._own_loop = loop is None
        self._loop = loop or asyncio.new_event_loop()
        self.id = new_id()
        self._held: set[Lease] = set()
        self._next_cancel_look = 0.0
        self._cancel_hinted = False
        self._stopping = threading.Event()
        self._watching = False  # whether a part that has ended is a fault
        self._was_announced = False
        self._given_up = False
        self._pid = current_pid()
        self._leaving = threading.Lock()
        self._has_left = False
        self._threads: dict[str, threading.Thread] = {}
        self._settler = Settler(
            store,
            when_settled=self._let_go,
            when_scheduled=self._look_for_due,
            when_ready=self._look_for_ready,
            hooks=hooks,
        )
        self._runner = Runner(
            options.slots,
            loop=self._loop,
            own_loop=self._own_loop,
            settler=self._settler,
            store=store,
            may_have_lost_all=lambda: self._heart.lease_lost,
            has_lost=lambda lease: lease.worker_id != self.id,
            hooks=hooks,
        )
        self._claimer = Claimer(
            store,
            self._runner,
            self._settler,
            worker_id=lambda: self.id,
            known=self._catalogue.look,
            held=self._held,
            poll=options.poll.total_seconds(),
            hooks=hooks,
        )
        self._maintenance = Maintenance(
            store,
            worker_id=lambda: self.id,
            every=options.poll.total_seconds(),
            when_ready=self._claimer.wake,
            hooks=hooks,
        )
        self._sweeper: Sweeper | None = None
        if retention is not None:
            self._sweeper = Sweeper(store, retention, worker_id=lambda: self.id)
        self._heart = Heart(
            store,
            self,
            worker_id=lambda: self.id,
            every=options.heartbeat.total_seconds(),
            lease=options.lease.total_seconds(),
            same_host=options.same_host,
            hooks=hooks,
        )
        self._distributor = store.distributor(self.queues)

    # --- what it works on -------------------------------------------------------------

    def queues(self) -> list[str]:
        """The queues it was given, or those of the tasks that it knows."""
        return list(self._catalogue.look().queues)

    # --- life -------------------------------------------------------------------------

    def start(self) -> None:
        """Register and begin to work, on threads of its own."""
        try:
            self._register()
            self._begin()
            self._was_announced = True
            self._hooks.worker_started(self)
        except BaseException as error:
            if self._threads or not isinstance(error, Exception):
                # Ctrl-C, say: nobody else knows that some of it is at work.
                self.stop(grace=timedelta(0))
            else:
                self._distributor.close()
                if self._own_loop:
                    self._loop.close()
            raise

    def _begin(self) -> None:
        if self._own_loop:
            self._spawn("loop", self._loop.run_forever)
        working_loops.append(self._loop)
        self._spawn("settler", self._settler.run_until_stopped)
        self._spawn("heart", self._heart.run_until_stopped)
        self._spawn("claimer", self._claimer.run_until_stopped)
        self._spawn("maintenance", self._maintenance.run_until_stopped)
        if self._sweeper is not None:
            self._spawn("sweeper", self._sweeper.run_until_stopped)
        self._spawn("wakeups", self._pass_on_wake_ups)
        self._watching = True

    def _register(self) -> None:
        known = self._catalogue.look()
        self._store.register(
            WorkerInfo(
                id=self.id,
                name=f"{socket.gethostname()}:{os.getpid()}",
                host=socket.gethostname(),
                identity=own_identity(),
                queues=list(known.queues),
                tasks=sorted(known.tasks),
                slots=self._options.slots,
                max_running={
                    name: most
                    for name, task in known.tasks.items()
                    if (most := task.options.max_running) is not None
                },
                metrics=self._options.metrics,
            )
        )

    def _spawn(self, part: str, run: Callable[[], object]) -> None:
        def guarded() -> None:
            try:
                run()
            except BaseException as error:
                log.critical("the %s of worker %s died: %s", part, self.id, error, exc_info=True)

        thread = threading.Thread(target=guarded, name=f"penstock-{part}", daemon=True)
        self._threads[part] = thread
        thread.start()

    def _pass_on_wake_ups(self) -> None:
        while not self._stopping.is_set():
            hint = self._distributor.wait_for_work(
                CANCEL_LOOK_EVERY if self._cancel_hinted else LISTEN_FOR
            )
            if hint.ready:
                self._claimer.look_here()
            self._cancel_hinted = self._cancel_hinted or hint.cancel
            if self._cancel_hinted:
                self._look_for_cancel_requests()
            if hint.waiting:
                self._maintenance.look_soon()
            elif hint.scheduled:
                self._maintenance.wake()

    def _look_for_cancel_requests(self) -> None:
        """At once, where the wake-up says so; the heart would hear of them with its next beat."""
        now = time.monotonic()
        if now < self._next_cancel_look:
            return  # a hint is kept until the next look: the request may have come after the last
        if self._claimer.out_of_reach:
            return  # the hint is kept for the end of the outage
        self._cancel_hinted = False
        if not self._runner.running:
            return
        self._next_cancel_look = now + CANCEL_LOOK_EVERY
        try:
            self._runner.cancel(self._store.cancel_requests(self.id))
        except StoreError as error:
            log.debug("cannot look for cancel requests: %s", error)

    def vitals(self) -> Vitals:
        """How this worker is now, without a question to the database."""
        runner, claimer = self._runner, self._claimer
        return Vitals(
            worker_id=self.id,
            slots=runner.slots.size,
            slots_free=runner.slots.free,
            running=len(runner.running),
            in_stock=runner.stock,
            unsettled=self._settler.backlog,
            runaways=runner.runaways,
            since_poll=time.monotonic() - claimer.last_answer,
            poll=self._options.poll.total_seconds(),
            out_of_reach=claimer.out_of_reach,
            lease_lost=self._heart.lease_lost,
            beating_for=self._heart.beating_for,
            stopping=runner.stopping,
            given_up=self._given_up,
        )

    # --- what the heart reports -------------------------------------------------------

    def declared_dead(self) -> None:
        """Others have taken our work: go on under a new name, and start with nothing."""
        log.warning(
            "worker %s was declared dead while it was stopped or out of reach; what it ran "
            "belongs to others now, and it goes on under a new id",
            self.id,
        )
        self._runner.drop_stock()
        self._held.clear()
        self.id = new_id()
        self._register()
        self._claimer.wake()

    def cancel(self, execution_ids: Sequence[str]) -> None:
        self._runner.cancel(execution_ids)

    def recover(self, dead: Collection[Beat]) -> None:
        self._maintenance.recover(dead)

    def check_threads(self) -> None:
        """End this worker when a part of it is dead or stuck: others recover its work."""
        if not self._watching:
            return
        dead = [part for part, thread in self._threads.items() if not thread.is_alive()]
        poll = self._options.poll.total_seconds()
        quiet_for = {
            "claimer": time.monotonic() - self._claimer.last_turn - poll,
            "settler": self._settler.unanswered_for,
        }
        late = [part for part, seconds in quiet_for.items() if seconds > STUCK_AFTER]
        if dead or late:
            self._end_badly(f"its {' and '.join(dead or late)} {'died' if dead else 'hangs'}")

    def _end_badly(self, why: str) -> None:
        log.critical("worker %s ends itself because %s; others recover its work", self.id, why)
        if self._options.owns_process:
            logging.shutdown()
            os._exit(EXIT_STUCK)
        # In somebody else's process we may only leave: without a heartbeat we count as dead.
        self._watching = False
        self._given_up = True
        self._stopping.set()
        self._heart.stop()
        self._claimer.stop()
        self._stop_maintenance()

    def _stop_maintenance(self) -> None:
        self._maintenance.stop()
        if self._sweeper is not None:
            self._sweeper.stop()

    def _look_for_ready(self) -> None:
        self._claimer.wake()

    def _look_for_due(self) -> None:
        self._maintenance.wake()

    def _let_go(self, leases: Sequence[Lease]) -> None:
        self._held.difference_update(leases)

    # --- the end ----------------------------------------------------------------------

    def wait_until_idle(self) -> None:
        """Return when nothing is due any more and nothing runs here."""
        pause = IDLE_LOOK_EVERY
        while not self._stopping.wait(pause):
            try:
                if self._is_idle():
                    return
                pause = IDLE_LOOK_EVERY
            except StoreUnavailable as error:
                log.debug("cannot see whether anything is due: %s", error)
                pause = LISTEN_FOR

    def _is_idle(self) -> bool:
        taken = self._runner.taken
        if not (self._runner.idle and self._settler.idle):
            return False
        self._maintenance.finish_up()
        # What has just been settled may have released others: ask once more.
        asked = self._claimer.look_again()
        while not self._claimer.found_nothing_since(asked):
            if self._stopping.wait(IDLE_LOOK_EVERY) or not self._runner.idle:
                return False
        return self._runner.taken == taken

    def stop(self, *, grace: timedelta | None = None, hurry: threading.Event | None = None) -> None:
        """Stop claiming, let tasks finish for `grace`, release the rest, settle all, and leave.

        A task on a thread cannot be stopped. In a process of our own it is released as the
        process ends; elsewhere it goes on, and is settled when it ends, or released if the
        process ends before.

        Who was interrupted in here may call it again.
        """
        self._watching = False
        self._settler.hurry()
        self._claimer.stop()
        self._join("claimer")
        self._runner.begin_nothing_more()
        patience = self._options.grace if grace is None else grace
        if running := sum(not one.deferred for one in tuple(self._runner.running.values())):
            log.info(
                "stopping: %d running, with %s to finish%s",
                running,
                format_duration(patience),
                "" if hurry is None else "; a second signal gives them back at once",
            )
        self._runner.end_deferrals()
        self._wait_for_tasks(patience, hurry)
        left = len(self._runner.running)
        self._runner.interrupt()
        self._wait_for_tasks(timedelta(seconds=1), hurry=None, only_interruptible=True)
        kept = 0 if self._options.owns_process else len(self._runner.running)
        if left > kept:
            log.warning("without time to finish, given back to run again: %d", left - kept)
        if kept:
            log.warning(
                "%d still running on threads that cannot be stopped; they keep their leases until "
                "they end, and are given back if this program ends before",
                kept,
            )
            atexit.register(self._leave_at_exit)
            threading.Thread(target=self._leave_when_done, daemon=True).start()
            return
        self._leave()

    def _wait_for_tasks(
        self,
        grace: timedelta,
        hurry: threading.Event | None,
        *,
        only_interruptible: bool = False,
    ) -> None:
        deadline = time.monotonic() + grace.total_seconds()
        pause = hurry or threading.Event()
        while time.monotonic() < deadline and not pause.wait(0.01):
            left = tuple(self._runner.running.values())
            if only_interruptible:
                left = tuple(attempt for attempt in left if attempt.interrupt is not None)
            if not left:
                return

    def _leave_when_done(self) -> None:
        while self._runner.running:
            time.sleep(0.05)
        self._leave()

    def _leave_at_exit(self) -> None:
        if current_pid() == self._pid:  # and not in a copy that somebody has forked
            self._leave()

    def _leave(self) -> None:
        with self._leaving:
            if not self._has_left:
                self._do_leave()
                self._has_left = True
        atexit.unregister(self._leave_at_exit)

    def _do_leave(self) -> None:
        if self._loop in working_loops:
            working_loops.remove(self._loop)
        self._stopping.set()
        self._stop_maintenance()
        self._heart.stop()
        for part in ("maintenance", "sweeper", "heart", "wakeups"):
            self._join(part)
        self._distributor.close()
        if self._own_loop and not self._loop.is_closed():
            self._end_loop()
        # What still runs is given back last of all, as the process ends: on a thread it hardly
        # overlaps its successor then.
        self._runner.release_rest()
        self._settler.stop()
        self._join("settler", self._options.lease.total_seconds())
        self._runner.close()
        try:
            self._store.unregister(self.id)
        except StoreError as error:
            log.warning("worker %s could not say goodbye: %s", self.id, error)
        if self._was_announced:
            self._hooks.worker_stopped(self)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        if not self._join("loop", LOOP_PATIENCE):
            self._loop.close()

    def _join(self, part: str, timeout: float | None = None) -> bool:
        """Wait until a part has ended, if it has begun; return whether it goes on."""
        thread = self._threads.get(part)
        if thread is None or thread.ident is None:
            return False
        thread.join(timeout)
        return thread.is_alive()


@contextmanager
def working(worker: Worker) -> Iterator[Worker]:
    """Work in the background of this block."""
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()
