"""Waiting for a condition without a slot: one story, told by a plain and by an async teller.

The story yields what is to happen next and is told how it went. It knows no thread and no
loop, and its clock is given to it, so every order of events can be tried in a test.
"""

from collections.abc import Callable, Generator
from datetime import timedelta

import msgspec

from penstock.errors import PenstockError
from penstock.model.durations import format_duration


class DeferTimeout(PenstockError, TimeoutError):
    """The condition did not come true in time."""

    def __init__(self, timeout: timedelta) -> None:
        self.timeout = timeout
        super().__init__(
            f"What this task waited for did not happen within {format_duration(timeout)}. "
            "Give `defer_until` more time, or catch DeferTimeout and do something else."
        )


class Interrupted(BaseException):
    """The task should end now: it was cancelled, or its worker stops.

    Not an Exception, so that a handler's `except Exception` does not keep it from ending.
    """


class Check(msgspec.Struct, frozen=True):
    """Ask whether the condition is true."""


class GiveUpSlot(msgspec.Struct, frozen=True):
    """Write that the task is deferred, then give its slot back."""


class Wait(msgspec.Struct, frozen=True):
    """Wait, unless the task is to end: then raise why."""

    seconds: float


class TakeSlot(msgspec.Struct, frozen=True):
    """Wait for a slot in the order of asking, then write that the task is active again."""


Next = Check | GiveUpSlot | Wait | TakeSlot
Story = Generator[Next, bool | None, None]


def deferral(
    *,
    every: timedelta,
    timeout: timedelta | None,
    monotonic: Callable[[], float],
    ending: Callable[[], bool],
) -> Story:
    """Check at once, then at each interval, until the condition is true or time is up.

    The teller raises into the story what the condition raises, or what stops the waiting. The
    handler goes on in a slot, and so does its clean-up, unless the task is `ending`: then none
    is asked for again, for nothing that counts will run in it.
    """
    if (yield Check()):
        return
    deadline = None if timeout is None else monotonic() + timeout.total_seconds()
    yield GiveUpSlot()
    try:
        while True:
            left = float("inf") if deadline is None else deadline - monotonic()
            yield Wait(max(0.0, min(every.total_seconds(), left)))
            if (yield Check()):
                break
            _refuse_after(deadline, timeout, monotonic())
    except GeneratorExit:
        raise
    except BaseException:
        # Not only errors: a time limit that the handler has set itself arrives as a cancellation.
        if not ending():
            yield TakeSlot()
        raise
    yield TakeSlot()


def _refuse_after(deadline: float | None, timeout: timedelta | None, now: float) -> None:
    if timeout is not None and deadline is not None and now >= deadline:
        raise DeferTimeout(timeout)
