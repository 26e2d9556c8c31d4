"""list, show, history, workers, status: for people and for programs."""

from datetime import timedelta

import pytest

from penstock.cli.shapes import EXECUTION_FIELDS
from penstock.model.executions import Claimed
from penstock.model.ids import new_id
from penstock.model.outcomes import Completed, Failed
from penstock.model.workers import WorkerInfo
from tests.e2e.command_line import ESCAPE, CommandLine

BROKEN = '{"type":"ValueError","message":"no such page","traceback":"line 1\\nline 2\\n"}'


def claim(penstock: CommandLine, task: str) -> Claimed:
    with penstock.store() as store:
        store.register(WorkerInfo(id="w1", name="host:1", queues=["default"], tasks=[task]))
        (claimed,) = store.claim("w1", queues=["default"], tasks=[task], limit=1)
    return claimed


def fail(penstock: CommandLine, task: str = "print_page") -> str:
    execution_id = penstock.enqueue(task, '{"page":1}')
    lease = claim(penstock, task).lease
    with penstock.store() as store:
        assert store.settle([Failed(lease=lease, error=BROKEN)]) == []
    return execution_id


def test_an_execution_has_the_same_fields_in_list_and_show(penstock: CommandLine) -> None:
    execution_id = penstock.enqueue("add", '{"a":1,"b":2}', key="k", serial="s", priority=3)
    (listed,) = penstock("list", "--json").json
    shown = penstock("show", execution_id, "--json").json
    assert listed == shown
    assert tuple(shown) == EXECUTION_FIELDS
    expected = {
        "id": execution_id,
        "task": "add",
        "state": "ready",
        "sub_state": None,
        "queue": "default",
        "priority": 3,
        "attempt": 0,
        "key": "k",
        "serial": "s",
        "args": {"a": 1, "b": 2},
        "result": None,
        "error": None,
        "worker_id": None,
    }
    assert shown | expected == shown
    assert shown["created_at"].endswith("Z")


def test_a_number_in_a_result_keeps_all_its_digits(penstock: CommandLine) -> None:
    execution_id = penstock.enqueue("count")
    lease = claim(penstock, "count").lease
    digits = "123456789012345678901234567890.123456789012345678901234567890"
    with penstock.store() as store:
        store.settle([Completed(lease=lease, result=digits)])
    assert f'"result": {digits}' in penstock("show", execution_id, "--json").out


def test_list_shows_the_newest_first_and_only_what_matches(penstock: CommandLine) -> None:
    failed = fail(penstock)
    first = penstock.enqueue("add", queue="mail")
    second = penstock.enqueue("add", queue="mail", delay=timedelta(hours=1))

    def ids(*filters: str) -> list[str]:
        return [execution["id"] for execution in penstock("list", "--json", *filters).json]

    assert ids() == [second, first, failed]
    assert ids("--state", "failed") == [failed]
    assert ids("--task", "add") == [second, first]
    assert ids("--queue", "mail", "--state", "scheduled") == [second]
    assert ids("--limit", "2") == [second, first]
    assert ids("--task", "nothing") == []


