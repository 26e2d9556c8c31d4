"""What an `await` in here needs of asyncio, which is imported when somebody awaits.

To import it takes a fifth of the time of `import penstock`, and a program that enqueues from plain
functions never awaits anything. Whoever does has it already.
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from weakref import WeakSet

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

LONGEST_GRAIN = 0.05

P = ParamSpec("P")
T = TypeVar("T")

working_loops: "WeakSet[AbstractEventLoop]" = WeakSet()  # those that a worker's tasks run on


class HoldsUpWorker(PenstockError, RuntimeError):
    """Somebody would wait for tasks, and keep the loop from running any meanwhile."""

    def __init__(self, asked: str, *, instead: str) -> None:
        super().__init__(
            f"`{asked}` would hold up the event loop that a worker runs its tasks on, and wait for "
            f"ever for one of them. Write `{instead}`."
        )


def refuse_to_block(asked: str, *, instead: str) -> None:
    """Let nobody wait on a loop for what only this loop can do."""
    if working_loops and _loop_here() in working_loops:
        raise HoldsUpWorker(asked, instead=instead)


def _loop_here() -> "AbstractEventLoop | None":
    try:
        return running_loop()
    except RuntimeError:
        return None


def sleep_for_result(seconds: float) -> None:
    """Sleep on this thread, as `nap` does on a loop."""
    refuse_to_block(".result()", instead="await ….aresult()")
    time.sleep(seconds)


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function on a thread, and wait for its result without holding the loop up."""
    import asyncio  # noqa: PLC0415 - see above

    return await asyncio.to_thread(function, *args, **kwargs)


async def nap(seconds: float) -> None:
    """Sleep for so long, or up to a hundredth longer: those who sleep for as long wake together.

    Thousands may wait here for something. A turn of the loop for each of them costs more than what
    they do when they wake.
    """
    import asyncio  # noqa: PLC0415 - see above

    grain = min(seconds / 100, LONGEST_GRAIN)
    if grain > 0:
        now = asyncio.get_running_loop().time()
        seconds = math.ceil((now + seconds) / grain) * grain - now
    await asyncio.sleep(seconds)


async def result_of(future: "Future[T]") -> T:
    """Wait for what another thread will say."""
    import asyncio  # noqa: PLC0415 - see above

    return await asyncio.wrap_future(future)


def running_loop() -> "AbstractEventLoop":
    import asyncio  # noqa: PLC0415 - see above

    return asyncio.get_running_loop()
