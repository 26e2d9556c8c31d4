"""A transaction that took its place in the queue early and commits late."""

import itertools
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from penstock import App
from tests.support.workers import wait_until

pytestmark = pytest.mark.postgres

SOON = 5.0
STOCK = 30


def test_what_commits_late_is_found_although_there_is_always_something_else_to_do(
    postgres_url: str, postgres_schema: str
) -> None:
    """The queue never runs empty, so no scan finds nothing: only a look from zero finds it."""
    app = App(postgres_url, schema=postgres_schema, migrate=True)
    began: list[int] = []
    late = threading.Event()

    @app.task
    def step(number: int) -> None:
        began.append(number)
        time.sleep(0.01)
        if number < 0:
            late.set()

    numbers = itertools.count()

    def busy_until(condition: Callable[[], bool]) -> Callable[[], bool]:
        def look() -> bool:
            if sum(depth.ready for depth in app.store.depths()) < STOCK:
                app.enqueue_many([step.request(next(numbers)) for _ in range(STOCK)])
            return condition()

        return look

    options = f"-c search_path={postgres_schema}"
    app.migrate()
    with psycopg.connect(postgres_url, options=options) as slow:
        step.using(connection=slow).enqueue(-1)  # has its place, and nobody can see it
        with app.worker(slots=1):
            wait_until(busy_until(lambda: len(began) > 2 * STOCK))
            slow.commit()
            wait_until(busy_until(late.is_set), SOON)
            assert sum(depth.ready for depth in app.store.depths()) > 1
    app.close()
