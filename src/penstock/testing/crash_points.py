"""Named moments in the life of a worker at which a test can let something go wrong.

A worker speaks to its database through the operations of the store alone. Each of them has two
moments that matter: `before_…`, when nothing is written yet, and `after_…`, when everything is
committed and the reply has not arrived. `after_settle`, for one, is a commit whose reply is lost.
"""

import os
import signal
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, NamedTuple, NoReturn

from penstock.errors import PenstockError, StoreUnavailable
from penstock.model.outcomes import Released

Moment = Literal["before", "after"]
Action = Callable[[], object]

OPERATIONS: Final = (
    "create",
    "claim",
    "start",
    "settle",
    "defer",
    "undefer",
    "complete_on",
    "read_back",
    "store_steps",
    "start_child",
    "signal",
    "promote",
    "propagate",
    "heartbeat",
    "recover",
    "reconcile",
    "register",
    "unregister",
)
# A release is a settlement of its own kind, and a person looks for it by its own name.
RELEASE: Final = "release"
_DOING: Final = "use it"


class UnknownCrashPoint(PenstockError):
    """There is no moment of this name at which a fault could happen."""

    def __init__(self, name: str) -> None:
        self.name = name
        guess = get_close_matches(name, CRASH_POINTS, n=1)
        hint = f"Did you mean {guess[0]!r}?" if guess else f"There are {', '.join(CRASH_POINTS)}."
        super().__init__(f"No crash point is named {name!r}. {hint}")


class UnknownAction(PenstockError):
    """A fault in another process is given by name, and this is none."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"No fault is named {name!r}. There are {', '.join(ACTIONS)}.")


class CrashPoint(NamedTuple):
    """A moment before or after an operation of the store."""

    name: str
    moment: Moment
    operation: str
    releases: bool = False

    def concerns(self, arguments: tuple[Any, ...], answer: object) -> bool:
        """Whether this call is one that a fault is meant for.

        A claim that found nothing is no claim: nothing of it could be lost.
        """
        if self.releases:
            return any(isinstance(outcome, Released) for outcome in arguments[0])
        return self.moment == "before" or self.operation != "claim" or bool(answer)


def _named() -> dict[str, CrashPoint]:
    moments: tuple[Moment, Moment] = ("before", "after")
    points = [CrashPoint(f"{when}_{what}", when, what) for what in OPERATIONS for when in moments]
    points += [CrashPoint(f"{when}_{RELEASE}", when, "settle", releases=True) for when in moments]
    return {point.name: point for point in points}


CRASH_POINTS: Final[Mapping[str, CrashPoint]] = _named()


def crash_point(name: str) -> CrashPoint:
    """Return the crash point of this name.

    Raises:
        UnknownCrashPoint: there is none.
    """
    try:
        return CRASH_POINTS[name]
    except KeyError:
        raise UnknownCrashPoint(name) from None


# --- what can happen there --------------------------------------------------------------


def lose_reply() -> NoReturn:
    """Let the call end without an answer, as a connection does that breaks."""
    cut_off = ConnectionResetError("cut off by a test")
    raise StoreUnavailable(_DOING, because=cut_off)


def kill_process() -> None:
    """End this process without a last word, as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def stop_process() -> None:
    """Let this process stand still until somebody sends it SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


def terminate_process() -> None:
    """Ask this process to stop in good order, as a service manager does."""
    os.kill(os.getpid(), signal.SIGTERM)


ACTIONS: Final[Mapping[str, Action]] = {
    "lose_reply": lose_reply,
    "kill": kill_process,
    "stop": stop_process,
    "terminate": terminate_process,
}


def action(name: str) -> Action:
    """Return what this name stands for, for a fault that is set up in another process.

    Raises:
        UnknownAction: it stands for nothing.
    """
    try:
        return ACTIONS[name]
    except KeyError:
        raise UnknownAction(name) from None
