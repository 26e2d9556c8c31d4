"""The worker command: alone, and several under a supervisor."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock import App
from penstock.cli import supervising
from penstock.cli.logs import JsonFormatter, TextFormatter
from penstock.cli.supervising import Supervisor
from tests.e2e.command_line import CommandLine, is_alive, wait_until
from tests.support.scraping import free_ports


@contextmanager
def working(penstock: CommandLine, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A worker command in the background, which is gone after the block in any case."""
    process = penstock.start("worker", "shop:app", *arguments)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def told(process: "subprocess.Popen[str]", *, within: float = 30) -> str:
    _, errors = process.communicate(timeout=within)
    return errors


def pids(penstock: CommandLine) -> set[int]:
    """The processes of the workers that count as alive."""
    return {int(worker["name"].rpartition(":")[2]) for worker in penstock("workers", "--json").json}


def test_until_idle_does_all_that_is_due_and_ends(penstock: CommandLine) -> None:
    penstock.open_shop()
    due = [penstock.enqueue("add", f'{{"a":{n},"b":1}}') for n in range(5)]
    answer = penstock.alone("worker", "shop:app", "--until-idle", "--slots", "2")
    assert answer.status == 0, answer.err
    shown = [penstock("show", one, "--json").json for one in due]
    assert [(one["state"], one["result"]) for one in shown] == [
        ("completed", n + 1) for n in range(5)
    ]
    assert penstock("workers", "--json").json == []


def test_a_worker_serves_the_queues_that_it_is_given(on_sqlite: CommandLine) -> None:
    on_sqlite.open_shop()
    on_sqlite("admin", "migrate")
    ours = on_sqlite.enqueue("add", '{"a":1,"b":1}', queue="mail")
    other = on_sqlite.enqueue("add", '{"a":1,"b":1}', queue="press")
    arguments = ("worker", "shop:app", "--until-idle", "--queue", "mail", "--queue", "post")
    assert on_sqlite.alone(*arguments).status == 0
    assert on_sqlite("show", ours, "--json").json["state"] == "completed"
    assert on_sqlite("show", other, "--json").json["state"] == "ready"


@pytest.mark.parametrize("more", [(), ("--processes", "2")], ids=["one process", "two processes"])
def test_what_an_idle_worker_leaves_because_nobody_knows_it_is_named_once(
    on_sqlite: CommandLine, more: tuple[str, ...]
) -> None:
    on_sqlite.open_shop()
    on_sqlite("admin", "migrate")
    with closing(App(on_sqlite.url)) as elsewhere:
        for _ in range(3):
            elsewhere.enqueue("ad", {"a": 1, "b": 2})
        elsewhere.enqueue("resize", {"page": 1})
        elsewhere.enqueue("resize", {"page": 1}, queue="images")
    answer = on_sqlite.alone("worker", "shop:app", "--until-idle", *more)
    assert answer.status == 0
    (line,) = (line for line in answer.err.splitlines() if "nobody here knows" in line)
    assert "5 ready tasks are left, of 2 names" in line
    assert "'ad' (3, did you mean 'add'?), 'resize' (2). Run a worker with the App" in line
    assert "--import" in line

    served = on_sqlite.alone("worker", "shop:app", "--until-idle", "--queue", "images", *more).err
    assert "1 ready task is left, of a name that nobody here knows: 'resize' (1)." in served
    on_sqlite("cancel", "--state", "ready", "--yes")
    assert "nobody here knows" not in on_sqlite.alone("worker", "shop:app", "--until-idle").err


def test_a_record_made_inside_a_task_carries_its_execution(on_sqlite: CommandLine) -> None:
    on_sqlite.open_shop()
    on_sqlite("admin", "migrate")
    execution_id = on_sqlite.enqueue("add", '{"a":1,"b":2}')
    arguments = ("worker", "shop:app", "--until-idle", "--log-format")
    as_json = on_sqlite.alone(*arguments, "json").err
    records = [json.loads(line) for line in as_json.splitlines()]
    (inside,) = (record for record in records if record["logger"] == "shop")
    assert (
        inside
        | {
            "level": "info",
            "message": "adding 1 and 2",
            "execution_id": execution_id,
        }
        == inside
    )
    assert {"execution_id": None, "logger": "penstock.worker"}.items() <= records[0].items()
    assert not any("extra" in record for record in records)
    (pid,) = {record["pid"] for record in records}
    assert pid not in {None, os.getpid()}

    on_sqlite("rerun", execution_id)
    as_text = on_sqlite.alone(*arguments, "text").err
    assert f"INFO shop [{execution_id}]: adding 1 and 2" in as_text


