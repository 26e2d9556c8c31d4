"""rerun and cancel by filter: counted first, confirmed, done in batches."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.cli import bulk
from penstock.errors import StoreUnavailable
from penstock.model.executions import NewExecution
from penstock.model.ids import new_id
from penstock.model.outcomes import Failed
from penstock.model.states import State
from penstock.model.workers import WorkerInfo
from penstock.store.contract import Store
from tests.e2e.command_line import CommandLine

BROKEN = '{"type":"ValueError","message":"no such page"}'


def enqueue(penstock: CommandLine, number: int, task: str = "add", queue: str = "default") -> None:
    with penstock.store() as store:
        store.create(
            [NewExecution(id=new_id(), task=task, args="{}", queue=queue) for _ in range(number)]
        )


def fail_all(penstock: CommandLine, task: str = "add", queue: str = "default") -> None:
    with penstock.store() as store:
        store.register(WorkerInfo(id="w1", queues=[queue], tasks=[task]))
        claimed = store.claim("w1", queues=[queue], tasks=[task], limit=10_000)
        store.settle([Failed(lease=one.lease, error=BROKEN) for one in claimed])


def counts(penstock: CommandLine) -> dict[str, int]:
    states: dict[str, int] = penstock("status", "--json").json["states"]
    return {state: number for state, number in states.items() if number}


def on_terminal(*arguments: str, types: str) -> tuple[int, str]:
    """Run a command on a terminal where somebody types; return its exit status and its output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, types.encode())
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # how a terminal says that nobody has its other end any more
        pass
    finally:
        os.close(ours)
    return process.wait(60), shown.decode()


def test_a_dry_run_counts_and_changes_nothing(penstock: CommandLine) -> None:
    enqueue(penstock, 3)
    enqueue(penstock, 2, task="print", queue="press")
    fail_all(penstock)
    answer = penstock("rerun", "--state", "failed", "--task", "add", "--dry-run")
    assert answer.status == 0
    assert answer.out == "3 executions in state failed of task 'add'. Nothing was changed.\n"
    answer = penstock("cancel", "--state", "ready", "--queue", "press", "--dry-run")
    assert answer.out == "2 executions in state ready in queue 'press'. Nothing was changed.\n"
    assert counts(penstock) == {"failed": 3, "ready": 2}


def test_rerun_takes_only_what_matches(penstock: CommandLine) -> None:
    enqueue(penstock, 3)
    enqueue(penstock, 2, task="print")
    enqueue(penstock, 1, queue="press")
    for task, queue in (("add", "default"), ("print", "default"), ("add", "press")):
        fail_all(penstock, task, queue)
    choice = ("--state", "failed", "--task", "add", "--queue", "default")
    answer = penstock("rerun", *choice, "--yes")
    assert (answer.status, answer.out) == (0, "3 will run again\n")
    assert counts(penstock) == {"ready": 3, "failed": 3}


def test_cancel_ends_what_waits_and_asks_what_runs(penstock: CommandLine) -> None:
    enqueue(penstock, 2)
    with penstock.store() as store:
        store.register(WorkerInfo(id="w1", queues=["default"], tasks=["add"]))
        store.claim("w1", queues=["default"], tasks=["add"], limit=1)
    answer = penstock("cancel", "--state", "ready", "--yes", "--reason", "wrong template")
    assert (answer.status, answer.out) == (0, "1 cancelled\n")
    (cancelled,) = penstock("list", "--state", "cancelled", "--json").json
    history = penstock("history", cancelled["id"], "--json").json
    assert history[-1]["data"] == {"reason": "wrong template"}
    answer = penstock("cancel", "--state", "running", "--yes")
    assert (answer.status, answer.out) == (0, "1 running: asked to stop\n")


def test_more_than_a_batch_is_done_once_each_with_plain_lines(
    penstock: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 10)
    enqueue(penstock, 25)
    fail_all(penstock)
    answer = penstock("rerun", "--state", "failed", "--yes")
    assert (answer.status, answer.out) == (0, "25 will run again\n")
    assert answer.err.splitlines() == ["rerun: 10 of 25", "rerun: 20 of 25"]
    reruns = [
        event["type"]
        for one in penstock("list", "--json").json
        for event in penstock("history", one["id"], "--json").json
    ].count("task.rerun")
    assert reruns == 25


