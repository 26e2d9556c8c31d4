"""Penstock, on either database: default settings."""

import os
import time
from typing import Any

from penstock_tasks import app, fan, five_steps
from playing import one_by_one, play

from penstock.cli import commands


class Penstock:
    def setup(self) -> None:
        app.migrate()

    def one(self, first: int, count: int, apart: float = 0.0) -> dict[str, Any]:
        task = app.tasks[os.environ.get("BENCH_TASK", "on_the_loop")]
        app.counts()  # connected
        return one_by_one(task.enqueue, first, count, apart)

    def bulk(self, first: int, count: int) -> dict[str, Any]:
        task = app.tasks[os.environ.get("BENCH_TASK", "on_the_loop")]
        app.counts()
        begun = time.monotonic()
        app.enqueue_many(task.request(n) for n in range(first, first + count))
        return {"seconds": time.monotonic() - begun}

    def runs(self, first: int, count: int) -> dict[str, Any]:
        app.counts()
        return one_by_one(lambda n: five_steps.start(n=n), first, count)

    def fans(self, first: int, count: int) -> dict[str, Any]:
        app.counts()
        return one_by_one(lambda n: fan.start(n=n), first, count)

    def work(self) -> None:
        commands.main(
            ["worker", "penstock_tasks:app", "--log-level", "warning"], standalone_mode=False
        )


play(Penstock())