def test_a_message_cannot_look_like_another_line_of_the_log(on_sqlite: CommandLine) -> None:
    on_sqlite.open_shop()
    on_sqlite("admin", "migrate")
    forged = "2030-01-31 08:00:00.000 INFO penstock.worker: all is well"
    on_sqlite.enqueue("break_down", json.dumps({"what": f"a wheel\n{forged}"}))
    lines = on_sqlite.alone("worker", "shop:app", "--until-idle").err.splitlines()
    assert forged not in lines
    told = f"failed for good: RuntimeError: a wheel\\n{forged}"
    assert any(line.endswith(told) for line in lines)


def test_a_traceback_in_the_text_log_keeps_its_lines() -> None:
    with pytest.raises(ValueError, match="no page") as raised:
        int("no page")
    error = (raised.type, raised.value, raised.tb)
    record = logging.LogRecord("shop", logging.ERROR, __file__, 1, "it\nbroke\n", None, error)
    head, *below = TextFormatter().format(record).splitlines()
    assert head.endswith("ERROR shop: it\\nbroke")
    assert below[0] == "Traceback (most recent call last):"
    assert below[-1].startswith("ValueError: ")


class Unspeakable:
    """A value that cannot even say what it is."""

    def __repr__(self) -> str:
        raise ValueError


def test_the_json_log_has_the_extra_of_a_record_whatever_it_is() -> None:
    within_itself: list[object] = []
    within_itself.append(within_itself)
    extra = {
        "order": 7,
        "level": "theirs",
        "path": Path("a/b"),
        "half": "\ud800",
        "halves": ["\ud800"],
        "loop": within_itself,
        "secret": Unspeakable(),
    }
    record = logging.getLogger("shop").makeRecord(
        "shop", logging.INFO, __file__, 1, "paid %d", (3,), None, extra=extra
    )
    told = json.loads(JsonFormatter().format(record))
    assert (told["level"], told["message"]) == ("info", "paid 3")
    assert "Unspeakable object at" in told["extra"].pop("secret")
    assert told["extra"] == {
        "order": 7,
        "level": "theirs",
        "path": "a/b",
        "half": "\\ud800",
        "halves": "['\\ud800']",
        "loop": "[[...]]",
    }


def test_a_worker_says_which_queues_it_was_told_to_serve(penstock: CommandLine) -> None:
    penstock.open_shop()
    arguments = ("worker", "shop:app", "--until-idle")
    assert " from queue " not in penstock.alone(*arguments).err
    chosen = penstock.alone(*arguments, "--queue", "slow", "--queue", "default").err
    assert "break_down, linger, nap from queue slow and default alone, in " in chosen
    assert "WARNING" not in chosen
    misspelt = penstock.alone(*arguments, "--queue", "slwo", "--queue", "x").err
    assert (
        "the queue 'slwo' is that of no task here, and nothing in it is ready: did you mean 'slow'?"
        in misspelt
    )
    assert (
        "queue 'x' is that of no task here, and nothing in it is ready: theirs are default, slow"
        in misspelt
    )
    penstock.enqueue("somebody_elses", queue="slwo")
    assert "slwo' is that of no task" not in penstock.alone(*arguments, "--queue", "slwo").err


def test_the_log_level_decides_what_is_worth_a_line(on_sqlite: CommandLine) -> None:
    on_sqlite.open_shop()
    on_sqlite("admin", "migrate")
    on_sqlite.enqueue("break_down", '{"what":"a wheel"}')
    answer = on_sqlite.alone("worker", "shop:app", "--until-idle", "--log-level", "error")
    assert answer.status == 0
    (line,) = answer.err.splitlines()
    assert line.endswith("failed for good: RuntimeError: a wheel")


