"""The rows in which systems stand beside each other.

Every row verifies that each task ran, once, and that nothing is left.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import quantiles

from benchmarks.costs import Meter
from benchmarks.driving import Bench
from benchmarks.figures import Measured
from benchmarks.records import steady_rate
from benchmarks.sizes import Sizes
from benchmarks.systems import System

IN_A_RUN = 5
IN_A_FAN = 102
SETTLING_IN = 2.0  # seconds after which a worker that has nothing to do is idle
FAR_AWAY = 0.1  # whose pace is below that is not in need of more than one turn in a round


@dataclass(frozen=True)
class Row:
    needs: str  # what a system must be able to do
    measure: Callable[[Bench, Sizes], Measured]
    times: int = 1  # in each round, by turns: more where minutes differ more than systems

    def turns(self, systems: Sequence[System]) -> Iterator[System]:
        """Yield who comes next in a round of this row; the slow ones come once."""
        able = [system for system in systems if self.needs in system.does]
        yield from able
        for _ in range(1, self.times):
            yield from (system for system in able if system.pace >= FAR_AWAY)


def enqueue_one(bench: Bench, sizes: Sizes) -> Measured:
    """Each in a transaction of its own."""
    numbers = bench.numbers(sizes.one)
    seconds = bench.ask("one", numbers)["seconds"]
    _work_off(bench, numbers)
    return {"enqueue one": len(numbers) / seconds}


def enqueue_bulk(bench: Bench, sizes: Sizes) -> Measured:
    """As many as there are, in one call."""
    numbers = bench.numbers(sizes.paced(sizes.bulk, max(bench.system.pace, 0.1)))
    seconds = bench.ask("bulk", numbers)["seconds"]
    _work_off(bench, numbers)
    return {"enqueue bulk": len(numbers) / seconds}


def drain_with_one(bench: Bench, sizes: Sizes) -> Measured:
    numbers = _fill(bench, sizes.paced(sizes.drain, bench.system.pace))
    meter = Meter(bench)
    meter.begin()
    rate = _drain(bench, numbers, processes=1)
    return {"drain 1": rate, **meter.per_task(len(numbers))}


def drain_with_two(bench: Bench, sizes: Sizes) -> Measured:
    numbers = _fill(bench, sizes.paced(round(1.5 * sizes.drain), bench.system.pace))
    return {"drain 2": _drain(bench, numbers, processes=2)}


def idle_latency(bench: Bench, sizes: Sizes) -> Measured:
    """From the commit in one process to the handler's start in another."""
    numbers = bench.numbers(sizes.ticks)
    with bench.workers() as crew:
        time.sleep(SETTLING_IN)
        committed = bench.ask("one", numbers, apart=sizes.apart)["committed"]
        crew.wait_for(len(numbers))
        crew.wait_until_settled()
        begun = {one.number: one.at for one in crew.check(numbers)}
    # The answer to a commit may be read after the task has begun.
    waited = [
        max(0.0, begun[number] - at / 1e9) * 1000
        for number, at in zip(numbers, committed, strict=True)
    ]
    percentiles = quantiles(waited, n=100, method="inclusive")
    return {f"latency p{which}": percentiles[which - 1] for which in (50, 95, 99)}


def workflows(bench: Bench, sizes: Sizes) -> Measured:
    """Runs of five steps, one after the other."""
    return {"runs": _runs(bench, "runs", sizes.paced(sizes.runs, bench.system.pace), IN_A_RUN)}


def fans(bench: Bench, sizes: Sizes) -> Measured:
    """Runs of one task, then a hundred side by side, then one."""
    count = max(4, round(sizes.fans * bench.system.pace))
    return {"fans": _runs(bench, "fans", count, IN_A_FAN)}


ROWS: tuple[Row, ...] = (
    Row("one", enqueue_one, times=3),
    Row("bulk", enqueue_bulk, times=3),
    Row("drain", drain_with_one, times=2),
    Row("drain", drain_with_two, times=2),
    Row("latency", idle_latency, times=3),
    Row("runs", workflows),
    Row("fans", fans),
)


def _fill(bench: Bench, count: int) -> range:
    numbers = bench.numbers(count)
    bench.ask("bulk" if "bulk" in bench.system.does or bench.system.ours else "one", numbers)
    return numbers


def _drain(bench: Bench, numbers: range, *, processes: int) -> float:
    with bench.workers(processes) as crew:
        crew.wait_for(len(numbers))
        ended = crew.wait_until_settled()
        return steady_rate(crew.check(numbers), ended)


def _work_off(bench: Bench, numbers: range) -> None:
    _drain(bench, numbers, processes=1)


def _runs(bench: Bench, action: str, count: int, tasks: int) -> float:
    numbers = bench.numbers(count)
    bench.ask(action, numbers)
    with bench.workers() as crew:
        crew.wait_for(count * tasks)
        ended = crew.wait_until_settled()
        begun = crew.check(range(numbers.start * tasks, numbers.stop * tasks))
    return count / (ended - begun[0].at)
