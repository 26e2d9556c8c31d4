"""What removing old rows costs a worker that has work to do."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from penstock import App
from penstock.engine.background import BackgroundWorker
from penstock.engine.retention import sweep_all
from tests.contract.databases import Database, PostgresDatabase
from tests.performance.filling import fill_finished
from tests.performance.measuring import least, slowdown

pytestmark = [pytest.mark.performance, pytest.mark.slow]

OLD = 30_000  # executions, and an event for each: more than is removed while it is measured
TASKS = 2_000
SHARE = 0.7
NEVER_TOO_YOUNG = timedelta(days=-1)

Note = Callable[[float], None]


def app_at(database: Database) -> App:
    if isinstance(database, PostgresDatabase):
        return App(database.url, schema=database.schema)
    ((_, _, path),) = database.query("PRAGMA database_list")
    return App(f"sqlite:///{path}")


@contextmanager
def being_swept(app: App) -> Iterator[None]:
    """Remove old rows as a worker does, for as long as the block lasts and not for less."""
    stop = threading.Event()
    batches: list[int] = []

    def sweep() -> None:
        for one in (app.store.sweep_events, app.store.sweep):
            batches.extend(sweep_all(one, NEVER_TOO_YOUNG, rest=stop.wait))

    sweeping = threading.Thread(target=sweep)
    sweeping.start()
    yield
    assert sweeping.is_alive()
    stop.set()
    sweeping.join()
    assert sum(batches) > 0


def test_a_worker_keeps_seven_tenths_of_its_rate_while_old_rows_are_removed(
    database: Database, note: Note
) -> None:
    app = app_at(database)

    @app.task
    async def nothing() -> None: ...

    def drain(worker: BackgroundWorker) -> None:
        app.enqueue_many([nothing.request() for _ in range(TASKS)])
        worker.wait_until_idle()

    def drain_while_swept(worker: BackgroundWorker) -> None:
        with being_swept(app):
            drain(worker)

    def compare() -> float:
        fill_finished(database, OLD)
        with app.worker() as worker:
            drain(worker)
            return slowdown(lambda: drain(worker), lambda: drain_while_swept(worker), rounds=5)

    share = 1 / least(compare, enough=1 / SHARE)
    app.close()
    note(share)
    assert share >= SHARE
