"""A function that can stop in the middle and go on later, while only one of two threads runs."""

import threading
from collections.abc import Callable


class SideThread:
    """Runs on a thread of its own, but only while the thread that began it waits for it.

    So nothing ever runs beside anything else, and a test that uses it has one order of events.
    """

    def __init__(self, run: Callable[[], None], *, name: str) -> None:
        self._run = run
        self._turn = threading.Semaphore(0)
        self._answer = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def go_on(self) -> None:
        """Let it run until it parks or ends."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._turn.release()
        self._answer.acquire()

    def park(self) -> None:
        """Called by what runs on the thread: stop here until somebody says `go_on`."""
        self._answer.release()
        self._turn.acquire()

    def _main(self) -> None:
        try:
            self._run()
        finally:
            self._answer.release()
