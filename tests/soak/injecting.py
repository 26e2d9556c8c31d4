"""How each planned fault is brought about, and what ends it."""

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random

import psycopg

from penstock.errors import PenstockError, StoreError
from penstock.model.runs import FINAL_RUN
from penstock.model.states import FINAL
from penstock.testing.processes import WorkerProcess
from penstock.testing.proxy import Proxy
from tests.soak import tasks
from tests.soak.crew import Crew
from tests.soak.planning import CRASH_POINTS, LEASE, Planned
from tests.support.servers import Server
from tests.support.workers import ROOT, Place

FOREIGN_WRITER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("INSERT INTO effects VALUES ('nobody')")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
connection.execute("ROLLBACK")
"""


class Injector:
    """Brings faults about. Those that last are ended on threads of their own.

    Whoever injects them may have to wait for the very worker that stands still.
    """

    def __init__(
        self, place: Place, crew: Crew, server: Server | None, proxy: Proxy | None
    ) -> None:
        self._place = place
        self._crew = crew
        self._server = server
        self._proxy = proxy
        self._timers: list[threading.Timer] = []
        self._foreigners: list[subprocess.Popen[bytes]] = []

    def inject(self, fault: Planned) -> str:
        """Let it happen; return what was done, in a few words."""
        said = getattr(self, f"_{fault.kind}")(fault)
        return f"{fault.kind} {said or ''}".strip()

    def end_everything(self) -> None:
        """Let nothing go wrong any more."""
        for timer in self._timers:
            if timer.is_alive():
                timer.cancel()
                timer.join()
                timer.function()
        for foreigner in self._foreigners:
            foreigner.kill()
            foreigner.wait()
        if self._proxy is not None:
            self._proxy.cut()

    def _later(self, seconds: float, end: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        self._timers = [one for one in self._timers if one.is_alive()]
        self._timers.append(timer)

    # --- workers ----------------------------------------------------------------------

    def _victim(self, fault: Planned) -> WorkerProcess | None:
        settled = self._crew.visible()
        return settled[int(fault.chance * len(settled))] if settled else None

    def _kill(self, fault: Planned) -> None:
        if victim := self._victim(fault):
            victim.kill()

    def _stop_for_long(self, fault: Planned) -> None:
        if victim := self._victim(fault):
            victim.stop()
            self._later(LEASE + fault.lasts, victim.proceed)

    def _stop_for_a_moment(self, fault: Planned) -> None:
        if victim := self._victim(fault):
            victim.stop()
            self._later(LEASE / 3, victim.proceed)

    def _terminate(self, fault: Planned) -> None:
        if victim := self._victim(fault):
            victim.terminate()

    def _terminate_twice(self, fault: Planned) -> None:
        if victim := self._victim(fault):
            victim.terminate()
            self._later(0.1, victim.terminate)

    def _crash_point(self, fault: Planned) -> str:
        """One worker goes, and its successor has a fault within."""
        chosen = CRASH_POINTS[int(fault.chance * len(CRASH_POINTS))]
        point, _, what = chosen.partition(" ")
        if victim := self._victim(fault):
            victim.terminate()
        faulty = self._crew.launch({point: what})
        if what.startswith("stop"):
            # Nobody knows when it stands still; when it does, it goes on later.
            self._later(3 * LEASE, faulty.proceed)
            self._later(6 * LEASE, faulty.proceed)
        return chosen

    # --- people -----------------------------------------------------------------------

    def _pause_queue(self, fault: Planned) -> None:
        queue, store = tasks.QUEUES[int(fault.chance * len(tasks.QUEUES))], tasks.app.store

        def unpause() -> None:
            try:
                store.unpause(queue)
            except StoreError:
                self._later(1.0, unpause)

        with suppress(StoreError):
            store.pause(queue)
        self._later(fault.lasts, unpause)

    def _meddle(self, fault: Planned) -> str:
        """Cancel some and rerun some, as people do, while workers are at it."""
        random, store = Random(fault.chance), tasks.app.store
        found = store.find(limit=300)
        live = [one.id for one in found if one.state not in FINAL]
        ended = [one.id for one in found if one.state in FINAL and one.task in tasks.RERUN]
        try:
            store.cancel(random.sample(live, min(20, len(live))), reason="no more of it")
            store.rerun(random.sample(ended, min(20, len(ended))))
        except PenstockError as error:
            return type(error).__name__  # a key may be taken, and an answer lost
        return ""

    def _meddle_with_runs(self, fault: Planned) -> str:
        """Pause some runs for a while, cancel some and rerun some that failed."""
        random, store = Random(fault.chance), tasks.app.store

        def resume(paused: list[str]) -> None:
            try:
                for one in paused:
                    store.resume_run(one)
            except StoreError:
                self._later(1.0, partial(resume, paused))

        chosen: list[str] = []
        try:
            found = store.find_runs(limit=200)
            live = [one.id for one in found if one.state not in FINAL_RUN]
            ended = [one.id for one in found if one.state in FINAL_RUN]
            chosen = random.sample(live, min(15, len(live)))
            for one in chosen[:5]:
                store.cancel_run(one, reason="no more of it")
            for one in chosen[5:]:
                store.pause_run(one)
            for one in random.sample(ended, min(10, len(ended))):
                store.rerun_run(one)
        except PenstockError as error:
            return type(error).__name__
        finally:
            # Counted from when they have been paused: that may have had to wait for the lock.
            self._later(fault.lasts, partial(resume, chosen[5:]))
        return f"{len(chosen)} live"

    # --- PostgreSQL -------------------------------------------------------------------

    @property
    def _network(self) -> Proxy:
        assert self._proxy is not None
        return self._proxy

    @property
    def _postgres(self) -> Server:
        assert self._server is not None
        return self._server

    def _terminate_backends(self, _: Planned) -> str:
        return str(sum(map(self._postgres.terminate, ("penstock", "penstock listener"))))

    def _cut(self, _: Planned) -> None:
        self._network.cut()

    def _stall(self, fault: Planned) -> None:
        self._network.stall()
        self._later(fault.lasts, self._network.resume)

    def _refuse(self, fault: Planned) -> None:
        self._network.refuse()
        self._later(fault.lasts, self._accept)

    def _accept(self) -> None:
        if self._network._listener is None:
            self._network.accept()

    def _half_open(self, fault: Planned) -> None:
        self._network.leave_half_open()
        # In the end somebody notices: the kernel of one side, or a person.
        self._later(2 * LEASE + fault.lasts, self._network.cut)

    def _swallow_replies(self, fault: Planned) -> None:
        self._network.swallows_replies = True

        def end() -> None:
            self._network.cut()
            self._network.swallows_replies = False

        self._later(fault.lasts / 3, end)

    def _drop_notifications(self, fault: Planned) -> None:
        self._network.drops_notifications = True
        self._later(3 * fault.lasts, lambda: setattr(self._network, "drops_notifications", False))

    def _delay(self, fault: Planned) -> None:
        self._network.delay = 0.1
        self._later(fault.lasts, lambda: setattr(self._network, "delay", 0.0))

    def _restart_fast(self, _: Planned) -> None:
        self._postgres.restart("fast")

    def _crash_server(self, _: Planned) -> None:
        self._postgres.restart("immediate")

    def _hold_transaction(self, fault: Planned) -> None:
        connection = psycopg.connect(self._postgres.url)
        connection.execute("SELECT txid_current()")
        self._later(5 * fault.lasts, connection.close)

    def _lock_tables(self, fault: Planned) -> None:
        table = ("task_outbox", "task_executions")[int(fault.chance * 2)]
        with psycopg.connect(self._postgres.url) as connection, suppress(psycopg.Error):
            connection.execute("SET LOCAL lock_timeout = '2s'")
            connection.execute(f"LOCK TABLE {self._place.schema}.{table} IN EXCLUSIVE MODE")
            # Not for later: whoever feeds the soak would wait for the lock, too.
            time.sleep(min(fault.lasts, 1.0))

    # --- SQLite -----------------------------------------------------------------------

    def _foreign_writer(self, seconds: float) -> subprocess.Popen[bytes]:
        path = self._place.url.removeprefix("sqlite:///")
        foreigner = subprocess.Popen(
            [sys.executable, "-c", FOREIGN_WRITER, path, str(seconds)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        assert foreigner.stdout is not None
        with foreigner.stdout:
            foreigner.stdout.readline()
        self._foreigners.append(foreigner)
        return foreigner

    def _hold_write_lock(self, fault: Planned) -> None:
        self._foreign_writer(LEASE + fault.lasts)

    def _kill_foreign_writer(self, _: Planned) -> None:
        foreigner = self._foreign_writer(60)
        foreigner.kill()
        foreigner.wait()

    def _hold_read_snapshot(self, fault: Planned) -> None:
        """A reader keeps the log from being taken over into the file, so that it grows."""
        path = self._place.url.removeprefix("sqlite:///")
        connection = sqlite3.connect(path, check_same_thread=False)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM effects").fetchone()
        self._later(3 * fault.lasts, connection.close)
