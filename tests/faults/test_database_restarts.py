"""PostgreSQL crashes and comes back while a worker is at full speed."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from penstock import App
from penstock.store.contract import Store
from tests.support.servers import Server, private_server
from tests.support.workers import wait_until

log = logging.getLogger(__name__)

pytestmark = [
    *(pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(180)),
    pytest.mark.alone,  # it compares how fast a worker is before and after
]

TASKS = 100_000
AT_ONCE = 5_000
WINDOW = 5.0
BACK_WITHIN = 10.0
LOOK_EVERY = 0.1


@pytest.fixture
def server() -> Iterator[Server]:
    with private_server() as server:
        yield server


class Progress:
    """How many tasks had begun, ten times a second."""

    def __init__(self, began: Counter[int]) -> None:
        self._began = began
        self._seen: list[tuple[float, int]] = []

    def follow_until(self, end: float) -> None:
        while time.monotonic() < end:
            self._seen.append((time.monotonic(), self._began.total()))
            time.sleep(LOOK_EVERY)

    def rate(self, begin: float, end: float) -> float:
        """Tasks a second between two moments."""
        counts = [(at, count) for at, count in self._seen if begin <= at <= end]
        (first_at, first), (last_at, last) = counts[0], counts[-1]
        return (last - first) / (last_at - first_at)


def unexplained(store: Store, began: Counter[int], ids: Sequence[str]) -> list[str]:
    """Executions that began more often than their histories say why."""
    return [
        f"{id_} began {began[number]} times: {types}"
        for number, id_ in enumerate(ids)
        if began[number] != 1
        and (types := [event.type for event in store.history(id_)])
        and began[number] > 1 + types.count("task.released") + types.count("task.recovered")
    ]


@pytest.fixture
def app(server: Server) -> Iterator[App]:
    with closing(App(server.url, migrate=True)) as app:
        yield app


def test_a_crash_of_the_server_in_the_middle_of_a_drain_loses_nothing(
    server: Server, app: App
) -> None:
    began = Counter[int]()

    @app.task(retry=None)
    async def step(number: int) -> int:
        began[number] += 1
        await asyncio.sleep(0.002)  # so that the slots, not the machine, decide how fast it goes
        return number

    ids: list[str] = []
    for first in range(0, TASKS, AT_ONCE):
        requests = [step.request(number) for number in range(first, first + AT_ONCE)]
        ids += [execution.id for execution in app.enqueue_many(requests)]

    progress = Progress(began)
    with app.worker():
        wait_until(lambda: began.total() > 1000)
        begun = time.monotonic()
        progress.follow_until(begun + WINDOW)
        before = progress.rate(begun, begun + WINDOW)

        server.stop("immediate")
        server.start()
        back = time.monotonic()
        progress.follow_until(back + BACK_WITHIN)
        after = progress.rate(back + BACK_WITHIN - WINDOW, back + BACK_WITHIN)
        wait_until(lambda: app.counts()["completed"] == TASKS, 90)
    counts = app.counts()
    extra = began.total() - TASKS
    log.info("%.0f a second before, %.0f afterwards; %d extra runs", before, after, extra)

    assert counts == {**dict.fromkeys(counts, 0), "completed": TASKS}
    assert len(began) == TASKS
    assert unexplained(app.store, began, ids) == []
    assert after > 0.7 * before
