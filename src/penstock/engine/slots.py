"""How many tasks a worker runs at a time.

A slot is an object with a lifecycle: the pool hands out a token that holds its slot; the
token may release it while its task waits, and reclaim one later; when the task has ended,
the token is released for good. Those who reclaim come before new tasks, in the order of
asking, so a task that has waited is never overtaken for ever.

    free ──take()──▶ held ──release()──▶ given back ──reclaim()──▶ held ──end()──▶ free
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec


class SlotToken(msgspec.Struct, eq=False):
    """The right to one slot of a pool."""

    _pool: "SlotPool"
    _held: bool = True
    _ended: bool = False
    _place: "_Place | None" = None

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

    def reclaim(self) -> bool:
        """Wait for a slot again, on a thread; those who asked before come first.

        False if the task has ended meanwhile, by its timeout for example: then there is none.
        """
        answered = threading.Event()
        if self.ask(answered.set):
            answered.wait()
        return self._held

    def end(self) -> None:
        """Release it for good: whatever its task still does, it gets no slot any more."""
        with self._pool.lock:
            self._ended = True
            place, self._place = self._place, None
            held, self._held = self._held, False
            next_in_line = self._pool.take_back() if held else None
        if next_in_line is not None:
            next_in_line()
        if place is not None:
            place.when_answered()

    # The rest is for those who wait on a loop, or for several things at once.

    def ask(self, when_answered: Callable[[], None]) -> bool:
        """Line up for a slot; False if there will never be one, because the task has ended.

        `when_answered` is called, from any thread, once the slot is held or the task has ended.
        """
        with self._pool.lock:
            if self._ended:
                return False
            if not self._held and not self._pool.hand_out():
                self._place = _Place(self, when_answered)
                self._pool.line_up(self._place)
                return True
            self._held = True
        when_answered()
        return True

    def withdraw(self) -> None:
        """Leave the line, or give back what has been handed over meanwhile."""
        with self._pool.lock:
            self._place = None
        self.release()

    def take_over(self, place: "_Place") -> bool:
        """Called by the pool, which holds the lock: the slot is ours, if we still stand there."""
        if self._place is not place:
            return False
        self._place = None
        self._held = True
        return True


class _Place(msgspec.Struct, frozen=True, eq=False):
    """Where a token stands in the line; who leaves it and asks again stands at its end."""

    token: SlotToken
    when_answered: Callable[[], None]


class SlotPool:
    """A number of slots. `when_free` is called whenever one has become free."""

    def __init__(self, size: int, *, when_free: Callable[[], None]) -> None:
        self.size = size
        self.lock = threading.Lock()
        self._free = size
        self._when_free = when_free
        self._line: deque[_Place] = deque()

    @property
    def free(self) -> int:
        return self._free

    def take(self, most: int = 1) -> list[SlotToken]:
        """Hand out so many tokens, or as many as there are free slots."""
        with self.lock:
            number = min(most, self._free)
            self._free -= number
        return [SlotToken(self) for _ in range(number)]

    def put_back(self, unused: Sequence[SlotToken]) -> None:
        """Take these back as if they had never been handed out; nobody is told."""
        with self.lock:
            self._free += len(unused)

    # The rest is for tokens, which hold the lock.

    def hand_out(self) -> bool:
        if self._free == 0:
            return False
        self._free -= 1
        return True

    def line_up(self, place: _Place) -> None:
        self._line.append(place)

    def take_back(self) -> Callable[[], None]:
        """Return what is to be done once the lock is free: the first in line goes on."""
        while self._line:
            place = self._line.popleft()
            if place.token.take_over(place):
                return place.when_answered
        self._free += 1
        return self._when_free
