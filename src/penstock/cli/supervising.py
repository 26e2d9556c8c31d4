"""Several worker processes under one: signals are passed on, and the dead are replaced."""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec

log = logging.getLogger("penstock.worker")

LOOK_EVERY = 0.1
HEALTHY_AFTER = 10.0  # seconds; who lives as long as this did not die of how it was started
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
FAILED = 1
USED_WRONGLY = 2
NEVER_BEGAN = 3  # only between a worker process and us: it failed before it began to work

Process = subprocess.Popen[bytes]


def start_worker_process(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    log_file: Path | None = None,
) -> Process:
    """Start `penstock worker` in a process that dies with this one.

    It has a process group of its own: a terminal's Ctrl-C reaches it through us alone, once.
    """
    output = None if log_file is None else log_file.open("ab")
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "penstock", "worker", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,
        )
    finally:
        if output is not None:
            output.close()


class _Post(msgspec.Struct):
    """A place for one worker process: someone is there, or will be, or is no longer needed."""

    process: Process | None = None
    started_at: float = 0.0
    quick_deaths: int = 0
    start_at: float = 0.0
    has_worked: bool = False
    closed: bool = False


class Supervisor:
    """Keeps as many processes as there are posts, until it is told to stop or they are done."""

    def __init__(
        self, start: Callable[[], Process], *, processes: int, until_idle: bool = False
    ) -> None:
        self._start = start
        self._until_idle = until_idle
        self._posts = [_Post() for _ in range(processes)]
        self._stopping = False
        self._heard = threading.Event()
        self._exit_status = 0

    def run(self) -> int:
        """Work until every post is closed; return the exit status for all of them."""
        with self._signals():
            while not all(post.closed for post in self._posts):
                self._look_after_posts()
                self._heard.wait(LOOK_EVERY)
                self._heard.clear()
        return self._exit_status

    def _look_after_posts(self) -> None:
        for post in self._posts:
            if post.closed:
                continue
            if post.process is None:
                self._fill(post)
            elif (code := post.process.poll()) is not None:
                self._ended(post, post.process, code)

    def _fill(self, post: _Post) -> None:
        if self._stopping:
            post.closed = True
        elif time.monotonic() >= post.start_at:
            post.process = self._start()
            post.started_at = time.monotonic()
            log.info("worker process %d started", post.process.pid)

    def _ended(self, post: _Post, process: Process, code: int) -> None:
        post.process = None
        if self._stopping or (self._until_idle and code == 0):
            post.closed = True
            # Killed by it: told to stop before it had anything to give back.
            if code not in {0, -signal.SIGTERM}:
                self._exit_status = self._exit_status or 1
                log.error("worker process %d %s", process.pid, _how(code))
            return
        # Whoever comes after one that has worked may have met an outage, and is tried again.
        if code == USED_WRONGLY or (code == NEVER_BEGAN and not post.has_worked):
            # It has said why, and no other try will go better.
            post.closed = True
            self._exit_status = USED_WRONGLY if code == USED_WRONGLY else FAILED
            self._stop()
            return
        post.has_worked = post.has_worked or code != NEVER_BEGAN
        lived = time.monotonic() - post.started_at
        post.quick_deaths = 0 if lived >= HEALTHY_AFTER else post.quick_deaths + 1
        pause = _pause_after(post.quick_deaths)
        post.start_at = time.monotonic() + pause
        log.warning(
            "worker process %d %s after %.1f s; another one starts in %g s",
            process.pid,
            _how(code),
            lived,
            pause,
        )

    def _stop(self) -> None:
        """Pass a signal on, always as SIGTERM: Python takes SIGINT for an error until we listen."""
        self._stopping = True
        for post in self._posts:
            if post.process is not None:
                post.process.terminate()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def received(_number: int, _frame: FrameType | None) -> None:
            self._stop()
            self._heard.set()

        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, received) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _pause_after(quick_deaths: int) -> float:
    """None after a long life; then twice as long each time, so that nobody dies in a tight loop."""
    if quick_deaths == 0:
        return 0.0
    return float(min(FIRST_PAUSE * 2 ** min(quick_deaths - 1, 10), LONGEST_PAUSE))


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
