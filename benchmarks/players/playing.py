"""What the players share: how they are told what to do, and what their handlers write down.

A player runs where its system is installed, so nothing but the standard library is used here.
"""

import asyncio
import json
import os
import sys
import threading
import time
from array import array
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

WRITE_EVERY = 0.01

_begun: list[int] = []  # in turns: a number, and the nanosecond in which its handler began
_writers: list[threading.Thread] = []  # one in each process that has something to write


def record(number: int) -> None:
    """Note that the handler of this number has begun.

    A thread writes the notes down: a write for each would cost some systems more than the task.
    """
    _begun.extend((number, time.monotonic_ns()))
    if not _writers:
        _writers.append(threading.Thread(target=_keep_writing, daemon=True))
        _writers[0].start()


# A fork has none of its parent's threads, and need not repeat what its parent writes.
os.register_at_fork(after_in_child=_writers.clear)
os.register_at_fork(after_in_child=_begun.clear)


def _keep_writing() -> None:
    """Write three numbers for each; appending is atomic, so all processes share one file.

    As bytes: to spell them out would hold the interpreter's lock for a sixtieth of a fast drain.
    """
    file = os.open(os.environ["BENCH_RECORD"], os.O_WRONLY | os.O_APPEND)
    me = os.getpid()
    while True:
        begun = array("q", _begun)
        if begun:
            del _begun[: len(begun)]
            notes = array("q", [me]) * (len(begun) // 2 * 3)
            notes[0::3], notes[2::3] = begun[0::2], begun[1::2]
            os.write(file, notes.tobytes())
        time.sleep(WRITE_EVERY)


def url() -> str:
    return os.environ["BENCH_URL"]


class Player(Protocol):
    """What a system can be asked to do; each returns when it is done."""

    def setup(self) -> None: ...
    def work(self) -> None: ...


def play(player: Player) -> None:
    """Do what the first argument says; print what was measured as one line of JSON."""
    told = json.loads(sys.argv[1])
    match told.pop("action"):
        case "setup":
            player.setup()
            answer: object = {}
        case "work":
            # All that is slow at a start has been imported; the processes begin together.
            print("ready", flush=True)
            sys.stdin.readline()
            player.work()
            answer = {}
        case action:
            answer = getattr(player, action)(**told)
    print(json.dumps(answer), flush=True)


def one_by_one(
    enqueue: Callable[[int], object], first: int, count: int, apart: float = 0.0
) -> dict[str, Any]:
    """Enqueue each number by itself; return the seconds it took and when each was committed."""
    begun, committed = time.monotonic(), []
    for place, number in enumerate(range(first, first + count), 1):
        enqueue(number)
        committed.append(time.monotonic_ns())
        if apart:
            time.sleep(max(0.0, begun + place * apart - time.monotonic()))
    return {"seconds": time.monotonic() - begun, "committed": committed}


async def one_by_one_async(
    enqueue: Callable[[int], Awaitable[object]], first: int, count: int, apart: float = 0.0
) -> dict[str, Any]:
    """The same for a client that is awaited."""
    begun, committed = time.monotonic(), []
    for place, number in enumerate(range(first, first + count), 1):
        await enqueue(number)
        committed.append(time.monotonic_ns())
        if apart:
            await asyncio.sleep(max(0.0, begun + place * apart - time.monotonic()))
    return {"seconds": time.monotonic() - begun, "committed": committed}


def in_chunks(numbers: range, size: int) -> Iterable[range]:
    for first in range(numbers.start, numbers.stop, size):
        yield range(first, min(first + size, numbers.stop))
