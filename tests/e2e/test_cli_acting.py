"""enqueue, cancel, rerun, pause, resume."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.model.ids import new_id
from penstock.model.workers import WorkerInfo
from tests.e2e.command_line import CommandLine


def test_enqueue_writes_one_execution_as_asked(penstock: CommandLine) -> None:
    penstock.open_shop()
    answer = penstock.alone(
        *("enqueue", "shop:app", "add", '{"a": 1, "b": 2}', "--queue", "sums", "--priority", "7"),
        *("--run-after", "1h", "--key", "k", "--serial", "s", "--json"),
    )
    assert answer.status == 0, answer.err
    (stored,) = penstock("list", "--json").json
    assert stored == answer.json
    asked = {
        "task": "add",
        "state": "scheduled",
        "args": {"a": 1, "b": 2},
        "queue": "sums",
        "priority": 7,
        "key": "k",
        "serial": "s",
    }
    assert stored | asked == stored


def test_enqueue_of_a_key_that_lives_names_the_one_that_has_it(on_sqlite: CommandLine) -> None:
    on_sqlite.open_shop()
    arguments = ("enqueue", "shop:app", "add", '{"a": 1, "b": 2}', "--key", "k")
    first, second = on_sqlite.alone(*arguments), on_sqlite.alone(*arguments)
    execution_id = first.out.split()[0]
    assert first.out == f"{execution_id} ready\n"
    assert second.out == f"{execution_id} ready: it has this key already\n"
    assert (first.status, second.status) == (0, 0)


def test_enqueue_takes_a_moment_with_its_zone(on_sqlite: CommandLine) -> None:
    on_sqlite.open_shop()
    arguments = ("enqueue", "shop:app", "add", '{"a": 1, "b": 2}', "--json", "--run-after")
    assert on_sqlite.alone(*arguments, "2100-01-31T08:00+01:00").json["run_at"] == (
        "2100-01-31T07:00:00Z"
    )
    without_zone = on_sqlite.alone(*arguments, "2100-01-31T08:00")
    assert without_zone.status == 2
    assert "time zone" in without_zone.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("shop:app", "add", "{a: 1}"), "it is not JSON"),
        (("shop:app", "add", "[1, 2]"), "the arguments go by name"),
        (("shop:app", "add", '{"a": 1}'), "'b'"),
        (("shop:app", "add", '{"a": 1, "b": "two"}'), "b='two' does not fit int"),
        (("shop:app", "ad", "{}"), "Did you mean 'add'?"),
        (("shop:app", "add", "{}", "--run-after", "soon"), "run_after='soon' is not possible"),
        (("shop:app", "add", '{"a": 1, "b": 2}', "--priority", "x"), "--priority"),
        (("shop:app", "add", '{"a": 1, "b": 2}', "--queue", ""), "queue=''"),
        (("shop:ap", "add", "{}"), "Its App is `shop:app`"),
        (("shop:elsewhere", "add", "{}"), "that is of type int and no App"),
        (("shop", "add", "{}"), "as in `orders:app`"),
        (("no_such_module:app", "add", "{}"), "There is no module 'no_such_module'"),
        (("shop:app", "add", "{}", "--import", "no_such_module"), "no module 'no_such_module'"),
    ],
)
def test_a_misused_enqueue_says_why_and_writes_nothing(
    on_sqlite: CommandLine, arguments: tuple[str, ...], complaint: str
) -> None:
    on_sqlite.open_shop()
    on_sqlite("admin", "migrate")
    answer = on_sqlite.alone("enqueue", *arguments)
    assert answer.status == 2
    assert complaint in answer.err
    assert "Traceback" not in answer.err
    assert on_sqlite("list", "--json").json == []


@pytest.mark.parametrize("how", ["named", "imported", "included"])
def test_an_error_in_the_users_module_keeps_the_traceback_that_is_its_own(
    on_sqlite: CommandLine, how: str
) -> None:
    on_sqlite.open_shop()
    (on_sqlite.directory / "broken.py").write_text("import missing_dependency\n", "utf-8")
    (on_sqlite.directory / "including.py").write_text(
        "from penstock import App\napp = App(include=['broken'])\n", "utf-8"
    )
    arguments = {
        "named": ("broken:app", "add"),
        "imported": ("shop:app", "add", "--import", "broken"),
        "included": ("including:app", "add"),
    }
    answer = on_sqlite.alone("enqueue", *arguments[how])
    assert answer.status == 1
    assert f"What '{arguments[how][0]}' names could not be imported" in answer.err
    traceback = answer.err[answer.err.index("Traceback") :].splitlines()
    assert traceback[1].endswith('broken.py", line 1, in <module>')
    assert traceback[-1] == "ModuleNotFoundError: No module named 'missing_dependency'"


def test_a_mistake_of_syntax_is_shown_where_it_is(on_sqlite: CommandLine) -> None:
    (on_sqlite.directory / "broken.py").write_text("app = App(\n", "utf-8")
    answer = on_sqlite.alone("worker", "broken:app")
    assert answer.status == 1
    assert 'broken.py", line 1' in answer.err
    assert "Traceback" not in answer.err
    assert answer.err.splitlines()[-1] == "SyntaxError: '(' was never closed"


def test_tasks_of_another_module_are_taken_in(on_sqlite: CommandLine) -> None:
    on_sqlite.open_shop()
    module = (
        "from penstock import Registry\nmore = Registry()\n@more.task\ndef wave() -> None: ...\n"
    )
    (on_sqlite.directory / "elsewhere.py").write_text(module, "utf-8")
    answer = on_sqlite.alone("enqueue", "shop:app", "wave", "--import", "elsewhere")
    assert answer.status == 0, answer.err


def test_cancel_ends_what_waits_and_asks_what_runs(penstock: CommandLine) -> None:
    running = penstock.enqueue("add")
    with penstock.store() as store:
        store.register(WorkerInfo(id="w1", queues=["default"], tasks=["add"]))
        store.claim("w1", queues=["default"], tasks=["add"], limit=1)
    waiting = penstock.enqueue("add")
    answer = penstock("cancel", running, waiting, "--reason", "a mistake")
    assert answer.status == 0
    assert answer.out.splitlines() == [f"{running} running: asked to stop", f"{waiting} cancelled"]
    assert penstock("show", waiting, "--json").json["state"] == "cancelled"
    assert penstock("history", waiting, "--json").json[-1]["data"] == {"reason": "a mistake"}


def test_rerun_gives_an_ended_execution_a_new_life(penstock: CommandLine) -> None:
    execution_id = penstock.enqueue("add")
    assert penstock("rerun", execution_id).status == 1
    penstock("cancel", execution_id)
    answer = penstock("rerun", execution_id)
    assert (answer.status, answer.out) == (0, f"{execution_id} will run again\n")
    assert penstock("show", execution_id, "--json").json["state"] == "ready"


def test_rerun_of_what_is_scheduled_makes_it_ready_at_once(penstock: CommandLine) -> None:
    execution_id = penstock.enqueue("add", delay=timedelta(hours=1))
    answer = penstock("rerun", execution_id)
    assert (answer.status, answer.out) == (0, f"{execution_id} was scheduled, and is ready now\n")
    assert penstock("show", execution_id, "--json").json["state"] == "ready"
    assert "somebody asked for it" in penstock("history", execution_id).out
    again = penstock("rerun", execution_id)
    assert (again.status, again.out) == (
        1,
        f"{execution_id} not rerun: it, or a task downstream of it, has not ended yet\n",
    )


@pytest.mark.parametrize("command", ["cancel", "rerun"])
def test_an_unknown_id_is_told_and_the_others_are_done(penstock: CommandLine, command: str) -> None:
    known, unknown = penstock.enqueue("add"), new_id()
    if command == "rerun":
        penstock("cancel", known)
    answer = penstock(command, unknown, known)
    assert answer.status == 1
    assert f"No execution has the id '{unknown}'" in answer.err
    assert answer.out.startswith(known)
    assert len(answer.out.splitlines()) == 1


@pytest.mark.parametrize("command", ["cancel", "rerun"])
def test_an_id_that_is_none_stops_the_command_before_anything_is_done(
    on_sqlite: CommandLine, command: str
) -> None:
    on_sqlite("admin", "migrate")
    known = on_sqlite.enqueue("add")
    assert on_sqlite(command, known, "abc").status == 2
    assert on_sqlite("show", known, "--json").json["state"] == "ready"
    assert on_sqlite(command).status == 2


def test_a_paused_queue_gives_nothing_until_it_is_resumed(penstock: CommandLine) -> None:
    penstock.enqueue("add", queue="mail")

    def claimed() -> int:
        with penstock.store() as store:
            store.register(WorkerInfo(id="w1", queues=["mail"], tasks=["add"]))
            return len(store.claim("w1", queues=["mail"], tasks=["add"], limit=1))

    assert penstock("pause", "mail").out == "mail: paused\n"
    assert penstock("pause", "mail").out == "mail: was paused already\n"
    assert claimed() == 0
    assert penstock("resume", "mail").out == "mail: resumed\n"
    assert penstock("resume", "mail").out == "mail: was not paused\n"
    assert claimed() == 1


def test_pausing_a_queue_that_nobody_knows_says_so_and_pauses_it(penstock: CommandLine) -> None:
    alone = penstock("pause", "mial")
    assert (alone.status, alone.out) == (0, "mial: paused\n")
    assert alone.err == (
        "No worker serves the queue 'mial', and nothing is in it. "
        "No other queue is served or has anything ready, either.\n"
    )
    with penstock.store() as store:
        store.register(WorkerInfo(id="w1", queues=["mail"], tasks=["add"]))
    penstock.enqueue("add", queue="press")
    assert penstock("pause", "mial").err.endswith("is in it. Did you mean 'mail'?\n")
    assert penstock("pause", "zzz").err.endswith("is in it. There are mail, press.\n")
    penstock.enqueue("add", queue="later", run_at=datetime.now(UTC) + timedelta(days=1))
    for known in ("mail", "press", "later"):
        assert penstock("pause", known).err == ""
    assert penstock("status", "--json").json["queues"][0]["paused"]


def test_a_queue_without_a_name_cannot_be_paused(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    assert on_sqlite("pause", "").status == 2
    assert on_sqlite("resume", "\n").status == 2
