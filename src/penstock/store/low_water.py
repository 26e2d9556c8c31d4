"""Where the last scans of the outbox found something, so that the next ones start there.

Rows that a claim must step over gather at the head of a lane: dead ones while somebody's
transaction stays open, and those of tasks that this worker does not know. A mark is only
a hint: a slow transaction may commit a lower sequence later, so every so often, and
whenever a scan finds nothing, the lanes are looked up afresh and scanned from zero.

A lane that is empty at that moment is not forgotten: while other lanes have work, nothing
would look for its next task until the lanes are looked up again.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

RESCAN_EVERY = 0.25
RESCAN_SHARE = 20  # a slow thorough scan may take a twentieth of the time, not more
KEEP_LANES = 32  # the lanes of unusual priorities that had work last: each costs a look


class Lane(NamedTuple):
    """What has one order: a queue, a priority, and whether its tasks are suspect."""

    queue: str
    priority: int
    suspect: bool


class LowWater:
    """The marks of one set of tasks. Forgotten with the connection's process."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._marks: dict[Lane, int] = {}
        self._had_work: dict[Lane, None] = {}  # the latest last
        self._thorough_until = float("-inf")

    @property
    def thorough_scan_is_due(self) -> bool:
        return self._monotonic() >= self._thorough_until

    @contextmanager
    def thorough_scan(self, lanes: Iterable[Lane]) -> Iterator[None]:
        """Forget all marks and start again with these lanes, from zero."""
        begun = self._monotonic()
        kept = tuple(self._had_work)[-KEEP_LANES:]
        self._had_work = dict.fromkeys(kept)
        found = tuple(lanes)
        # Where nothing is ready at all, there is nothing to look at: the next look begins here.
        self._marks = dict.fromkeys((*found, *kept), 0) if found else {}
        yield
        ended = self._monotonic()
        self._thorough_until = ended + max(RESCAN_EVERY, RESCAN_SHARE * (ended - begun))

    def lanes(self, queues: Sequence[str], *, suspects: bool) -> tuple[Lane, ...]:
        """The lanes to scan, in order; suspects first among their equals."""
        # By way of a tuple, which is made at once: another thread may find another lane.
        return _in_order(frozenset(tuple(self._marks)), tuple(queues), suspects=suspects)

    def mark(self, lane: Lane) -> int:
        return self._marks.get(lane, 0)  # another thread may just have begun anew

    def found(self, lane: Lane, first: int) -> None:
        """Remember where a scan of this lane found its first row."""
        self._marks[lane] = first
        self._had_work.pop(lane, None)
        self._had_work[lane] = None


class LowWaterMarks:
    """One set of marks per set of tasks: what one set steps over, another one wants."""

    _MOST = 64

    def __init__(self) -> None:
        self._by_tasks: dict[frozenset[str], LowWater] = {}

    def of(self, tasks: frozenset[str]) -> LowWater:
        marks = self._by_tasks.get(tasks)
        if marks is None:
            if len(self._by_tasks) >= self._MOST:
                self._by_tasks.clear()
            marks = self._by_tasks.setdefault(tasks, LowWater())
        return marks


@lru_cache(maxsize=32)  # the same ones, claim after claim; there are as many turns as queues
def _in_order(
    lanes: frozenset[Lane], queues: tuple[str, ...], *, suspects: bool
) -> tuple[Lane, ...]:
    turn = {queue: place for place, queue in enumerate(queues)}
    usual = {Lane(queue, 0, suspect=False) for queue in queues} if lanes else set()
    wanted = {lane for lane in lanes if lane.queue in turn} | usual
    return tuple(
        sorted(
            (lane for lane in wanted if suspects or not lane.suspect),
            key=lambda lane: (turn[lane.queue], -lane.priority, not lane.suspect),
        )
    )