def test_a_signal_gives_back_what_cannot_finish_and_ends_in_good_order(
    penstock: CommandLine,
) -> None:
    penstock.open_shop()
    execution_id = penstock.enqueue("nap", queue="slow")
    with working(penstock, "--grace", "0s") as process:
        wait_until((penstock.directory / "napping").exists)
        process.send_signal(signal.SIGTERM)
        errors = told(process)
    assert process.returncode == 0, errors
    assert penstock("show", execution_id, "--json").json["state"] == "ready"
    history = penstock("history", execution_id, "--json").json
    assert [event["type"] for event in history].count("task.released") == 1


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_module_that_ends_the_program_is_told_as_one_that_fails(
    on_sqlite: CommandLine, capfd: pytest.CaptureFixture[str], processes: tuple[str, ...]
) -> None:
    (on_sqlite.directory / "ends.py").write_text("import sys\nsys.exit(0)\n", "utf-8")
    answer = on_sqlite("worker", "ends:app", "--until-idle", *processes)
    assert answer.status == 1
    assert "SystemExit: 0" in answer.err + capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("no_such_module:app",), "There is no module 'no_such_module'"),
        (("shop.py:app",), "Leave out the ending: `shop`"),
        (("./shop.py:app",), "A module is written with dots instead, from here: `shop`"),
        (("/srv/shop/jobs.py:app",), "Change to /srv/shop and write `jobs`"),
        (("../shop/jobs.py:app",), "Change to ../shop and write `jobs`"),
        (("jobs/mail:app",), "A module is written with dots instead, from here: `jobs.mail`"),
        (("shop:app", "--import", "no_such_module"), "There is no module 'no_such_module'"),
        (("shop:missing",), "Its App is `shop:app`"),
        (("empty:app",), "knows no task"),
        (("shop:app", "--slots", "0"), "--slots"),
        (("shop:app", "--grace", "soon"), "not a duration"),
        (("shop:app", "--queue", ""), "queues=''"),
        (("shop:app", "--processes", "0"), "--processes"),
        (("no_such_module:app", "--processes", "2"), "There is no module 'no_such_module'"),
    ],
)
def test_a_misused_worker_says_why(
    on_sqlite: CommandLine, arguments: tuple[str, ...], complaint: str
) -> None:
    on_sqlite.open_shop()
    (on_sqlite.directory / "empty.py").write_text(
        "from penstock import App\napp = App()\n", "utf-8"
    )
    answer = on_sqlite.alone("worker", *arguments)
    assert answer.status == 2
    assert complaint in answer.err
    assert "Traceback" not in answer.err


def test_a_worker_on_postgres_without_tables_says_how_to_make_them(
    on_postgres: CommandLine,
) -> None:
    on_postgres.open_shop()
    answer = on_postgres.alone("worker", "shop:app", "--until-idle")
    assert answer.status == 1
    assert "penstock admin migrate" in answer.err
    assert "Traceback" not in answer.err


def test_a_thread_that_a_task_left_behind_does_not_keep_the_process(
    on_sqlite: CommandLine,
) -> None:
    on_sqlite.open_shop()
    on_sqlite("admin", "migrate")
    execution_id = on_sqlite.enqueue("linger")
    answer = on_sqlite.alone("worker", "shop:app", "--until-idle")
    assert answer.status == 0
    assert answer.err.endswith("the worker has ended in good order\n")
    assert on_sqlite("show", execution_id, "--json").json["state"] == "completed"


# --- several processes ----------------------------------------------------------------


def test_several_processes_do_all_that_is_due_and_end(penstock: CommandLine) -> None:
    penstock.open_shop()
    for n in range(20):
        penstock.enqueue("add", f'{{"a":{n},"b":1}}')
    answer = penstock.alone("worker", "shop:app", "--processes", "2", "--until-idle")
    assert answer.status == 0, answer.err
    assert answer.err.count("a worker starts") == 2
    assert penstock("status", "--json").json["states"]["completed"] == 20


def test_a_worker_process_that_is_killed_is_replaced(on_sqlite: CommandLine) -> None:
    on_sqlite.open_shop()
    on_sqlite("admin", "migrate")
    with working(on_sqlite, "--processes", "2") as process:
        wait_until(lambda: len(pids(on_sqlite)) == 2)
        first = pids(on_sqlite)
        victim = min(first)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: victim not in pids(on_sqlite) and len(pids(on_sqlite)) == 2)
        now = pids(on_sqlite)
        assert len(now & first) == 1
        process.send_signal(signal.SIGTERM)
        errors = told(process)
    assert process.returncode == 0, errors
    assert f"worker process {victim} was killed by SIGKILL" in errors
    assert not any(is_alive(pid) for pid in now)
    assert on_sqlite("workers", "--json").json == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of this death")
