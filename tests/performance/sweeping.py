"""A million old rows go beside a worker that drains: how long that takes, and what it costs.

    python -m tests.performance.sweeping [ROWS]

On a SQLite file of its own. The worker drains all the time; the sweep goes on in every second
window, so that both rates are of the same minutes.
"""

import sqlite3
import sys
import tempfile
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import click

from penstock import App
from penstock.engine.background import BackgroundWorker
from penstock.engine.retention import sweep_all

ROWS = 1_000_000  # old rows that have to go: a fifth of them executions, the others events
EVENTS = ("task.created", "task.marked_ready", "task.claimed")  # and one for the end
AGE = timedelta(days=100)
KEPT = timedelta(days=90)
WINDOW = 3.0  # seconds
BATCH = 2_000  # tasks at a time; the next ones come when these are done


class Left(NamedTuple):
    """What is there of what was old."""

    completed: int
    failed: int
    events: int


def fill(path: Path, state: str, count: int, *, first: int) -> None:
    """Write executions that ended long ago, and four events for each."""
    at = int((datetime.now(UTC) - AGE).timestamp() * 1_000_000)
    stamp = f"{at // 1000:012x}"
    id_ = f"'{stamp[:8]}-{stamp[8:]}-7000-8000-' || printf('%012x', n + {first})"
    series = f"(WITH RECURSIVE l (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM l WHERE n < {count})"
    told = ", ".join(f"('{type_}')" for type_ in (*EVENTS, f"task.{state}"))
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(
            "INSERT INTO task_executions (id, root_id, task, queue, priority, args, max_crashes, "
            "state, attempt, fence, result, created_at, claimed_at, started_at, finished_at) "
            f"SELECT {id_}, {id_}, 'nothing', 'default', 0, '{{}}', 3, '{state}', 1, 2, 'null', "
            f"{at}, {at}, {at}, {at} FROM {series} SELECT n FROM l)"
        )
        file.execute(
            "INSERT INTO execution_events (root_id, task_execution_id, type, at) "
            f"SELECT id, id, event.column1, {at} FROM task_executions, (VALUES {told}) AS event "
            f"WHERE state = '{state}' AND created_at = {at}"
        )


def left(path: Path) -> Left:
    limit = int((datetime.now(UTC) - KEPT).timestamp() * 1_000_000)
    with closing(sqlite3.connect(path)) as file:
        states = dict(
            file.execute(
                f"SELECT state, count(*) FROM task_executions WHERE created_at < {limit} GROUP BY 1"
            )
        )
        ((events,),) = file.execute(f"SELECT count(*) FROM execution_events WHERE at < {limit}")
    return Left(states.get("completed", 0), states.get("failed", 0), events)


class Sweeping(threading.Thread):
    """Sweeps as a worker does, but only while it is let."""

    def __init__(self, app: App) -> None:
        super().__init__(name="sweeping")
        self._app = app
        self.let = threading.Event()
        self.removed = 0

    def run(self) -> None:
        for sweep in (self._app.store.sweep, self._app.store.sweep_events):
            self.let.wait()
            for removed in sweep_all(sweep, KEPT, rest=self._rest):
                self.removed += removed

    def _rest(self, seconds: float) -> None:
        time.sleep(seconds)
        self.let.wait()


def keep_busy(app: App, worker: BackgroundWorker, over: threading.Event) -> None:
    while not over.is_set():
        app.enqueue_many([app.tasks["nothing"].request() for _ in range(BATCH)])
        worker.wait_until_idle()


def measure(app: App) -> dict[bool, tuple[float, int]]:
    """Sweep to the end; return seconds and tasks done, with and without the sweep."""
    done = 0

    @app.task
    async def nothing() -> None:
        nonlocal done
        done += 1

    spent = {True: (0.0, 0), False: (0.0, 0)}
    sweeping, over = Sweeping(app), threading.Event()
    with app.worker() as worker:
        busy = threading.Thread(target=keep_busy, args=(app, worker, over))
        busy.start()
        time.sleep(WINDOW)
        sweeping.start()
        swept = False
        while sweeping.is_alive():
            swept = not swept
            if swept:
                sweeping.let.set()
            begun, before = time.monotonic(), done
            sweeping.join(WINDOW) if swept else time.sleep(WINDOW)
            sweeping.let.clear()
            seconds, tasks = spent[swept]
            spent[swept] = seconds + time.monotonic() - begun, tasks + done - before
        over.set()
        busy.join()
    return spent


def main(rows: int) -> None:
    completed, failed = rows // 5, rows // 100
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "old.db"
        app = App(f"sqlite:///{path}")
        app.migrate()
        fill(path, "completed", completed, first=0)
        fill(path, "failed", failed, first=completed)
        click.echo(f"before: {left(path)}")
        spent = measure(app)
        app.close()
        click.echo(f"after:  {left(path)}")
    rates = {swept: tasks / seconds for swept, (seconds, tasks) in spent.items()}
    click.echo(f"{5 * completed} rows went in {spent[True][0]:.0f} s of sweeping")
    click.echo(f"drained alone {rates[False]:.0f} a second, beside the sweep {rates[True]:.0f}")
    click.echo(f"share {rates[True] / rates[False]:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
