"""status: states, queues and workers at a glance, once or again and again."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from penstock.model.workers import WorkerInfo
from penstock.testing.proxy import proxy_to
from tests.e2e.command_line import ESCAPE, CommandLine, on_terminal
from tests.e2e.test_doctor import days_ago, execute

PATIENCE = 30


def test_every_queue_says_what_is_ready_and_for_how_long(penstock: CommandLine) -> None:
    with penstock.store() as store:
        store.register(WorkerInfo(id="w1", name="host:1", queues=["mail"], tasks=["add"], slots=4))
    for _ in range(2):
        penstock.enqueue("add", queue="mail")
    penstock.enqueue("add", queue="unserved")
    penstock("pause", "press")
    queues = {queue.pop("name"): queue for queue in penstock("status", "--json").json["queues"]}
    ages = {name: queue.pop("oldest_ready_seconds") for name, queue in queues.items()}
    assert queues == {
        "mail": {"paused": False, "workers": 1, "ready": 2},
        "press": {"paused": True, "workers": 0, "ready": 0},
        "unserved": {"paused": False, "workers": 0, "ready": 1},
    }
    assert ages["press"] is None
    assert 0 <= ages["unserved"] <= ages["mail"] < PATIENCE
    told = penstock("status").out
    assert re.search(r"^QUEUE +READY +OLDEST +WORKERS$", told, re.MULTILINE)
    assert re.search(r"^mail +2 +\S+ +1$", told, re.MULTILINE)
    assert re.search(r"^press +0 +0 +paused$", told, re.MULTILINE)
    assert re.search(r"^w1 +host:1 +4 +mail ", told, re.MULTILINE)


def test_nothing_at_all_is_a_picture_too(penstock: CommandLine) -> None:
    told = penstock("status").out
    assert told.endswith("\n\nNo worker is alive.\n")
    assert penstock("status", "--json").json["queues"] == []


def test_a_worker_that_fell_silent_is_marked_and_does_not_count(penstock: CommandLine) -> None:
    with penstock.store() as store:
        for name, queues in (("w1", ["mail", "press"]), ("w2", ["mail"])):
            store.register(WorkerInfo(id=name, queues=queues, tasks=["add"]))
    execute(penstock, f"UPDATE workers SET beat_at = {days_ago(penstock, 1)} WHERE id = 'w1'")
    seen = penstock("status", "--json").json
    assert {one["name"]: one["workers"] for one in seen["queues"]} == {"mail": 1, "press": 0}
    assert {one["id"]: one["silent"] for one in seen["workers"]} == {"w1": True, "w2": False}
    assert penstock("workers", "--json").json == seen["workers"]
    for command in ("status", "workers"):
        told = penstock(command).out
        assert re.search(r"^w1 .* silent$", told, re.MULTILINE)
        assert not re.search(r"^w2 .* silent$", told, re.MULTILINE)


def test_how_long_a_worker_may_be_silent_follows_the_lease(
    penstock: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with penstock.store() as store:
        store.register(WorkerInfo(id="w1", queues=["mail"], tasks=["add"]))
    execute(penstock, f"UPDATE workers SET beat_at = {days_ago(penstock, 1)}")
    monkeypatch.setenv("PENSTOCK_WORKER_LEASE", "2d")
    (worker,) = penstock("workers", "--json").json
    assert worker["silent"] is False


def test_a_narrow_terminal_gets_narrow_tables(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    on_sqlite.enqueue("add", queue="a_queue_with_a_long_name_" * 8)
    with on_sqlite.store() as store:
        store.register(WorkerInfo(id="w1", name="host:1", queues=["mail"] * 40, tasks=["add"]))
    shown = on_terminal("-m", "penstock", "status", *on_sqlite.database, columns=60)
    assert max(map(len, without_colours(shown).splitlines())) <= 60


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_watch_refuses_to_redraw_a_pipe(on_sqlite: CommandLine, arguments: tuple[str, ...]) -> None:
    on_sqlite("admin", "migrate")
    answer = on_sqlite("status", "--watch", *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("--watch redraws a terminal's window")
    assert len(answer.err.splitlines()) == 1


Shown = Callable[[str], str]


@contextmanager
def watching(penstock: CommandLine) -> Iterator[tuple["subprocess.Popen[bytes]", Shown]]:
    """`status --watch` on a terminal; what is given out waits until a pattern has been shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "status", "--watch", *penstock.database],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "100", "LINES": "40", "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    shown = ""

    def until(pattern: str) -> str:
        nonlocal shown
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, without_colours(shown))):
            assert time.monotonic() < deadline, shown
            if select.select([ours], [], [], 0.1)[0]:
                shown += os.read(ours, 65536).decode()
        shown = ""
        return found[0]

    try:
        yield process, until
    finally:
        process.kill()
        process.wait(PATIENCE)
        os.close(ours)


def test_watch_shows_what_changes_until_it_is_told_to_stop(penstock: CommandLine) -> None:
    penstock.enqueue("add")
    with watching(penstock) as (process, until):
        until(r"ready +1\s")
        penstock.enqueue("add")
        until(r"ready +2\s")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def test_watch_keeps_its_picture_while_the_database_is_away(on_postgres: CommandLine) -> None:
    on_postgres("admin", "migrate")
    on_postgres.enqueue("add")
    with proxy_to(on_postgres.url) as proxy:
        by_way_of_it = replace(on_postgres, url=proxy.url(on_postgres.url))
        with watching(by_way_of_it) as (_, until):
            until(r"ready +1\s")
            proxy.refuse()
            until(r"ready +1\s[^~]*The database (gave no answer|cannot be reached)")
            on_postgres.enqueue("add")
            proxy.accept()
            until(r"ready +2\s[^~]*Ctrl-C ends it")


def without_colours(text: str) -> str:
    return re.sub(rf"{ESCAPE}\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "")
