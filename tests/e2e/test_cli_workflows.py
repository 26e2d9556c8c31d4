"""Runs of workflows on the command line: graph, list, show, history, why, pause, resume, cancel."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock import App, Context, TaskHandle, Workflow, failed, value
from tests.e2e.command_line import CommandLine, run
from tests.e2e.flows import work

MODULE = """
from dataclasses import dataclass

from penstock import App, Context, all_done

app = App()


@dataclass
class Daily:
    day: str


daily = app.workflow("daily", inputs=Daily)


@daily.task
def fetch(day: str) -> list[int]:
    return [1, 2]


@daily.task(when=all_done)
def total(ids: list[int] | None = fetch.output) -> int:
    return sum(ids or [])
"""


@dataclass
class Daily:
    day: str
    divisor: int = 1


@dataclass
class Shop:
    """A workflow of this process, on the database that the command line looks at."""

    app: App
    daily: Workflow[...]

    def start(self, **inputs: object) -> str:
        return self.daily.start(day="monday", **inputs).id


@pytest.fixture
def shop(penstock: CommandLine) -> Iterator[Shop]:
    app = App(penstock.url, schema=penstock.schema)
    daily = app.workflow("daily", inputs=Daily)

    @daily.task
    def fetch(day: str, context: Context) -> int:
        context["fetched"] = day
        return len(day)

    @daily.task(retry=None)
    def share(divisor: int, n: int = fetch.output) -> int:
        return n // divisor

    @daily.task(after=[share], when=failed(share) & (value("fetched") == "tuesday"))
    def rescue() -> None: ...

    yield Shop(app, daily)
    app.close()


def test_a_workflow_is_drawn_from_its_code(tmp_path: Path) -> None:
    (tmp_path / "flow_shop.py").write_text(MODULE, "utf-8")
    drawn = run("-m", "penstock", "graph", "flow_shop:app", "daily")
    assert drawn.out.splitlines() == [
        "flowchart TD",
        '    fetch["fetch"]',
        '    total["total<br/>when all_done"]',
        "    fetch -->|ids| total",
    ]
    text = run("-m", "penstock", "graph", "flow_shop:app", "--format", "text")
    assert text.out.splitlines() == [
        "daily(day: str)",
        "  1  fetch  takes day",
        "  2  total  ids from fetch; when all_done",
    ]
    misspelt = run("-m", "penstock", "graph", "flow_shop:app", "dayly")
    assert misspelt.status == 2
    assert misspelt.err == "This App has no workflow named 'dayly'. Did you mean 'daily'?\n"


def test_runs_are_listed_by_workflow_and_state(penstock: CommandLine, shop: Shop) -> None:
    good, bad = shop.start(), shop.start(divisor=0)
    work(shop.app)
    listed = penstock("list", "--workflow", "daily", "--json").json
    assert [run["id"] for run in listed] == [bad, good]
    assert listed[0]["error"]["tasks"] == ["share"]
    assert listed[1]["inputs"] == {"day": "monday", "divisor": 1}
    failed_ones = penstock("list", "--runs", "--state", "failed").out
    assert bad in failed_ones
    assert good not in failed_ones
    assert penstock("list", "--workflow", "gone").err == "No run matches.\n"
    refused = penstock("list", "--runs", "--state", "ready")
    assert "a run of a workflow has no such state" in refused.err
    assert "add --runs" in penstock("list", "--state", "paused").err
    assert penstock("list", "--runs", "--task", "t").status == 2
    # Its tasks are executions like any other.
    assert len(penstock("list", "--task", "daily.share", "--json").json) == 2


def test_a_run_is_shown_with_its_tasks_and_its_context(penstock: CommandLine, shop: Shop) -> None:
    run_id = shop.start(divisor=0)
    work(shop.app)
    shown = penstock("show", run_id, "--json").json
    assert shown["state"] == "failed"
    assert shown["context"] == {"day": "monday", "divisor": 0, "fetched": "monday"}
    assert {name: one["state"] for name, one in shown["tasks"].items()} == {
        "fetch": "completed",
        "share": "failed",
        "rescue": "skipped",
    }
    text = penstock("show", run_id).out
    assert "3 of 3 have ended" in text
    assert "ZeroDivisionError" in text
    assert "as in the newest run" in text
    task_id = shown["tasks"]["share"]["id"]
    assert penstock("show", task_id, "--json").json["task"] == "daily.share"
    beside = penstock("show", task_id, "--app", "flow_shop:app").err
    assert "--app is for runs of workflows; this is an execution of a task." in beside


def test_a_run_says_when_the_code_has_changed_since_it_started(
    penstock: CommandLine, shop: Shop
) -> None:
    run_id = shop.start()

    @shop.daily.task
    def more() -> None: ...

    newer = shop.start()
    assert f"changed since it started: run {newer} started with another version" in (
        penstock("show", run_id).out
    )
    (penstock.directory / "flow_shop.py").write_text(MODULE, "utf-8")
    told = penstock.alone("show", newer, "--app", "flow_shop:app").out
    assert "changed since it started: flow_shop:app has another version" in told


def test_the_history_of_a_run_names_its_tasks(penstock: CommandLine, shop: Shop) -> None:
    run_id = shop.start()
    work(shop.app)
    lines = penstock("history", run_id).out.splitlines()
    assert lines[0].split() == ["AT", "AFTER", "TASK", "EVENT", "WORKER", "DETAILS"]
    assert "workflow.started" in lines[1]
    assert any("share" in line and "task.marked_ready" in line for line in lines)
    assert "workflow.completed" in lines[-1]
    events = penstock("history", run_id, "--json").json
    assert events[0]["execution_id"] is None
    (one, *_) = (event["execution_id"] for event in events if event["execution_id"])
    of_task = penstock("history", one).out.splitlines()
    assert of_task[0].split() == ["AT", "AFTER", "EVENT", "WORKER", "DETAILS"]


def test_why_says_what_a_run_and_its_tasks_wait_for(penstock: CommandLine, shop: Shop) -> None:
    run_id = shop.start(divisor=0)
    tasks = penstock("show", run_id, "--json").json["tasks"]
    ids = {name: one["id"] for name, one in tasks.items()}

    def codes(id_: str) -> list[str]:
        return [reason["code"] for reason in penstock("why", id_, "--json").json["reasons"]]

    assert codes(run_id) == ["running"]
    assert "under way: 'fetch' ready" in penstock("why", run_id).out
    assert codes(ids["share"])[0] == "dependencies"
    assert "1 task that it depends on has not ended: 'fetch' ready" in (
        penstock("why", ids["share"]).out
    )
    penstock("pause", run_id)
    assert codes(run_id)[0] == codes(ids["fetch"])[0] == "run_paused"
    penstock("resume", run_id)
    work(shop.app)
    assert codes(run_id) == ["failed"]
    assert "'share' with ZeroDivisionError" in penstock("why", run_id).out
    assert codes(ids["rescue"]) == ["skipped"]
    assert "failed(share) & (value('fetched') == 'tuesday'), did not hold" in (
        penstock("why", ids["rescue"]).out
    )


def test_what_waits_without_a_worker_is_under_way(penstock: CommandLine, shop: Shop) -> None:
    asking = shop.app.workflow("asking")

    @asking.task
    def ask(handle: TaskHandle) -> None:
        handle.wait_for(signal="go")

    @asking.task
    def items() -> list[int]:
        return [1, 2]

    @asking.task(for_each=items.output)
    def each(handle: TaskHandle, item: int) -> None:
        handle.wait_for(signal=f"go {item}")

    run = asking.start()
    work(shop.app)
    assert "1 of its 3 tasks have ended; under way: 'ask' waiting, 'each' waiting." in (
        " ".join(penstock("why", run.id).out.split())
    )


def test_a_task_is_not_rerun_while_what_is_downstream_of_it_lives(
    penstock: CommandLine, shop: Shop
) -> None:
    flow = shop.app.workflow("halted")

    @flow.task
    def first() -> int:
        return 1

    @flow.task(queue="nobody_serves_it")
    def second(n: int = first.output) -> int:
        return n

    run = flow.start()
    with shop.app.worker(slots=1, queues=["default"]) as worker:
        worker.wait_until_idle()
    answer = penstock("rerun", run.refresh()[first].id)
    assert (answer.status, answer.out) == (
        1,
        f"{run[first].id} not rerun: it, or a task downstream of it, has not ended yet\n",
    )


def test_a_failed_run_is_rerun_by_its_id(penstock: CommandLine, shop: Shop) -> None:
    good, bad = shop.start(), shop.start(divisor=0)
    work(shop.app)
    answer = penstock("rerun", bad)
    assert answer.status == 0
    assert "what failed or was cancelled will run again" in answer.out
    assert shop.daily.get(bad).state == "running"
    answer = penstock("rerun", good)
    assert (answer.status, answer.out) == (
        1,
        f"{good} a run without failures: nothing to rerun\n",
    )


def test_a_run_is_paused_resumed_and_cancelled_by_its_id(penstock: CommandLine, shop: Shop) -> None:
    run_id = shop.start()
    assert penstock("pause", run_id).out == f"{run_id} paused\n"
    assert penstock("pause", run_id.upper()).out == f"{run_id} was paused already\n"
    assert penstock("resume", run_id).out == f"{run_id} resumed\n"
    assert "a run: what has not begun is cancelled" in (
        penstock("cancel", run_id, "--reason", "no more").out
    )
    assert shop.daily.get(run_id).state == "cancelled"
    again = penstock("cancel", run_id)
    assert (again.status, again.out) == (1, f"{run_id} had ended already: nothing to cancel\n")
    assert penstock("resume", run_id).status == 1
    nowhere = "0197a000-0000-7000-8000-000000000000"
    for command in ("pause", "resume", "cancel", "show", "history", "why"):
        answer = penstock(command, nowhere)
        assert answer.status == 1
        assert "No execution has the id" in answer.err
    assert penstock("pause", "mail").out == "mail: paused\n"
