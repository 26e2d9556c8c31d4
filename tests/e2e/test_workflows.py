"""Workflows on both databases: what runs, in which order, what is skipped, what they share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    App,
    Context,
    Execution,
    ExecutionNotFound,
    Run,
    WorkflowFailed,
    all_done,
    all_succeeded,
    any_failed,
    failed,
    none_failed,
    skipped,
    succeeded,
    value,
)
from tests.e2e.flows import PATIENCE, events, order_of, states, work


@dataclass
class Order:
    number: int
    express: bool = False


# --- shapes -----------------------------------------------------------------------------------


def test_a_diamond_runs_each_task_once_and_the_last_one_sees_both_sides(flows: App) -> None:
    diamond = flows.workflow("diamond", inputs=Order)

    @diamond.task
    def top(number: int) -> int:
        return number

    @diamond.task
    def left(n: int = top.output) -> int:
        return n + 1

    @diamond.task
    async def right(n: int = top.output) -> int:
        return n * 10

    @diamond.task
    def bottom(a: int = left.output, b: int = right.output) -> list[int]:
        return [a, b]

    run = diamond.start(number=4)
    assert states(run) == {
        "top": "ready",
        "left": "waiting",
        "right": "waiting",
        "bottom": "waiting",
    }
    work(flows)

    assert run.result(PATIENCE) == {"top": 4, "left": 5, "right": 40, "bottom": [5, 40]}
    assert run.state == "completed"
    assert run[bottom].result() == [5, 40]
    assert order_of(run)[0] == "top"
    assert order_of(run)[-1] == "bottom"
    assert events(run) == {
        "workflow.started": 1,
        "task.created": 4,
        "task.marked_ready": 4,
        "task.claimed": 4,
        "task.started": 4,
        "task.completed": 4,
        "workflow.completed": 1,
    }


def test_a_chain_of_fifty_runs_in_order(flows: App) -> None:
    chain = flows.workflow("chain")

    @chain.task(name="step_0")
    def first() -> int:
        return 0

    previous = first
    for number in range(1, 50):

        @chain.task(name=f"step_{number}")
        def step(n: int = previous.output) -> int:
            return n + 1

        previous = step
    run = chain.start()
    work(flows)
    assert run.result(PATIENCE)["step_49"] == 49
    assert order_of(run) == [f"step_{number}" for number in range(50)]


def test_a_fan_of_a_hundred_comes_together_once(flows: App) -> None:
    fan = flows.workflow("fan")

    @fan.task
    def seed() -> int:
        return 7

    def branch_of(number: int) -> Callable[..., Any]:
        async def branch(context: Context, n: int = seed.output) -> None:
            context["seen"] = {f"branch {number}": n}

        return branch

    branches = [fan.task(name=f"branch_{n}")(branch_of(n)) for n in range(100)]

    @fan.task(after=branches)
    def gather(context: Context) -> int:
        return sum(context["seen"].values())

    run = fan.start()
    work(flows, slots=20)
    assert run.result(PATIENCE)["gather"] == 700
    assert events(run)["task.completed"] == 102
    assert order_of(run)[-1] == "gather"
    assert order_of(run, "task.marked_ready").count("gather") == 1


def test_a_worker_that_never_saw_the_workflow_lets_its_tasks_go(flows: App) -> None:
    """Rules, edges and inputs are stored: whoever ends a task decides what follows."""
    flow = flows.workflow("elsewhere", inputs=Order)

    @flow.task
    def one(number: int) -> int:
        return number

    @flow.task(when=all_succeeded & (value("number") >= 1))
    def two(n: int = one.output) -> int:
        return n + 1

    run = flow.start(number=1)
    where = flows.settings.database
    stranger = App(where.url, schema=where.schema)
    for task in (one, two):
        stranger.task(name=task.name)(plain_version_of(task.short_name))
    assert not stranger.workflows
    work(stranger)
    stranger.close()
    assert run.result(PATIENCE) == {"one": 1, "two": 2}


def plain_version_of(name: str) -> Callable[[int], int]:
    """The same work in a program that has never heard of workflows."""

    def one(number: int) -> int:
        return number

    def two(n: int) -> int:
        return n + 1

    return {"one": one, "two": two}[name]


# --- rules ------------------------------------------------------------------------------------


def test_a_failure_skips_all_that_needed_a_success_and_fails_the_run(flows: App) -> None:
    flow = flows.workflow("cascade")

    @flow.task(retry=None)
    def breaks() -> int:
        message = "no answer"
        raise ConnectionError(message)

    @flow.task
    def needs(n: int = breaks.output) -> int:
        return n

    @flow.task(after=[needs])
    def needs_that() -> None: ...

    @flow.task
    def apart() -> str:
        return "done"

    run = flow.start()
    work(flows)
    with pytest.raises(WorkflowFailed, match="'breaks' with ConnectionError: no answer") as told:
        run.result(PATIENCE)
    assert told.value.failures == {"breaks": "ConnectionError: no answer"}
    assert states(run) == {
        "breaks": "failed",
        "needs": "skipped",
        "needs_that": "skipped",
        "apart": "completed",
    }
    assert run.state == "failed"
    assert events(run)["workflow.failed"] == 1
    assert run["apart"].result() == "done"


def test_a_fallback_makes_up_for_a_failure_and_still_has_the_inputs(flows: App) -> None:
    flow = flows.workflow("fallback", inputs=Order)

    @flow.task(retry=None)
    def charge(number: int, context: Context) -> str:
        context["half"] = True  # a task that fails has written nothing
        raise ValueError(number)

    @flow.task(when=failed(charge), after=[charge])
    def invoice(number: int, context: Context) -> str:
        assert "half" not in context
        context["invoiced"] = number
        return f"invoice {number}"

    @flow.task(after=[invoice])
    def ship(number: int, paid: str | None = charge.output) -> str:
        return f"ship {number}, {paid}"

    @flow.task(after=[charge, invoice], when=succeeded(invoice) & ~succeeded(charge))
    def close(number: int) -> int:
        return number

    run = flow.start(number=7)
    work(flows)
    assert states(run)["charge"] == "failed"
    # `ship` wants all of its dependencies to have succeeded, and one has not.
    assert states(run)["ship"] == "skipped"
    assert run.result(PATIENCE) == {"invoice": "invoice 7", "close": 7}
    assert run.state == "completed"
    assert run.context == {"number": 7, "express": False, "invoiced": 7}


def test_every_kind_of_rule_decides_by_how_the_dependencies_ended(flows: App) -> None:
    flow = flows.workflow("rules", inputs=Order)

    @flow.task
    def good() -> int:
        return 1

    @flow.task(retry=None)
    def bad() -> int:
        raise ValueError

    @flow.task(after=[good, bad])
    def wants_all() -> None: ...

    @flow.task(after=[good, bad], when=all_done)
    def wants_ends(a: int | None = good.output, b: int | None = bad.output) -> list[int | None]:
        return [a, b]

    @flow.task(after=[good, bad], when=any_failed)
    def wants_a_failure() -> None: ...

    @flow.task(after=[good, bad], when=none_failed)
    def wants_no_failure() -> None: ...

    @flow.task(after=[wants_all], when=skipped(wants_all) & (value("number") > 3))
    def wants_a_skip() -> None: ...

    @flow.task(after=[good], when=value("nope") == 1)
    def wants_what_is_not_there() -> None: ...

    @flow.task(when=value("number").in_([4, 5]))
    def wants_an_input() -> None: ...

    run = flow.start(number=4)
    work(flows)
    assert states(run) == {
        "good": "completed",
        "bad": "failed",
        "wants_all": "skipped",
        "wants_ends": "completed",
        "wants_a_failure": "completed",
        "wants_no_failure": "skipped",
        "wants_a_skip": "completed",
        "wants_what_is_not_there": "skipped",
        "wants_an_input": "completed",
    }
    assert run["wants_ends"].result() == [1, None]
    assert run.state == "completed"


def test_a_run_of_which_everything_is_skipped_has_completed_when_it_starts(flows: App) -> None:
    flow = flows.workflow("nothing", inputs=Order)

    @flow.task(when=value("number") > 100)
    def rare() -> None: ...

    @flow.task(after=[rare])
    def after() -> None: ...

    run = flow.start(number=1)
    assert run.state == "completed"
    assert run.result(PATIENCE) == {}
    assert states(run) == {"rare": "skipped", "after": "skipped"}


# --- what they share --------------------------------------------------------------------------


def test_branches_write_into_one_context_and_the_graphs_order_decides(flows: App) -> None:
    flow = flows.workflow("shared", inputs=Order)

    @flow.task
    def early(context: Context) -> None:
        context["winner"] = "early"
        context["by"] = {"early": 1}
        context["list"] = ["a"]

    @flow.task
    async def late(context: Context) -> None:
        context["winner"] = "late"
        context["by"] = {"late": 2}
        context["list"] = ["b"]

    @flow.task(after=[early, late])
    def reads(context: Context) -> dict[str, object]:
        context["list"].append("c")
        return dict(context)

    run = flow.start(number=1)
    work(flows)
    seen = run.result(PATIENCE)["reads"]
    assert seen == {
        "number": 1,
        "express": False,
        "winner": "late",
        "by": {"early": 1, "late": 2},
        "list": ["a", "b", "c"],
    }
    assert run.context == seen


def test_what_cannot_be_stored_in_the_context_fails_its_task_and_says_where(flows: App) -> None:
    flow = flows.workflow("unstorable")

    @flow.task
    def writes(context: Context) -> None:
        context["when"] = object()

    run = flow.start()
    work(flows)
    with pytest.raises(WorkflowFailed, match="wrote into the context cannot be stored"):
        run.result(PATIENCE)
    assert run["writes"].attempt == 1


# --- looking ----------------------------------------------------------------------------------


def test_runs_are_found_by_id_by_workflow_and_by_state(flows: App) -> None:
    flow = flows.workflow("found", inputs=Order)

    @flow.task(retry=None)
    def maybe(number: int) -> int:
        if number == 2:
            raise ValueError(number)
        return number

    runs = [flow.start(number=number) for number in (1, 2, 3)]
    work(flows)
    assert flow.find() == runs[::-1]
    assert flow.find(state="failed") == [runs[1]]
    assert flows.find_runs(workflow=flow, state="completed", limit=1) == [runs[2]]
    assert flows.find_runs(before=runs[1].id) == [runs[0]]
    assert isinstance(flows.get(runs[0].id), Run)
    assert isinstance(flows.get(runs[0]["maybe"].id), Execution)
    assert flow.get(runs[2].id)[maybe].result() == 3
    assert asyncio.run(flow.aget(runs[0].id)).inputs == {"number": 1, "express": False}
    with pytest.raises(ExecutionNotFound):
        flows.get("0197a000-0000-7000-8000-000000000000")


def test_a_run_says_whether_the_code_has_changed_since_it_started(flows: App) -> None:
    flow = flows.workflow("changing")

    def declare(result: int) -> None:
        source = f"def only() -> int:\n    return {result}\n"
        scope: dict[str, object] = {"__name__": __name__}
        exec(source, scope)  # noqa: S102
        flow.task(scope["only"])  # type: ignore[call-overload]

    declare(1)
    run = flow.start()
    assert run.code_changed is False
    declare(2)
    assert flow.get(run.id).code_changed is True
    declare(1)
    assert flow.get(run.id).code_changed is False
    assert App().workflows == {}
