"""A worker in the background of somebody's block, plain or async."""

import threading
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.engine.awaiting import in_thread, in_thread_for_sure, running_loop

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from penstock.engine.worker import Worker


class BackgroundWorker:
    """`with app.worker(): …` or `async with app.worker(): …`.

    In an async block, async tasks run on the block's own loop. No signal handler is
    touched: the process belongs to the caller.
    """

    def __init__(self, make: "Callable[[AbstractEventLoop | None], Worker | None]") -> None:
        self._make = make
        self._worker: Worker | None = None
        self._starting = threading.Lock()
        self._has_started = False
        self._is_given_up = False  # whoever asked for it was cancelled

    def __enter__(self) -> Self:
        self._worker = self._make(None)
        if self._worker is not None:
            self._worker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._worker is None:
            return
        try:
            self._worker.stop()
        except KeyboardInterrupt:
            # As a second signal does in a worker's own process: no more time to finish.
            self._worker.stop(grace=timedelta(0))
            raise

    async def __aenter__(self) -> Self:
        self._worker = self._make(running_loop())
        self._has_started = self._is_given_up = returned = False
        if self._worker is not None:
            try:
                await in_thread(self._start, self._worker)
                returned = True
            finally:
                if not returned:  # cancelled, say; but the thread goes on
                    await in_thread_for_sure(self._give_up, self._worker)
        return self

    def _start(self, worker: "Worker") -> None:
        with self._starting:
            if not self._is_given_up:
                worker.start()
                self._has_started = True

    def _give_up(self, worker: "Worker") -> None:
        with self._starting:
            self._is_given_up = True
            if self._has_started:
                worker.stop(grace=timedelta(0))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._worker is not None:
            await in_thread_for_sure(self._worker.stop)

    @property
    def id(self) -> str:
        """The id under which others see this worker now."""
        if self._worker is None:
            message = "this worker has not been started: use it as a context manager"
            raise RuntimeError(message)
        return self._worker.id

    def wait_until_idle(self) -> None:
        """Return when nothing is due any more and nothing runs here."""
        if self._worker is not None:
            self._worker.wait_until_idle()
