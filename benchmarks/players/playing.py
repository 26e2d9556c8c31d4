"""What the players share: how they are told what to do, and what their handlers write down.

A player runs where its system is installed, so nothing but the standard library is used here.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

_record: list[int] = []


def record(number: int) -> None:
    """Write that the handler of this number has begun: one line of a fixed width.

    Appending is atomic, so that all processes of a system share one file.
    """
    if not _record:
        _record.append(os.open(os.environ["BENCH_RECORD"], os.O_WRONLY | os.O_APPEND))
    os.write(_record[0], b"%09d %09d %020d\n" % (number, os.getpid(), time.monotonic_ns()))


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
