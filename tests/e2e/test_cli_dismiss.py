"""dismiss, and what else is done to many runs at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from penstock import App, Workflow
from tests.e2e.command_line import CommandLine
from tests.e2e.flows import work


@dataclass
class Day:
    day: str


@dataclass
class Shop:
    """An App of this process on the database that the command line looks at."""

    app: App
    daily: Workflow[...]

    def fail_runs(self, count: int) -> list[str]:
        ids = [self.daily.start(day="sunday").id for _ in range(count)]
        work(self.app)
        return ids


@pytest.fixture
def shop(penstock: CommandLine) -> Iterator[Shop]:
    app = App(penstock.url, schema=penstock.schema)
    daily = app.workflow("daily", inputs=Day)

    @app.task(retry=None)
    def divide(by: int) -> int:
        return 12 // by

    @daily.task(retry=None)
    def fetch(day: str) -> int:
        if day == "sunday":
            raise ValueError(day)
        return len(day)

    @daily.task
    def total(n: int = fetch.output) -> int:
        return n

    yield Shop(app, daily)
    app.close()


def run_states(penstock: CommandLine) -> dict[str, int]:
    counted: dict[str, int] = penstock("status", "--json").json["runs"]
    return {state: number for state, number in counted.items() if number}


def test_a_dismissed_execution_is_gone(penstock: CommandLine, shop: Shop) -> None:
    failed = shop.app.enqueue("divide", {"by": 0}).id
    kept = shop.app.enqueue("divide", {"by": 1}).id
    work(shop.app)

    answer = penstock("dismiss", failed)

    assert (answer.status, answer.out) == (0, f"{failed} dismissed: nothing of it is left\n")
    assert penstock("show", failed).status == 1
    answer = penstock("dismiss", kept, failed)
    assert (answer.status, answer.out) == (1, f"{kept} has not failed: nothing to dismiss\n")
    assert failed in answer.err
    assert penstock("show", kept).status == 0


def test_a_task_of_a_run_is_dismissed_with_its_run(penstock: CommandLine, shop: Shop) -> None:
    (run_id,) = shop.fail_runs(1)
    task = penstock("show", run_id, "--json").json["tasks"]["fetch"]["id"]

    answer = penstock("dismiss", task)
    assert answer.status == 1
    assert "is a task of a run" in answer.out

    assert penstock("dismiss", run_id).status == 0
    assert penstock("show", task).status == 1
    assert run_states(penstock) == {}


def test_many_are_dismissed_once_somebody_has_said_yes(penstock: CommandLine, shop: Shop) -> None:
    for _ in range(3):
        shop.app.enqueue("divide", {"by": 0})
    shop.fail_runs(2)

    answer = penstock("dismiss", "--state", "failed", "--task", "divide")
    assert (answer.status, "--yes" in answer.err) == (2, True)
    answer = penstock("dismiss", "--state", "failed", "--task", "divide", "--yes")
    assert (answer.status, answer.out) == (0, "3 dismissed\n")
    answer = penstock("dismiss", "--state", "failed", "--yes")
    told = "2 are tasks of runs, and stay: --workflow dismisses runs\n"
    assert (answer.status, answer.out) == (0, told)
    answer = penstock("dismiss", "--state", "failed", "--workflow", "daily", "--dry-run")
    assert answer.out == "2 runs in state failed of workflow 'daily'. Nothing was changed.\n"
    answer = penstock("dismiss", "--state", "failed", "--workflow", "daily", "--yes")
    assert (answer.status, answer.out) == (0, "2 dismissed\n")
    assert penstock("verify", "--json").json["events"] == 0


def test_runs_are_rerun_and_cancelled_by_filter(penstock: CommandLine, shop: Shop) -> None:
    shop.fail_runs(3)
    other = shop.app.workflow("other")

    @other.task
    def alone() -> None: ...

    other.start()
    choice = ("--workflow", "daily", "--yes")

    answer = penstock("rerun", "--state", "failed", *choice)
    assert answer.out == "3 will run again, from what failed or was cancelled on\n"
    assert run_states(penstock) == {"running": 4}
    answer = penstock("cancel", "--state", "running", "--reason", "a mistake", *choice)
    assert answer.out.startswith("3 ended, or asked to stop")
    assert run_states(penstock) == {"running": 1, "cancelled": 3}
    (one, *_) = penstock("list", "--workflow", "daily", "--json").json
    assert "with this reason: a mistake" in penstock("why", one["id"]).out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--state", "completed", "--workflow", "daily"), "There are failed, cancelled"),
        (("--state", "failed", "--workflow", "daily", "--task", "divide"), "many tasks"),
        (("--workflow", "daily"), "or choose by --state"),
    ],
)
def test_a_filter_that_cannot_be_of_runs_is_a_misuse(
    penstock: CommandLine, options: tuple[str, ...], told: str
) -> None:
    answer = penstock("rerun", *options)
    assert answer.status == 2
    assert told in answer.err


def test_status_counts_runs_where_there_are_any(penstock: CommandLine, shop: Shop) -> None:
    assert "RUNS" not in penstock("status").out
    shop.fail_runs(2)
    told = penstock("status").out.split("\n\n")[1].splitlines()
    assert told[0].split() == ["STATE", "RUNS"]
    assert ["failed", "2"] in [line.split() for line in told]
    assert ["paused", "0"] in [line.split() for line in told]
