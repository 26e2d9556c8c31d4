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
        self._asking: Callable[[], None] | None = None

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

    def reclaim(self) -> None:
        """Wait for a slot again, on a thread; those who asked before come first."""
        held = threading.Event()
        self.ask(held.set)
        held.wait()

    def ask(self, when_held: Callable[[], None]) -> None:
        """Line up for a slot; `when_held` is called, from any thread, once it is held."""
        with self._pool.lock:
            if not self._held and not self._pool.hand_out():
                self._asking = when_held
                self._pool.line_up(self)
                return
            self._held = True
        when_held()

    def withdraw(self) -> None:
        """Leave the line, or give back what has been handed over meanwhile."""
        with self._pool.lock:
            self._asking = None
        self.release()

    def take_over(self) -> Callable[[], None] | None:
        """Called by the pool, which holds the lock: the slot is ours, if we still want it."""
        when_held, self._asking = self._asking, None
        self._held = when_held is not None
        return when_held


class SlotPool:
    """A number of slots. `when_free` is called whenever one has become free."""

    def __init__(self, size: int, *, when_free: Callable[[], None]) -> None:
        self.size = size
        self.lock = threading.Lock()
        self._free = size
        self._when_free = when_free
        self._line: deque[SlotToken] = deque()

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

    def line_up(self, token: SlotToken) -> None:
        self._line.append(token)

    def take_back(self) -> Callable[[], None]:
        """Return what is to be done once the lock is free: the first in line goes on."""
        while self._line:
            if (next_in_line := self._line.popleft().take_over()) is not None:
                return next_in_line
        self._free += 1
        return self._when_free
