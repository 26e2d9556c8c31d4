"""Wake-ups on SQLite: a word inside this process, the file's own version between processes.

`PRAGMA data_version` tells whether another connection has committed, without reading a
row. It is asked for every few milliseconds while something happens, less often otherwise, on
the connection of the writer: what this process has written itself is no news to it.
"""

import sqlite3
import time
from queue import Empty, SimpleQueue

from penstock.model.wakeups import ANYTHING, NOTHING, WakeUp
from penstock.store.sqlite.sharing import SharedFile

BUSY_LOOK = 0.004
IDLE_LOOK = 0.05
# A pause grows with the time since the last change. Every heartbeat of another worker is a change
# too: with a whole busy second after each, an idle one would be busy for a third of its life.
SHARE_OF_QUIET = 0.1
LONGEST_UNKNOWN = 0.05  # while we write without a pause; then a look is worth its time


class SqliteDistributor:
    """Watches one file."""

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._told: SimpleQueue[None] = SimpleQueue()
        self._version: tuple[int, int] | None = None
        self._known_at = self._changed_at = time.monotonic()
        file.listeners.add(self._told)

    def wait_for_work(self, timeout: float) -> WakeUp:
        deadline = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            if now >= deadline:
                return NOTHING
            quiet_for = now - self._changed_at
            look = min(max(BUSY_LOOK, SHARE_OF_QUIET * quiet_for), IDLE_LOOK)
            left = deadline - now
            if self._is_told_within(left if self._file.in_memory else min(look, left)):
                self._changed_at = time.monotonic()
                return ANYTHING
            if not self._file.in_memory and self._file_has_changed():
                self._changed_at = time.monotonic()
                return ANYTHING

    def close(self) -> None:
        self._file.listeners.discard(self._told)

    def _is_told_within(self, seconds: float) -> bool:
        try:
            self._told.get(timeout=seconds)
            while not self._told.empty():
                self._told.get_nowait()
        except Empty:
            return False
        return True

    def _file_has_changed(self) -> bool:
        try:
            version = self._file.version
        except sqlite3.Error:
            return True  # the file may be out of reach for a while; a look costs nothing
        now = time.monotonic()
        if version is None:
            unknown = now - self._known_at > LONGEST_UNKNOWN
            if unknown:
                self._known_at = now
            return unknown
        self._known_at = now
        before, self._version = self._version, version
        return before != version
