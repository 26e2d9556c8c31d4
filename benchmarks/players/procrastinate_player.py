"""procrastinate: an async worker that runs ten jobs at a time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import procrastinate
from playing import one_by_one, play, record, url

CONCURRENCY = 10

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url()))


@app.task
async def noop(n: int) -> None:
    record(n)


class Peer:
    def setup(self) -> None:
        with _client() as client:
            client.schema_manager.apply_schema()

    def one(self, first: int, count: int, apart: float = 0.0) -> dict[str, Any]:
        with _client() as client:
            client.job_manager.list_queues()
            return one_by_one(lambda n: noop.defer(n=n), first, count, apart)

    def bulk(self, first: int, count: int) -> dict[str, Any]:
        with _client() as client:
            client.job_manager.list_queues()
            begun = time.monotonic()
            jobs = [{"n": number} for number in range(first, first + count)]
            noop.batch_defer(*jobs)
            return {"seconds": time.monotonic() - begun}

    def work(self) -> None:
        app.run_worker(concurrency=CONCURRENCY)


@contextmanager
def _client() -> Iterator[procrastinate.App]:
    synchronous = procrastinate.SyncPsycopgConnector(conninfo=url())
    with app.replace_connector(synchronous) as client, client.open():
        yield client


play(Peer())
