"""`penstock why`: right in every situation, on both databases, with real workers."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.engine.reasons import Code
from penstock.model.ids import new_id
from tests.docs.blocks import blocks_of
from tests.e2e.command_line import ESCAPE, CommandLine, on_terminal, wait_until

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

MODULE = """
import os
import signal
import time
from pathlib import Path

from penstock import App, TaskHandle

app = App()


def wait_for_gate() -> None:
    while not Path("gate").exists():
        time.sleep(0.02)


@app.task
def hold() -> None:
    wait_for_gate()


@app.task(max_running=1)
def hold_one() -> None:
    wait_for_gate()


@app.task
def wait_without_slot(handle: TaskHandle) -> None:
    handle.defer_until(Path("gate").exists, every="50ms", reason="the gate")


@app.task(retry=[0])
def unlucky(handle: TaskHandle) -> None:
    raise ValueError(f"attempt {handle.attempt} had no luck")


@app.task(retry=["1h"])
def unlucky_for_long() -> None:
    raise KeyError("not there yet")


@app.task
def take_the_process_along() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def shop(penstock: CommandLine) -> CommandLine:
    (penstock.directory / "shop.py").write_text(MODULE, "utf-8")
    return penstock


@contextmanager
def working(shop: CommandLine, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A worker of the shop that others can see; gone after the block in any case."""
    process = shop.start("worker", "shop:app", *arguments)
    try:
        wait_until(lambda: f":{process.pid}" in shop("workers").out)
        yield process
    finally:
        process.kill()
        process.communicate()


def codes(shop: CommandLine, execution_id: str) -> list[str]:
    return [reason["code"] for reason in told(shop, execution_id)["reasons"]]


def told(shop: CommandLine, execution_id: str) -> Any:  # noqa: ANN401 - a shape of JSON
    answer = shop("why", execution_id, "--json")
    assert answer.status == 0, answer.err
    return answer.json


def sentence(shop: CommandLine, execution_id: str, code: Code) -> str:
    (found,) = [one for one in told(shop, execution_id)["reasons"] if one["code"] == code]
    said: str = found["sentence"]
    return said


def wait_for(shop: CommandLine, execution_id: str, *expected: Code) -> None:
    wait_until(lambda: codes(shop, execution_id) == list(expected))


def test_what_no_worker_could_run_says_so(shop: CommandLine) -> None:
    alone = shop.enqueue("hold")
    assert codes(shop, alone) == [Code.NO_WORKER]

    later = shop.enqueue("hold", delay=timedelta(hours=3))
    assert codes(shop, later) == [Code.NOT_DUE, Code.NO_WORKER]
    assert "in 3h" in sentence(shop, later, Code.NOT_DUE)

    first, second = (shop.enqueue("hold", serial="order-42") for _ in range(2))
    assert codes(shop, second) == [Code.BEHIND, Code.NO_WORKER]
    assert f"hold {first} (ready for" in sentence(shop, second, Code.BEHIND)

    shop("cancel", alone, "--reason", "a mistake")
    assert codes(shop, alone) == [Code.CANCELLED]
    assert "before it began, with this reason: a mistake" in sentence(shop, alone, Code.CANCELLED)


def test_a_paused_queue_holds_back_what_a_worker_would_take(shop: CommandLine) -> None:
    shop("pause", "default")
    with working(shop):
        held = shop.enqueue("unlucky_for_long")
        assert codes(shop, held) == [Code.QUEUE_PAUSED]
        shop("resume", "default")
        wait_for(shop, held, Code.NOT_DUE)
        said = sentence(shop, held, Code.NOT_DUE)
        assert "Attempt 1 ended with KeyError: 'not there yet'; it is to be retried" in said


def test_full_slots_name_what_is_in_them(shop: CommandLine) -> None:
    with working(shop, "--slots", "1") as process:
        running = shop.enqueue("hold")
        wait_for(shop, running, Code.RUNNING)
        assert f":{process.pid}, whose last heartbeat was" in sentence(shop, running, Code.RUNNING)

        next_one, behind = shop.enqueue("hold"), shop.enqueue("hold")
        assert codes(shop, next_one) == [Code.SLOTS_FULL]
        assert f"taken; the longest by hold {running}" in sentence(shop, next_one, Code.SLOTS_FULL)
        assert codes(shop, behind) == [Code.SLOTS_FULL, Code.AHEAD]
        assert "1 ready execution comes first" in sentence(shop, behind, Code.AHEAD)

        unknown = shop.enqueue("hodl")
        assert codes(shop, unknown) == [Code.TASK_UNKNOWN]
        assert "'hold' is known" in sentence(shop, unknown, Code.TASK_UNKNOWN)
        unserved = shop.enqueue("hold", queue="elsewhere")
        assert codes(shop, unserved) == [Code.QUEUE_UNSERVED]

        shop("cancel", running)
        assert codes(shop, running) == [Code.CANCEL_REQUESTED, Code.RUNNING]
        (shop.directory / "gate").touch()
        wait_for(shop, behind, Code.COMPLETED)


def test_free_slots_are_no_use_to_what_max_running_limits(shop: CommandLine) -> None:
    with working(shop, "--slots", "5"):
        running = shop.enqueue("hold_one")
        wait_for(shop, running, Code.RUNNING)
        limited = shop.enqueue("hold_one")
        assert codes(shop, limited) == [Code.MAX_RUNNING]
        said = sentence(shop, limited, Code.MAX_RUNNING)
        assert "1 of 1 run on" in said
        assert running in said

        deferred = shop.enqueue("wait_without_slot")
        wait_for(shop, deferred, Code.DEFERRED)
        assert "for this reason: the gate" in sentence(shop, deferred, Code.DEFERRED)
        shop("cancel", deferred)
        wait_for(shop, deferred, Code.CANCELLED)
        assert "asked it to stop while it ran" in sentence(shop, deferred, Code.CANCELLED)


def test_a_failure_tells_the_error_of_each_attempt(shop: CommandLine) -> None:
    failed = shop.enqueue("unlucky")
    assert shop.alone("worker", "shop:app", "--until-idle").status == 0
    assert codes(shop, failed) == [Code.FAILED]
    assert [(one["attempt"], one["error"]) for one in told(shop, failed)["errors"]] == [
        (1, "ValueError: attempt 1 had no luck"),
        (2, "ValueError: attempt 2 had no luck"),
    ]
    assert all(one["worker_id"] for one in told(shop, failed)["errors"])


def test_a_killed_worker_is_told_before_and_after_its_recovery(
    shop: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(shop) as process:
        lost = shop.enqueue("hold")
        wait_for(shop, lost, Code.RUNNING)
        process.kill()
        process.communicate()
    ready = shop.enqueue("hold")
    with monkeypatch.context() as patch:
        # Nobody has to wait for the default lease: the command is told of a shorter one.
        patch.setenv("PENSTOCK_WORKER_HEARTBEAT", "10ms")
        patch.setenv("PENSTOCK_WORKER_LEASE", "50ms")
        wait_for(shop, lost, Code.WORKER_SILENT, Code.RUNNING)
        assert codes(shop, ready) == [Code.WORKERS_SILENT]

    shop("pause", "default")
    with working(shop):
        wait_for(shop, lost, Code.QUEUE_PAUSED, Code.SUSPECT)
        assert "(crash 1 of 3)" in sentence(shop, lost, Code.SUSPECT)
        (error,) = told(shop, lost)["errors"]
        assert re.fullmatch(r"worker \S+ died \(crash 1\)", error["error"])


def test_a_task_that_kills_its_workers_is_abandoned(shop: CommandLine) -> None:
    pill = shop.enqueue("take_the_process_along", max_crashes=2)
    # The first death came before its start was on record, so it is not charged.
    for _ in range(3):
        process = shop.start("worker", "shop:app")
        process.communicate(timeout=30)
    with working(shop):
        wait_for(shop, pill, Code.ABANDONED)
    assert "2 workers died while running it" in sentence(shop, pill, Code.ABANDONED)
    assert len(told(shop, pill)["errors"]) == 2


# --- how it is said -------------------------------------------------------------------


def test_an_unknown_id_is_something_wrong(penstock: CommandLine) -> None:
    answer = penstock("why", new_id())
    assert answer.status == 1
    assert answer.err.startswith("No execution has the id")
    assert penstock("why", "abc").status == 2


def test_the_reference_shows_what_is_printed(penstock: CommandLine) -> None:
    """The block of the page is what the command says; `…` stands for what differs each time."""
    penstock("pause", "mail")
    execution_id = penstock.enqueue("send_receipt", queue="mail")
    printed = penstock("why", execution_id).out
    (shown,) = [
        block.text.partition("\n")[2]
        for block in blocks_of(REFERENCE.read_text("utf-8"))
        if block.kind == "console"
        and block.text.startswith("$ penstock why 0199")
        and "\n$" not in block.text
    ]
    pattern = ".*".join(re.escape(part) for part in shown.split("…"))
    assert re.fullmatch(pattern, printed, re.DOTALL), printed


def test_every_code_is_in_the_reference() -> None:
    page = REFERENCE.read_text("utf-8")
    assert [code for code in Code if f"| `{code}` |" not in page] == []


def test_sentences_fit_a_terminal_and_ids_stay_whole(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    first, second = (on_sqlite.enqueue("add", serial="s") for _ in range(2))
    shown = on_terminal("-m", "penstock", "why", second, *on_sqlite.database, columns=60)
    plain = re.sub(rf"{ESCAPE}\[[0-9;]*m", "", shown)
    assert first in plain
    body = [line for line in plain.splitlines() if second not in line]
    assert max(map(len, body)) <= 60


def test_what_is_stored_cannot_command_the_terminal(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    queue = f"{ESCAPE}[2Jmail\n"
    execution_id = on_sqlite.enqueue(f"add{ESCAPE}", queue=queue)
    on_sqlite("pause", queue)
    assert ESCAPE not in on_sqlite("why", execution_id).out
