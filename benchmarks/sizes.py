"""How much is done in each row: enough to be steady, little enough for 40 minutes."""

from dataclasses import dataclass

LEAST = 200


@dataclass(frozen=True)
class Sizes:
    rounds: int
    one: int
    bulk: int
    drain: int
    ticks: int  # tasks of the latency row
    apart: float  # seconds between them
    runs: int
    fans: int
    idle: float  # seconds for which an idle worker is watched
    deep: int
    first: int  # tasks taken from deep tables
    held: int

    def paced(self, count: int, pace: float) -> int:
        """Return how much of `count` a system gets that is so much slower than the fastest."""
        return max(min(count, LEAST), round(count * pace))


FULL = Sizes(
    rounds=3,
    one=1_000,
    bulk=20_000,
    drain=40_000,
    ticks=125,
    apart=0.02,
    runs=2_000,
    fans=40,
    idle=30.0,
    deep=1_000_000,
    first=20_000,
    held=60_000,
)
QUICK = Sizes(
    rounds=1,
    one=200,
    bulk=5_000,
    drain=10_000,
    ticks=100,
    apart=0.02,
    runs=500,
    fans=10,
    idle=10.0,
    deep=50_000,
    first=5_000,
    held=10_000,
)
