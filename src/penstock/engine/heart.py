"""The heartbeat: says that this worker lives, hears who does not, and watches the other threads.

A thread of its own that never dies of an exception: a handler that blocks the loop, or a
slow settlement, must not make a living worker look dead.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from penstock.engine.hooks import NOBODY, HookSet
from penstock.engine.identity import provably_gone
from penstock.engine.observer import Observer
from penstock.engine.outages import Outage
from penstock.errors import StoreError
from penstock.model.workers import Beat, Peer, Pulse
from penstock.store.contract import Store

log = logging.getLogger("penstock.worker")

LOOK_EVERY = 0.5  # at processes on this machine: the kernel is asked, not the database


class Listener(Protocol):
    """Who wants to know what a heartbeat has shown."""

    def declared_dead(self) -> None: ...
    def cancel(self, execution_ids: Sequence[str]) -> None: ...
    def recover(self, dead: Collection[Beat]) -> None: ...
    def check_threads(self) -> None: ...


class Heart:
    """Beats every `every` seconds, until it is stopped."""

    def __init__(
        self,
        store: Store,
        listener: Listener,
        *,
        worker_id: Callable[[], str],
        every: float,
        lease: float,
        same_host: bool = True,
        hooks: HookSet = NOBODY,
    ) -> None:
        self._store = store
        self._listener = listener
        self._worker_id = worker_id
        self._every = every
        self._lease = lease
        self._same_host = same_host
        self._observer = Observer(lease, every)
        self._peers: tuple[Peer, ...] = ()
        self._reported: set[str] = set()
        self._outage = Outage("send heartbeats", hooks)
        self._stop = threading.Event()
        self._last_sent = time.monotonic()
        self._beating_since: float | None = None

    @property
    def lease_lost(self) -> bool:
        """Whether others may think us dead by now: no beat sent within a lease has arrived."""
        return time.monotonic() - self._last_sent > self._lease

    @property
    def beating_for(self) -> float:
        """For how many seconds every beat has arrived; 0 once one has not, or is long overdue."""
        since = self._beating_since
        return 0.0 if since is None or self.lease_lost else time.monotonic() - since

    def run_until_stopped(self) -> None:
        next_beat = time.monotonic()
        while not self._stop.is_set():
            try:
                if time.monotonic() >= next_beat or self._sees_a_death():
                    next_beat = time.monotonic() + self._every
                    self._beat()
                self._listener.check_threads()
            except Exception:
                log.exception("the heart stumbled and goes on")
            self._stop.wait(max(0.0, min(LOOK_EVERY, next_beat - time.monotonic())))

    def stop(self) -> None:
        self._stop.set()

    def _beat(self) -> None:
        sent = time.monotonic()
        try:
            pulse = self._store.heartbeat(self._worker_id())
        except StoreError as error:
            self._beating_since = None
            self._outage.begins(error)
            self._observer.could_not_look()
            return
        self._outage.ends()
        if self._beating_since is None:
            self._beating_since = sent
        if not pulse.alive:
            self._listener.declared_dead()
            return
        self._last_sent = sent
        self._hear(pulse)

    def _hear(self, pulse: Pulse) -> None:
        self._peers = pulse.peers
        if pulse.cancel_requested:
            self._listener.cancel(pulse.cancel_requested)
        gone = {peer.seen for peer in pulse.peers if self._is_gone(peer)}
        self._reported = {beat.worker_id for beat in gone}
        if dead := gone.union(self._observer.saw(pulse.peers)):
            self._listener.recover(dead)

    def _sees_a_death(self) -> bool:
        """Whether a process has gone that was there at our last beat.

        It may have beaten since, and only its very last beat declares it dead: the next pulse
        shows that one.
        """
        return any(
            peer.info.id not in self._reported and self._is_gone(peer) for peer in self._peers
        )

    def _is_gone(self, peer: Peer) -> bool:
        return self._same_host and provably_gone(peer.info.identity)
