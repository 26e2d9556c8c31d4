"""verify where histories go before their executions do, which the settings allow."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from penstock import App, Run
from tests.e2e.command_line import Answer, CommandLine
from tests.e2e.flows import work


@dataclass
class Shop:
    """An App of this process on the database that the command line looks at."""

    app: App
    plain: list[str]
    run: Run
    failed: str
    failed_run: Run


@pytest.fixture
def shop(penstock: CommandLine) -> Iterator[Shop]:
    """All of it has ended: well, with a forgiven failure, or badly."""
    app = App(penstock.url, schema=penstock.schema)
    flow = app.workflow("flow")

    @app.task(retry=None)
    def divide(by: int) -> int:
        return 12 // by

    @flow.task
    def first() -> int:
        return 1

    @flow.task
    def second(n: int = first.output) -> int:
        return n + 1

    broken = app.workflow("broken")

    @broken.task(retry=None)
    def stumble() -> None:
        raise ValueError

    plain = [divide.enqueue(by).id for by in (1, 2, 3)]
    shop = Shop(app, plain, flow.start(), divide.enqueue(0).id, broken.start())
    work(app)
    yield shop
    app.close()


def in_order(answer: Answer) -> bool:
    return answer.status == 0 and answer.json["findings"] == []


def test_executions_without_their_history_are_in_order(penstock: CommandLine, shop: Shop) -> None:
    before = penstock("verify", "--json").json["events"]
    assert penstock("admin", "cleanup-events", "--older-than", "0s").status == 0

    answer = penstock("verify", "--json")

    assert in_order(answer), answer.out
    assert (answer.json["executions"], answer.json["runs"]) == (7, 2)
    # What failed has kept its history: five events of a task, and seven of a run with one task.
    assert answer.json["events"] == 12 < before
    assert penstock("history", shop.plain[0], "--json").json == []
    assert len(penstock("history", shop.failed, "--json").json) == 5


def test_what_is_rerun_without_its_history_is_in_order(penstock: CommandLine, shop: Shop) -> None:
    penstock("admin", "cleanup-events", "--older-than", "0s")
    again = [shop.plain[0], shop.run.tasks["second"].id, shop.failed, shop.failed_run.id]

    assert penstock("rerun", *again).status == 0
    assert in_order(penstock("verify", "--json"))
    work(shop.app)

    answer = penstock("verify", "--json")
    assert in_order(answer), answer.out
    assert penstock("history", shop.plain[0], "--json").json[0]["type"] == "task.rerun"


def test_both_kinds_of_retention_in_either_order_leave_it_in_order(
    penstock: CommandLine, shop: Shop
) -> None:
    penstock("admin", "cleanup-events", "--older-than", "0s")
    penstock("admin", "cleanup", "--older-than", "0s")
    assert in_order(penstock("verify", "--json"))

    penstock("rerun", shop.failed, shop.failed_run.id)
    work(shop.app)
    penstock("admin", "cleanup", "--older-than", "0s")
    penstock("admin", "cleanup-events", "--older-than", "0s")

    answer = penstock("verify", "--json")
    assert in_order(answer), answer.out
    assert answer.json["executions"] == 2  # what failed twice
    penstock("dismiss", shop.failed, shop.failed_run.id)
    assert penstock("verify", "--json").json["events"] == 0
