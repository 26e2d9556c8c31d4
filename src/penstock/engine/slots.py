"""How many tasks a worker runs at a time.

A slot is an object with a lifecycle: the pool hands out a token that holds its slot; the
token may release it while its task waits, and reclaim one later; when the task has ended,
the token is released for good. Those who reclaim come before new tasks, in the order of
asking, so a task that has waited is never overtaken for ever.

    free ──take()──▶ held ──release()──▶ given back ──reclaim()──▶ held
"""

import threading
from collections import deque
from collections.abc import Callable


class SlotToken:
    """The right to one slot of a pool."""

    def __init__(self, pool: "SlotPool") -> None:
        self._pool = pool
        self._held = True

    @property
    def held(self) -> bool:
        return self._held

    def release(self) -> bool:
        """Give the slot back; False if it was not held, so a double release frees nothing."""
        with self._pool.lock:
            if not self._held:
                return False
            self._held = False
            next_in_line = self._pool.take_back()
        next_in_line()
        return True

    def reclaim(self, when_held: Callable[[], None]) -> None:
        """Ask for a slot again; `when_held` is called, from any thread, once it is held."""
        with self._pool.lock:
            if not self._held and not self._pool.hand_out():
                self._pool.line_up(lambda: self._hold(when_held))
                return
            self._held = True
        when_held()

    def _hold(self, when_held: Callable[[], None]) -> None:
        with self._pool.lock:
            self._held = True
        when_held()


class SlotPool:
    """A number of slots. `when_free` is called whenever one has become free."""

    def __init__(self, size: int, *, when_free: Callable[[], None]) -> None:
        self.size = size
        self.lock = threading.Lock()
        self._free = size
        self._when_free = when_free
        self._line: deque[Callable[[], None]] = deque()

    @property
    def free(self) -> int:
        return self._free

    def take(self) -> SlotToken | None:
        """Hand out a token, or None when no slot is free."""
        with self.lock:
            return SlotToken(self) if self.hand_out() else None

    # The rest is for tokens, which hold the lock.

    def hand_out(self) -> bool:
        if self._free == 0:
            return False
        self._free -= 1
        return True

    def line_up(self, waiting: Callable[[], None]) -> None:
        self._line.append(waiting)

    def take_back(self) -> Callable[[], None]:
        """Return what is to be done once the lock is free: the first in line goes on."""
        if self._line:
            return self._line.popleft()
        self._free += 1
        return self._when_free