def test_a_list_that_was_cut_says_so(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    for _ in range(3):
        on_sqlite.enqueue("add")
    cut = on_sqlite("list", "--limit", "2")
    assert len(cut.out.splitlines()) == 3
    assert "--limit" in cut.err
    assert on_sqlite("list", "--limit", "3").err == ""


def test_a_task_that_nobody_knows_is_told_with_the_name_that_was_meant(
    penstock: CommandLine,
) -> None:
    told = "No execution matches.\nNo task 'ad' is known here."
    answer = penstock("list", "--task", "ad")
    assert (answer.status, answer.out) == (0, "")
    assert answer.err == f"{told} Nothing has been enqueued here yet.\n"

    penstock.enqueue("print_page")
    assert penstock("list", "--task", "ad").err == f"{told} There are print_page.\n"
    penstock.enqueue("add")
    assert penstock("list", "--task", "ad").err == f"{told} Did you mean 'add'?\n"
    in_json = penstock("list", "--task", "ad", "--state", "failed", "--json")
    assert (in_json.json, in_json.err) == ([], "No task 'ad' is known here. Did you mean 'add'?\n")
    # Known, by what there is and by a worker that could run it: nothing to say about the name.
    assert penstock("list", "--task", "add", "--state", "failed").err == "No execution matches.\n"
    claim(penstock, "print_page")
    with penstock.store() as store:
        store.register(WorkerInfo(id="w2", queues=["default"], tasks=["ad"]))
    assert penstock("list", "--task", "ad").err == "No execution matches.\n"


def test_an_empty_list_is_no_failure(penstock: CommandLine) -> None:
    answer = penstock("list")
    assert (answer.status, answer.out, answer.err) == (0, "", "No execution matches.\n")
    assert penstock("list", "--json").json == []
    assert penstock("workers", "--json").json == []


def test_show_tells_people_the_error_with_its_traceback(penstock: CommandLine) -> None:
    told = penstock("show", fail(penstock)).out
    assert "state     failed" in told
    assert 'args      {"page":1}' in told
    assert "ValueError: no such page" in told
    assert told.endswith("line 1\nline 2\n")


def test_history_tells_every_event_in_order(penstock: CommandLine) -> None:
    execution_id = fail(penstock)
    events = penstock("history", execution_id, "--json").json
    assert [event["type"] for event in events] == [
        "task.created",
        "task.marked_ready",
        "task.claimed",
        "task.failed",
    ]
    assert set(events[0]) == {"seq", "type", "at", "execution_id", "worker_id", "data"}
    assert events[-1]["worker_id"] == "w1"
    assert events[-1]["data"]["error"]["message"] == "no such page"
    head, *lines = penstock("history", execution_id).out.splitlines()
    assert head.split() == ["AT", "AFTER", "EVENT", "WORKER", "DETAILS"]
    assert len(lines) == len(events)
    assert lines[-1].endswith("ValueError: no such page")


def test_history_does_not_say_that_a_recovered_task_had_not_started(penstock: CommandLine) -> None:
    """Its start is told a little later than it took place: the worker may have died in between."""
    execution_id = penstock.enqueue("print_page")
    claim(penstock, "print_page")
    with penstock.store() as store:
        store.register(WorkerInfo(id="w2", queues=["default"], tasks=["print_page"]))
        (beat,) = [peer.seen for peer in store.workers() if peer.info.id == "w1"]
        assert len(store.recover("w2", dead=[beat])) == 1
    *_, recovered = penstock("history", execution_id).out.splitlines()
    assert recovered.endswith("worker w1 was lost, it is not known to have started")


def test_workers_and_status_agree(penstock: CommandLine) -> None:
    info = WorkerInfo(id="w1", name="host:1", host="host", queues=["mail"], tasks=["add"], slots=4)
    with penstock.store() as store:
        store.register(info)
    penstock.enqueue("add")
    penstock("pause", "press")
    (worker,) = penstock("workers", "--json").json
    assert worker | {"id": "w1", "name": "host:1", "queues": ["mail"], "slots": 4} == worker
    status = penstock("status", "--json").json
    assert status["workers"] == [worker]
    assert [(queue["name"], queue["workers"]) for queue in status["queues"]] == [
        ("default", 0),
        ("mail", 1),
        ("press", 0),
    ]
    assert status["states"]["ready"] == 1
    assert len(status["states"]) == 8
    assert "host:1" in penstock("status").out


@pytest.mark.parametrize("command", ["show", "history"])
def test_an_unknown_id_is_something_wrong(penstock: CommandLine, command: str) -> None:
    unknown = new_id()
    answer = penstock(command, unknown)
    assert answer.status == 1
    assert answer.out == ""
    assert answer.err.startswith(f"No execution has the id '{unknown}'")
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("show", "abc"), "not an execution's id"),
        (("history", "abc"), "not an execution's id"),
        (("list", "--state", "done"), "'done' is not one of"),
        (("list", "--limit", "0"), "--limit"),
        (("show",), "Missing argument 'ID'"),
    ],
)
def test_a_misused_reading_command_says_how_to_use_it(
    on_sqlite: CommandLine, arguments: tuple[str, ...], complaint: str
) -> None:
    answer = on_sqlite(*arguments)
    assert answer.status == 2
    assert complaint in answer.err


def test_what_is_stored_cannot_command_the_terminal(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    execution_id = on_sqlite.enqueue("add", '{"a":"\x1b]0;title\x07"}', queue=f"{ESCAPE}[2Jmail\n")
    for arguments in (("list",), ("show", execution_id), ("history", execution_id)):
        told = on_sqlite(*arguments).out
        assert ESCAPE not in told
        assert "\x07" not in told
    assert "\\x1b[2Jmail\\n" in on_sqlite("list").out
