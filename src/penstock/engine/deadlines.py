"""One thread that calls back when time is up."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable


class Deadlines:
    """Calls functions at moments of the monotonic clock; the thread starts with the first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def call_at(self, moment: float, function: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._heap, (moment, next(self._order), function))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-deadlines", daemon=True
                )
                self._thread.start()
            elif self._heap[0][0] == moment:
                self._changed.notify()

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
                _, _, function = heapq.heappop(self._heap)
            function()

    def _until_next(self) -> float | None:
        if not self._heap:
            return None
        return max(0.0, self._heap[0][0] - time.monotonic())
