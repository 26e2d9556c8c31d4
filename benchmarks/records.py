"""What handlers wrote down: that each number ran, once, where and when."""

import struct
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

NOTE = struct.Struct("=qqq")  # a number, a process, and the nanosecond in which its handler began


class NotOnce(Exception):
    """A benchmark whose work was lost or repeated measures nothing."""

    def __init__(self, system: str, *, lost: int, repeated: int, strange: int) -> None:
        self.system, self.lost, self.repeated, self.strange = system, lost, repeated, strange
        super().__init__(
            f"{system}: of what was enqueued, {lost} did not run, {repeated} ran more than once, "
            f"and {strange} ran that were not enqueued. This row measures nothing."
        )


@dataclass(frozen=True)
class Beginning:
    """When the handler of one number began, on the clock that all processes share."""

    number: int
    process: int
    at: float


class Record:
    """A file that the handlers of one measurement append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(b"")

    def count(self) -> int:
        return self.path.stat().st_size // NOTE.size

    def beginnings(self) -> list[Beginning]:
        notes = NOTE.iter_unpack(self.path.read_bytes())
        return [Beginning(number, process, at / 1e9) for number, process, at in notes]

    def check(self, system: str, numbers: Collection[int]) -> list[Beginning]:
        """Return all beginnings in the order of time.

        Raises:
            NotOnce: some of `numbers` did not run exactly once, or others did.
        """
        found = sorted(self.beginnings(), key=lambda one: one.at)
        ran = Counter(one.number for one in found)
        wanted = set(numbers)
        lost = len(wanted - ran.keys())
        repeated = sum(times > 1 for times in ran.values())
        strange = len(ran.keys() - wanted)
        if lost or repeated or strange:
            raise NotOnce(system, lost=lost, repeated=repeated, strange=strange)
        return found


def steady_rate(beginnings: list[Beginning], ended: float) -> float:
    """Tasks per second from when all processes were at work until everything was settled."""
    firsts: dict[int, float] = {}
    for one in beginnings:
        firsts.setdefault(one.process, one.at)
    begun = max(firsts.values())
    return sum(one.at >= begun for one in beginnings) / (ended - begun)
