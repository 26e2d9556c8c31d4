"""What an `await` in here needs of asyncio, which is imported when somebody awaits.

To import it takes a fifth of the time of `import penstock`, and a program that enqueues from plain
functions never awaits anything. Whoever does has it already.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

LONGEST_GRAIN = 0.05

P = ParamSpec("P")
T = TypeVar("T")


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
