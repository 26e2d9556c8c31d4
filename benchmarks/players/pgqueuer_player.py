"""PgQueuer: asyncpg, uvloop and batches of 1,000, which its benchmarks use at most."""

import asyncio
import signal
import time
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from playing import one_by_one_async, play, record, url

BATCH = 1_000


class Peer:
    def setup(self) -> None:
        async def install() -> None:
            await (await _queries()).install()

        uvloop.run(install())

    def one(self, first: int, count: int, apart: float = 0.0) -> dict[str, Any]:
        async def enqueue() -> dict[str, Any]:
            queries = await _queries()
            await queries.queue_size()

            async def one(number: int) -> None:
                await queries.enqueue("noop", b"%d" % number)

            return await one_by_one_async(one, first, count, apart)

        return uvloop.run(enqueue())

    def bulk(self, first: int, count: int) -> dict[str, Any]:
        async def enqueue() -> dict[str, Any]:
            queries = await _queries()
            await queries.queue_size()
            begun = time.monotonic()
            payloads = [b"%d" % number for number in range(first, first + count)]
            await queries.enqueue(["noop"] * count, payloads, [0] * count)
            return {"seconds": time.monotonic() - begun}

        return uvloop.run(enqueue())

    def work(self) -> None:
        async def run() -> None:
            queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(url())))

            @queue.entrypoint("noop")
            async def noop(job: Job) -> None:
                record(int(job.payload or b""))

            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
            await queue.run(batch_size=BATCH)

        uvloop.run(run())


async def _queries() -> Queries:
    return Queries(AsyncpgDriver(await asyncpg.connect(url())))


play(Peer())