def test_worker_processes_die_with_their_supervisor(on_sqlite: CommandLine) -> None:
    on_sqlite.open_shop()
    on_sqlite("admin", "migrate")
    with working(on_sqlite, "--processes", "2") as process:
        wait_until(lambda: len(pids(on_sqlite)) == 2)
        children = pids(on_sqlite)
        process.kill()
        wait_until(lambda: not any(is_alive(pid) for pid in children))


def test_the_second_signal_reaches_every_worker_process(on_sqlite: CommandLine) -> None:
    on_sqlite.open_shop()
    on_sqlite("admin", "migrate")
    execution_id = on_sqlite.enqueue("nap", queue="slow")
    with working(on_sqlite, "--processes", "2", "--grace", "10m") as process:
        wait_until(lambda: len(pids(on_sqlite)) == 2)
        wait_until((on_sqlite.directory / "napping").exists)
        process.send_signal(signal.SIGINT)
        # The idle one ends at once; the other one waits for its task, for ten minutes.
        wait_until(lambda: len(pids(on_sqlite)) == 1)
        process.send_signal(signal.SIGINT)
        errors = told(process)
    assert process.returncode == 0, errors
    assert on_sqlite("show", execution_id, "--json").json["state"] == "ready"


@pytest.mark.parametrize(
    ("module", "database", "complaint"),
    [
        ("shop", "postgresql://me:secret@localhost:1/shop", "does not answer"),
        ("shop", "sqlite:///no/such/directory/shop.db", "There can be no SQLite file"),
        ("broken", "sqlite:///shop.db", "ValueError: this module is broken"),
    ],
)
def test_several_processes_that_cannot_begin_end_the_command(
    tmp_path: Path, module: str, database: str, complaint: str
) -> None:
    penstock = CommandLine(tmp_path, database)
    penstock.open_shop()
    (tmp_path / "broken.py").write_text("raise ValueError('this module is broken')\n", "utf-8")
    answer = penstock.alone("worker", f"{module}:app", "--processes", "2")
    assert answer.status == 1
    assert complaint in answer.err
    assert "another one starts" not in answer.err


def test_a_taken_port_ends_all_processes(on_sqlite: CommandLine) -> None:
    on_sqlite.open_shop()
    on_sqlite("admin", "migrate")
    port = free_ports(2)
    with socket.create_server(("127.0.0.1", port + 1)):
        answer = on_sqlite.alone(
            "worker", "shop:app", "--processes", "2", "--metrics-port", str(port)
        )
    assert answer.status == 1
    assert f"port {port + 1}" in answer.err
    assert "another one starts" not in answer.err
    assert on_sqlite("workers", "--json").json == []


# --- the supervisor by itself ---------------------------------------------------------


def ending_with(*statuses: int) -> Callable[[], "subprocess.Popen[bytes]"]:
    """Start processes that end at once: each with the next status, and then with the last."""
    left = list(statuses)

    def start() -> "subprocess.Popen[bytes]":
        status = left.pop(0) if len(left) > 1 else left[0]
        return subprocess.Popen(["/bin/sh", "-c", f"exit {status}"])

    return start


def test_a_process_that_was_used_wrongly_is_not_tried_again() -> None:
    assert Supervisor(ending_with(2), processes=2).run() == 2


def test_a_process_that_never_began_to_work_ends_them_all() -> None:
    assert Supervisor(ending_with(supervising.NEVER_BEGAN), processes=2).run() == 1


def test_a_process_that_cannot_begin_after_one_that_worked_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervising, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(supervising, "LOOK_EVERY", 0.001)
    start = ending_with(1, supervising.NEVER_BEGAN, supervising.NEVER_BEGAN, 0)
    assert Supervisor(start, processes=1, until_idle=True).run() == 0


def test_a_process_that_breaks_down_is_started_until_it_ends_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervising, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(supervising, "LOOK_EVERY", 0.001)
    assert Supervisor(ending_with(1, 1, 70, 0), processes=1, until_idle=True).run() == 0


def test_pauses_grow_while_a_process_dies_at_once_and_have_an_end() -> None:
    pauses = [supervising._pause_after(deaths) for deaths in range(1, 20)]
    assert pauses == sorted(pauses)
    assert pauses[1] == 2 * pauses[0] > 0
    assert pauses[-1] == supervising.LONGEST_PAUSE
    assert supervising._pause_after(0) == 0
