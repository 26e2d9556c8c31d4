"""Wake-ups on SQLite: an event inside this process, the file's own version between processes.

`PRAGMA data_version` tells whether another connection has committed, without reading a
row. It is asked for every few milliseconds while something happens, less often otherwise.
"""

import sqlite3
import threading
import time

from penstock.model.wakeups import WakeUp
from penstock.store.sqlite.connecting import open_reader
from penstock.store.sqlite.sharing import SharedFile

BUSY_LOOK = 0.004
IDLE_LOOK = 0.03
# A pause grows with the time since the last change. Every heartbeat is a change too: with a
# whole busy second after each, an idle worker would be busy for a third of its life.
SHARE_OF_QUIET = 0.1


class SqliteDistributor:
    """Watches one file."""

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._told = threading.Event()
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None
        self._changed_at = time.monotonic()
        file.listeners.add(self._told)

    def wait_for_work(self, timeout: float) -> WakeUp:
        deadline = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            if now >= deadline:
                return WakeUp.NOTHING
            quiet_for = now - self._changed_at
            look = min(max(BUSY_LOOK, SHARE_OF_QUIET * quiet_for), IDLE_LOOK)
            left = deadline - now
            if self._told.wait(left if self._file.in_memory else min(look, left)):
                self._told.clear()
                return WakeUp.ANYTHING
            if not self._file.in_memory and self._file_has_changed():
                self._changed_at = time.monotonic()
                return WakeUp.ANYTHING

    def close(self) -> None:
        self._file.listeners.discard(self._told)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _file_has_changed(self) -> bool:
        try:
            if self._connection is None:
                self._connection = open_reader(self._file.path, busy_timeout=1.0)
            ((version,),) = self._connection.execute("PRAGMA data_version")
        except sqlite3.Error:
            # The file may be out of reach for a while; a look costs nothing.
            self._connection = None
            return True
        before, self._version = self._version, int(version)
        return before != self._version
