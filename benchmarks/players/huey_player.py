"""Huey on SQLite: synchronous FULL, no results, one thread that asks again every 10 to 100 ms."""

import signal
from typing import Any

from huey import SqliteHuey
from playing import one_by_one, play, record, url

STEPS = 5
FAN = 100
IN_A_FAN = FAN + 2

huey = SqliteHuey("bench", filename=url(), fsync=True, results=False)
keeping = SqliteHuey("bench", filename=url(), fsync=True)


@huey.task()
def noop(n: int) -> None:
    record(n)


class Peer:
    def setup(self) -> None:
        huey.pending_count()

    def one(self, first: int, count: int, apart: float = 0.0) -> dict[str, Any]:
        huey.pending_count()
        return one_by_one(noop, first, count, apart)

    def runs(self, first: int, count: int) -> dict[str, Any]:
        def start(n: int) -> None:
            pipeline = noop.s(n * STEPS)
            for place in range(1, STEPS):
                pipeline = pipeline.then(noop, n * STEPS + place)
            huey.enqueue(pipeline)

        return one_by_one(start, first, count)

    def work(self) -> None:
        consumer = huey.create_consumer(
            workers=1, periodic=False, initial_delay=0.01, max_delay=0.1, check_worker_health=False
        )
        # Its own answer to SIGTERM is to interrupt the job that runs.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        consumer.run()


play(Peer())
