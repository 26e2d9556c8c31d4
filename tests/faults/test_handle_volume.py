"""Thousands that wait at once in four slots: what they cost."""

import os
import time
from pathlib import Path

import pytest

from penstock import App
from tests.support import handling
from tests.support.handling import connected, start
from tests.support.workers import Place, Workers

MB = 1024 * 1024
MEASURED_FOR = 5.0  # seconds: once around, because each of them is looked at every five
LOOKS = 3  # a machine that does other things can only add to what they cost
PATIENCE = 80.0
LOOK_EVERY = 0.5  # counting thousands of rows takes the worker's time
OF_A_CORE = 0.10
MOST_MEMORY = 150 * MB  # of the whole process
TICKS = os.sysconf("SC_CLK_TCK")

pytestmark = pytest.mark.slow


def memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def share_of_a_core(pid: int) -> float:
    used, begun = processor_time(pid), time.monotonic()
    time.sleep(MEASURED_FOR)
    return (processor_time(pid) - used) / (time.monotonic() - begun)


def deferred(place: Place) -> int:
    with connected(place) as connection:
        query = "SELECT count(*) FROM task_executions WHERE sub_state = 'deferred'"
        return int(connection.execute(query).fetchone()[0])


@pytest.mark.parametrize(
    ("count", "colour"), [(1_000, "def"), (10_000, "async def")], ids=["def", "async def"]
)
def test_thousands_that_wait_cost_little_memory_and_hardly_any_time(
    app: App,
    place: Place,
    workers: Workers,
    count: int,
    colour: str,
) -> None:
    request = handling.wait_long.request if colour == "def" else handling.await_long.request
    worker = start(workers, slots=4, queues=["many"])
    before = memory(worker.pid)
    begun = time.monotonic()
    for _ in range(0, count, 1_000):
        app.enqueue_many([request() for _ in range(1_000)])
    while deferred(place) < count:
        assert time.monotonic() - begun < PATIENCE
        time.sleep(LOOK_EVERY)
    took = time.monotonic() - begun

    looks = (share_of_a_core(worker.pid) for _ in range(LOOKS))
    share = next((one for one in looks if one < OF_A_CORE), 1.0)
    after = memory(worker.pid)

    print(  # noqa: T201 - the figures that one runs this for
        f"\n{count} {colour} on {place.url.partition(':')[0]}: all wait after {took:.1f} s, "
        f"{before / MB:.0f} MB before and {after / MB:.0f} MB then, {share:.1%} of a core"
    )
    assert deferred(place) == count
    assert after < MOST_MEMORY
    assert share < OF_A_CORE
