"""Threads for plain `def` tasks: as many as are needed at once, kept for the next ones.

Unlike the standard library's pool, these threads are daemons: a task that never returns
must not keep the process from ending.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Threads:
    """Runs functions on threads, each at once: a waiting function never waits for a thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._made = 0

    def run(self, function: Callable[[], None]) -> None:
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                self._made += 1
                name = f"{self._name}-{self._made}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
        self._work.put(function)

    def close(self) -> None:
        """Let the idle threads end, and the others when they have done their work."""
        for _ in range(self._made):
            self._work.put(None)

    def _serve(self) -> None:
        while (function := self._work.get()) is not None:
            function()
            with self._lock:
                self._idle += 1