def test_what_fails_again_meanwhile_is_not_rerun_for_ever(
    on_sqlite: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_sqlite("admin", "migrate")
    monkeypatch.setattr(bulk, "BATCH", 2)
    enqueue(on_sqlite, 5)
    fail_all(on_sqlite)
    find = bulk._batches

    def fail_between(store: Store, choice: bulk.Choice) -> Iterator[list[str]]:
        for batch in find(store, choice):
            yield batch
            fail_all(on_sqlite)

    monkeypatch.setattr(bulk, "_batches", fail_between)
    answer = on_sqlite("rerun", "--state", "failed", "--yes")
    assert (answer.status, answer.out) == (0, "5 will run again\n")


def test_a_key_that_is_taken_leaves_out_its_execution_alone(penstock: CommandLine) -> None:
    blocked = penstock.enqueue("add", key="k")
    fail_all(penstock)
    holder = penstock.enqueue("add", key="k")
    enqueue(penstock, 2, task="print")
    fail_all(penstock, "print")
    answer = penstock("rerun", "--state", "failed", "--yes")
    assert answer.status == 1
    assert answer.out == "2 will run again\n"
    assert f"Execution {blocked} cannot be rerun: its key 'k' belongs to" in answer.err
    assert holder in answer.err
    assert counts(penstock) == {"ready": 3, "failed": 1}


def test_in_a_pipe_nothing_is_done_without_yes(penstock: CommandLine) -> None:
    enqueue(penstock, 2)
    answer = penstock("cancel", "--state", "ready")
    assert answer.status == 2
    assert answer.out == ""
    assert answer.err == (
        "This would cancel 2 executions, and there is no terminal here to ask on. "
        "Pass --yes to do it, or --dry-run to count only.\n"
    )
    assert counts(penstock) == {"ready": 2}


@pytest.mark.parametrize(
    ("typed", "status", "left"), [("y\n", 0, {"cancelled": 2}), ("n\n", 1, {"ready": 2})]
)
def test_on_a_terminal_a_person_decides(
    on_sqlite: CommandLine, typed: str, status: int, left: dict[str, int]
) -> None:
    on_sqlite("admin", "migrate")
    enqueue(on_sqlite, 2)
    arguments = ("-m", "penstock", "cancel", "--state", "ready", *on_sqlite.database)
    ended, shown = on_terminal(*arguments, types=typed)
    assert "Cancel 2 executions in state ready? [y/N]" in shown
    assert ended == status, shown
    assert ("Nothing was changed." in shown) is (status == 1)
    assert counts(on_sqlite) == left


def test_what_matches_nothing_is_no_failure(penstock: CommandLine) -> None:
    answer = penstock("rerun", "--state", "failed", "--yes")
    assert (answer.status, answer.out, answer.err) == (0, "", "No execution matches.\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("rerun",), "`penstock rerun` was not told on which executions."),
        (("cancel", "--task", "add"), "`penstock cancel` was not told on which executions."),
        (("rerun", new_id(), "--state", "failed", "--yes"), "leave out either the ids or --state"),
        (("rerun", "--state", "ready", "--yes"), "'ready' is not one of"),
        (("cancel", "--state", "failed", "--yes"), "'failed' is not one of"),
    ],
)
def test_a_misused_bulk_action_says_how_to_use_it(
    on_sqlite: CommandLine, arguments: tuple[str, ...], complaint: str
) -> None:
    on_sqlite("admin", "migrate")
    answer = on_sqlite(*arguments)
    assert answer.status == 2
    assert complaint in answer.err


def out_of_reach() -> None:
    gone = ConnectionResetError("gone")
    raise StoreUnavailable("cancel", because=gone) from gone


@pytest.mark.parametrize(
    ("stop", "stopped"),
    [
        (lambda: signal.raise_signal(signal.SIGINT), "Stopped"),
        (out_of_reach, "Stopped by the database (gone)"),
    ],
)
def test_an_action_that_is_stopped_says_how_far_it_came(
    on_sqlite: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    stop: Callable[[], None],
    stopped: str,
) -> None:
    on_sqlite("admin", "migrate")
    monkeypatch.setattr(bulk, "BATCH", 2)
    enqueue(on_sqlite, 5)
    act = bulk._act

    def interrupted(store: Store, ids: list[str], do: Any, tally: bulk._Tally) -> None:  # noqa: ANN401
        if tally.done:
            stop()
        act(store, ids, do, tally)

    monkeypatch.setattr(bulk, "_act", interrupted)
    answer = on_sqlite("cancel", "--state", "ready", "--yes")
    assert answer.status == 1
    assert answer.err.splitlines()[-1] == (
        f"{stopped}: about 2 of 5 are done, and stay done. Give the same command again for the "
        "rest."
    )
    assert counts(on_sqlite) == {"ready": 3, "cancelled": 2}


def test_an_action_that_the_database_stops_at_once_says_what_the_database_said(
    on_sqlite: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_sqlite("admin", "migrate")
    enqueue(on_sqlite, 1)
    monkeypatch.setattr(bulk, "_act", lambda *_: out_of_reach())
    answer = on_sqlite("cancel", "--state", "ready", "--yes")
    assert answer.status == 1
    assert "unknown whether it was done" in answer.err


def test_states_are_named_as_everywhere(on_sqlite: CommandLine) -> None:
    told = on_sqlite("rerun", "--help").out + on_sqlite("cancel", "--help").out
    assert all(state.value in told for state in State)
