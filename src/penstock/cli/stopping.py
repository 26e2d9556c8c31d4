"""For commands that have something to remove when they end, however they end."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

UNDONE_WITHIN = 10.0  # seconds; a database that hangs can take longer

# Not every system has all of them.
_ASK_TO_STOP = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


@contextmanager
def told_to_stop() -> Iterator[Callable[[], None]]:
    """Take the first signal that asks a program to end for a Ctrl-C: what it has begun is undone.

    The next ones do not disturb that, unless it takes so long that something must be in its way:
    from then on each of them is heard.
    One that nobody wants to hear, as with `nohup`, stays unheard. What is given raises
    KeyboardInterrupt if one has come, and is to be called now and then: Python drops what a
    handler raises while a finalizer runs, as some do during imports.
    """
    came: float | None = None

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        now = time.monotonic()
        if came is not None and now < came + UNDONE_WITHIN:
            return
        came = came or now
        raise KeyboardInterrupt

    def check() -> None:
        if came is not None:
            raise KeyboardInterrupt

    with _answered_by(stop):
        yield check


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hear none of them: for the seconds that it takes to clean up."""
    with _answered_by(_hear_nothing):
        yield


def _hear_nothing(_number: int, _frame: FrameType | None) -> None:
    """Not SIG_IGN, which a program started meanwhile would inherit."""


@contextmanager
def _answered_by(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in _ASK_TO_STOP}
    # None: somebody's who is not Python, and could not be given back.
    heard = {one: by for one, by in before.items() if by not in {signal.SIG_IGN, None}}
    try:
        for number in heard:
            signal.signal(number, handler)
        yield
    finally:
        for number, by in heard.items():
            signal.signal(number, by)
