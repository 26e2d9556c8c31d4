"""One thread that calls back when time is up."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable

_ALWAYS_KEPT = 100  # moments of which it does not matter that nobody waits for them any more


class Deadlines:
    """Calls functions at moments of the monotonic clock; the thread starts with the first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._functions: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._heap)

    def call_at(self, moment: float, function: Callable[[], None]) -> int:
        """Call it then; the number that comes back is for whoever changes his mind."""
        with self._changed:
            number = next(self._numbers)
            self._functions[number] = function
            heapq.heappush(self._heap, (moment, number))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-deadlines", daemon=True
                )
                self._thread.start()
            elif self._heap[0] == (moment, number):
                self._changed.notify()
        return number

    def forget(self, number: int) -> None:
        """Call nobody; what the function holds is free at once."""
        with self._changed:
            self._functions.pop(number, None)
            if len(self._heap) > 2 * len(self._functions) + _ALWAYS_KEPT:
                self._heap = [one for one in self._heap if one[1] in self._functions]
                heapq.heapify(self._heap)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (wait := self._until_next()) != 0:
                    self._changed.wait(wait)
                if self._closed:
                    return
                _, number = heapq.heappop(self._heap)
                function = self._functions.pop(number, None)
            if function is not None:
                function()

    def _until_next(self) -> float | None:
        if not self._heap:
            return None
        return max(0.0, self._heap[0][0] - time.monotonic())
