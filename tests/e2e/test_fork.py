"""A preloading server forks its workers after the App was used: each has connections of its own."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import App

CHILDREN = 1000
AT_ONCE = 10
PATIENCE = 100.0
CHILD_PATIENCE = 20.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * PATIENCE)]


def use(app: App, number: int) -> None:
    """Write an execution and read it back, with a history that is its own."""
    execution = app.enqueue("send", {"number": number}, key=f"number-{number}")
    read = app.get(execution.id)
    assert (execution.created, read.args) == (True, {"number": number})
    assert [event.type for event in read.history()] == ["task.created", "task.marked_ready"]


def fork(app: App, number: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        # A child that hangs ends by itself, and is counted among those that went wrong.
        signal.setitimer(signal.ITIMER_REAL, CHILD_PATIENCE)
        use(app, number)
        status = 0
    finally:
        # At once: what the parent would do at its end, and what it buffered, is not the child's.
        os._exit(status)


def fork_many(app: App, between: Callable[[int], None]) -> list[int]:
    """Fork all the children, a few at a time; return the numbers of those that went wrong."""
    running: dict[int, int] = {}
    wrong: list[int] = []
    for number in range(CHILDREN):
        if len(running) == AT_ONCE:
            wrong += reap(running)
        running[fork(app, number)] = number
        between(number)
    while running:
        wrong += reap(running)
    return wrong


def reap(running: dict[int, int]) -> list[int]:
    pid, status = os.wait()
    number = running.pop(pid)
    return [number] if status else []


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """End the process when it hangs itself, so that the test fails and not the whole run."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def be_the_parent(
    answers: "multiprocessing.Queue[dict[str, Any]]", url: str, schema: str | None
) -> None:
    app = App(url, schema=schema, migrate=True)
    use(app, -1)
    before = backend_of(app)

    def go_on_meanwhile(number: int) -> None:
        if number % AT_ONCE == 0:
            use(app, CHILDREN + number)

    with no_longer_than(PATIENCE):
        wrong = fork_many(app, go_on_meanwhile)
    answers.put(
        {
            "wrong": wrong,
            "ready": app.counts()["ready"],
            "before": before,
            "after": backend_of(app),
        }
    )
    app.close()


def backend_of(app: App) -> int | None:
    """The server's process behind this process's connection; on SQLite there is none."""
    connections = getattr(app.store, "_connections", None)
    if connections is None:
        return None
    (pid,) = connections.run(
        "ask who answers",
        lambda connection: connection.execute("SELECT pg_backend_pid()").fetchone(),
    )
    return int(pid)


def in_a_process_of_its_own(url: str, schema: str | None = None) -> dict[str, Any]:
    # Spawned, so that what is forked is a program with an App and not pytest with its threads.
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    parent = context.Process(target=be_the_parent, args=(answers, url, schema))
    parent.start()
    parent.join(PATIENCE + 20)
    assert parent.exitcode == 0
    answer: dict[str, Any] = answers.get(timeout=10)
    return answer


def test_a_thousand_forked_processes_use_an_sqlite_file_and_none_disturbs_another(
    tmp_path: Path,
) -> None:
    answer = in_a_process_of_its_own(f"sqlite:///{tmp_path / 'orders.db'}")
    assert answer["wrong"] == []
    assert answer["ready"] == CHILDREN + CHILDREN // AT_ONCE + 1


def test_a_thousand_forked_processes_use_postgres_and_none_disturbs_another(
    postgres_url: str, postgres_schema: str
) -> None:
    answer = in_a_process_of_its_own(postgres_url, postgres_schema)
    assert answer["wrong"] == []
    assert answer["ready"] == CHILDREN + CHILDREN // AT_ONCE + 1
    # The parent's own connection was neither closed nor taken over by a child.
    assert answer["before"] is not None
    assert answer["after"] == answer["before"]
    with psycopg.connect(postgres_url) as connection:
        (left,) = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock'"
            " AND state = 'idle in transaction'"
        ).fetchone() or (None,)
    assert left == 0
