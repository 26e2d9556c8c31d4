"""Celery on Redis: acknowledged late, much prefetched, no results and no chatter of workers."""

import os
from typing import Any

from celery import Celery, chain, chord
from playing import one_by_one, play, record, url

STEPS = 5
FAN = 100
IN_A_FAN = FAN + 2

app = Celery("bench", broker=url(), backend=url().replace("/0", "/1"))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=100,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task
def noop(n: int) -> None:
    record(n)


@app.task(ignore_result=False)  # a chord counts the results of its header
def blade(n: int) -> None:
    record(n)


class Peer:
    def setup(self) -> None:
        pass

    def one(self, first: int, count: int, apart: float = 0.0) -> dict[str, Any]:
        with app.producer_pool.acquire(block=True) as producer:
            producer.connection.ensure_connection()
        return one_by_one(noop.delay, first, count, apart)

    def runs(self, first: int, count: int) -> dict[str, Any]:
        def start(n: int) -> None:
            chain(noop.si(n * STEPS + place) for place in range(STEPS)).apply_async()

        return one_by_one(start, first, count)

    def fans(self, first: int, count: int) -> dict[str, Any]:
        def start(n: int) -> None:
            blades = [blade.si(n * IN_A_FAN + one) for one in range(1, FAN + 1)]
            last = noop.si(n * IN_A_FAN + FAN + 1)
            chain(noop.si(n * IN_A_FAN), chord(blades, last)).apply_async()

        return one_by_one(start, first, count)

    def work(self) -> None:
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        pool = os.environ.get("BENCH_CELERY_POOL", "prefork")
        app.worker_main(["worker", "-l", "ERROR", "-P", pool, "-c", "1", *quiet])


play(Peer())
