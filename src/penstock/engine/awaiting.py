"""What an `await` in here needs of asyncio, which is imported when somebody awaits.

To import it takes a fifth of the time of `import penstock`, and a program that enqueues from plain
functions never awaits anything. Whoever does has it already.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from concurrent.futures import Future

LONGEST_GRAIN = 0.05
WARN_AFTER = 1.0

P = ParamSpec("P")
T = TypeVar("T")

working_loops: "list[AbstractEventLoop]" = []  # that workers' tasks run on, once for each worker


def is_on_working_loop() -> bool:
    """Whether whoever blocks this thread keeps a worker from running its tasks."""
    try:
        return bool(working_loops) and running_loop() in working_loops
    except RuntimeError:
        return False


def sleep_through(pauses: Iterable[float]) -> Iterator[None]:
    """Sleep on this thread, pause by pause; say so if that is the way to wait for ever."""
    begun = time.monotonic()
    warned = False
    for pause in pauses:
        time.sleep(pause)
        yield
        if not warned and time.monotonic() - begun > WARN_AFTER:
            warned = True
            if is_on_working_loop():
                import logging  # noqa: PLC0415 - a tenth of `import penstock`, and rarely needed

                logging.getLogger("penstock").warning(
                    "result() holds up the event loop that a worker runs its async tasks on, and "
                    "waits for ever if it waits for one of them: write `await ….aresult()`"
                )


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function on a thread, and wait for its result without holding the loop up."""
    import asyncio  # noqa: PLC0415 - see above

    return await asyncio.to_thread(function, *args, **kwargs)


async def in_thread_for_sure(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do the same, and call it even if whoever waits for it is cancelled."""
    import asyncio  # noqa: PLC0415 - see above

    # Not a task of its own, which the end of the loop cancels before it has begun.
    call = partial(function, *args, **kwargs)
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, call))


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
