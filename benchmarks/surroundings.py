"""What the machine was like during a run: its disk, its clock, its processor.

A virtual machine shares them with others, whom nobody sees from within. A task cannot begin sooner
than the disk and the processor allow, so a run says what these took by themselves.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles

PAGE = os.urandom(8192)  # as much as a small commit of PostgreSQL writes
SYNCS = 200
SLEEPS = 200
NAP = 0.005
LOOPS = 5
TURNS = 1_000_000


class Surroundings:
    """Looked at a few times in the course of a run, while nothing else is measured."""

    def __init__(self, place: Path) -> None:
        self._file = place / "surroundings"
        self._file.write_bytes(PAGE)
        self._stolen, self._total = _processor_ticks()
        self._syncs: list[float] = []
        self._oversleeps: list[float] = []
        self._loops: list[float] = []

    def look(self) -> None:
        self._syncs += self._waits_for_the_disk()
        self._oversleeps += [_seconds(lambda: time.sleep(NAP)) - NAP for _ in range(SLEEPS)]
        self._loops += [_seconds(_loop) for _ in range(LOOPS)]

    def told(self) -> dict[str, str]:
        """Return what was found, as lines for the description of the machine."""
        told = {
            "a wait for the disk": _middle_and_tail(self._syncs),
            "woken too late by": _middle_and_tail(self._oversleeps),
            "a million turns of a loop": (
                f"{min(self._loops) * 1000:.0f} to {max(self._loops) * 1000:.0f} ms"
            ),
        }
        stolen, total = _processor_ticks()
        if total > self._total:
            share = (stolen - self._stolen) / (total - self._total)
            told["taken by the host"] = f"{share:.1%} of the processor's time"
        return told

    def _waits_for_the_disk(self) -> Iterator[float]:
        """What PostgreSQL and SQLite do for a commit: write over what is there, and wait."""
        file = os.open(self._file, os.O_RDWR)
        try:
            for _ in range(SYNCS):
                os.pwrite(file, PAGE, 0)
                yield _seconds(lambda: os.fdatasync(file))
        finally:
            os.close(file)


def _seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _loop() -> None:
    for _ in range(TURNS):
        pass


def _middle_and_tail(seconds: Sequence[float]) -> str:
    last = quantiles(seconds, n=100, method="inclusive")[-1]
    return f"{median(seconds) * 1000:.2f} ms, p99 {last * 1000:.1f}"


def _processor_ticks() -> tuple[int, int]:
    """What the host took for others, and all there was; nothing where Linux does not tell."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return 0, 0
    ticks = [int(number) for number in first.split()[1:9]]  # guests are part of user time
    return ticks[7], sum(ticks)
