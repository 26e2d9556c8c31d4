"""Declaring a workflow: what it becomes, and every mistake that is refused with what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from penstock import (
    App,
    Context,
    PenstockError,
    Registry,
    TaskHandle,
    Workflow,
    all_done,
    any_failed,
    failed,
    succeeded,
    value,
)
from penstock.engine.workflow_errors import InvalidInputs, InvalidWorkflow
from penstock.model.graph import decode_graph
from penstock.model.rules import ALL_SUCCEEDED, Dependencies, TaskEnded
from penstock.registry import WorkflowNameTaken


@dataclass
class Daily:
    day: str
    pages: list[int] = field(default_factory=lambda: [1])


def fetch(day: str) -> list[int]:
    return [len(day)]


def new_version_of(name: str, source: str, **scope: object) -> Callable[..., Any]:
    """Return what a reload or a notebook makes: another object of the same module and name."""
    names: dict[str, Any] = {"__name__": __name__, **scope}
    exec(source, names)  # noqa: S102
    function: Callable[..., Any] = names[name]
    return function


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def daily(registry: Registry) -> Workflow[...]:
    """`fetch`, then `total`, which takes its result, and `stamp`, which only waits for it."""
    daily = registry.workflow("daily", inputs=Daily)
    fetched = daily.task(fetch)

    @daily.task
    def total(ids: list[int] = fetched.output) -> int:
        return sum(ids)

    @daily.task(after=[fetched])
    def stamp(context: Context) -> None:
        context["stamped"] = True

    return daily


# --- what it becomes --------------------------------------------------------------------------


def test_a_workflow_becomes_a_graph_with_sources_edges_and_rules(daily: Workflow[...]) -> None:
    stamp = daily.tasks["stamp"]

    @daily.task(after=[stamp, "total"], when=failed("total") | value("n").exists(), priority=3)
    def report(handle: TaskHandle, day: str, sum_: int | None = daily.tasks["total"].output) -> int:
        return handle.attempt

    new, graph = daily.new_run((), {"day": "monday"})
    assert decode_graph(new.graph) == graph
    assert [node.name for node in graph.nodes] == ["fetch", "total", "stamp", "report"]
    assert graph.nodes[0].task == "daily.fetch"
    assert [node.after for node in graph.nodes] == [(), (0,), (0,), (1, 2)]
    assert [node.inputs for node in graph.nodes] == [("day",), (), (), ("day",)]
    assert graph.nodes[1].outputs == {"ids": 0}
    assert graph.nodes[2].context == "context"
    assert graph.nodes[3].outputs == {"sum_": 1}
    assert graph.nodes[3].priority == 3
    assert graph.nodes[0].rule == ALL_SUCCEEDED
    assert msgspec.json.decode(new.inputs) == {"day": "monday", "pages": [1]}


def test_tasks_are_registered_under_the_workflows_name() -> None:
    registry = Registry(prefix="shop.")
    flow = registry.workflow("daily")
    flow.task(name="one", aliases=["first"])(lambda_free)
    assert registry.names() == ["shop.daily.one", "shop.daily.first"]
    assert registry.workflows == {"shop.daily": flow}


def lambda_free() -> int:
    return 1


def test_a_plain_call_runs_the_function(daily: Workflow[...]) -> None:
    assert daily.tasks["total"]([1, 2]) == 3
    with pytest.raises(TypeError, match="Pass 'ids'"):
        daily.tasks["total"]()


def test_the_order_is_that_of_the_graph_and_then_of_the_declaration(registry: Registry) -> None:
    flow = registry.workflow("order")
    for name in ("a", "b", "c"):
        flow.task(name=name)(lambda_free)
    # Replaced, and now behind one that was declared after it.
    flow.task(name="a", after=["c"])(lambda_free)
    _, graph = flow.new_run((), {})
    assert [node.name for node in graph.nodes] == ["b", "c", "a"]


def test_a_reload_replaces_a_task_and_a_workflow(registry: Registry) -> None:
    flow = registry.workflow("again")
    flow.task(name="old")(lambda_free)
    flow.task(new_version_of("step", "def step() -> int: return 1"))
    flow.task(new_version_of("step", "def step() -> int: return 2"))
    assert [task() for task in flow] == [1, 2]
    fresh = registry.workflow("again")
    assert registry.names() == []
    fresh.task(lambda_free)
    assert registry.names() == ["again.lambda_free"]


def test_another_module_cannot_have_a_workflow_of_the_same_name(registry: Registry) -> None:
    registry.workflow("mine")
    scope: dict[str, Any] = {"__name__": "another_module", "registry": registry}
    with pytest.raises(WorkflowNameTaken, match="one in another_module"):
        exec("registry.workflow('mine')", scope)  # noqa: S102
    other = Registry()
    exec("registry.workflow('mine')", {**scope, "registry": other})  # noqa: S102
    with pytest.raises(WorkflowNameTaken):
        App(include=[registry, other])


# --- inputs -----------------------------------------------------------------------------------


class AsStruct(msgspec.Struct, rename="camel"):
    first_day: str
    count: int = 3


class AsModel(pydantic.BaseModel):
    first_day: str
    count: int = 3


class AsTypedDict(TypedDict):
    first_day: str
    count: NotRequired[int]


def as_function(first_day: str, count: int = 3) -> None:
    """Only its parameters count."""


@pytest.mark.parametrize("form", [AsStruct, AsModel, as_function])
def test_inputs_may_be_declared_in_many_ways(
    registry: Registry, form: Callable[..., object]
) -> None:
    flow = registry.workflow("inputs", inputs=form)

    @flow.task
    def only(first_day: str, count: int) -> None: ...

    new, _ = flow.new_run((), {"first_day": "monday"})
    assert msgspec.json.decode(new.inputs) == {"first_day": "monday", "count": 3}


def test_an_input_that_may_be_left_out_needs_a_default_where_it_is_read(
    registry: Registry,
) -> None:
    flow = registry.workflow("inputs", inputs=AsTypedDict)

    @flow.task
    def only(first_day: str, count: int) -> None: ...

    with pytest.raises(InvalidInputs, match="'count' was left out, and its task 'only'"):
        flow.new_run((), {"first_day": "monday"})
    new, _ = flow.new_run((), {"first_day": "monday", "count": 1})
    assert msgspec.json.decode(new.inputs) == {"first_day": "monday", "count": 1}


def test_what_an_inputs_class_refuses_is_told_to_who_starts(registry: Registry) -> None:
    flow = registry.workflow("inputs", inputs=AsModel)
    flow.task(lambda_free)
    with pytest.raises(InvalidInputs, match=r"AsModel refuses it.*Nothing was written"):
        flow.new_run((), {"first_day": "monday", "count": "many"})


# --- mistakes ---------------------------------------------------------------------------------


def nothing() -> None: ...


def unknown(dey: str) -> None: ...


def constant(limit: int = 3) -> None: ...


def anything(**rest: int) -> None: ...


def two(one: Context, other: Context) -> None: ...


def nested(context: Context | None) -> None: ...


def late(day: str, handle: TaskHandle) -> None: ...


def test_every_mistake_in_a_declaration_is_refused_with_what_to_do(
    daily: Workflow[...], registry: Registry
) -> None:
    plain = registry.task(name="plain")(lambda_free)
    elsewhere = registry.workflow("elsewhere").task(lambda_free)
    total = daily.tasks["total"]

    def foreign(n: int = elsewhere.output) -> None: ...
    def needs(n: int = total.output) -> None: ...
    def misread(n: list[str] = total.output) -> None: ...
    def of_the_task(n: int = total) -> None: ...  # type: ignore[assignment]
    def of_a_plain_task(n: int = plain) -> None: ...  # type: ignore[assignment]

    mistakes: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
        (nothing, {"after": ["totl"]}, r"'totl'.*did you mean 'total'\?"),
        (nothing, {"after": ["nothing"]}, "names the task itself"),
        (nothing, {"after": [plain]}, r"'plain', which is a plain task.*@daily\.task"),
        (nothing, {"after": [elsewhere]}, "'lambda_free', a task of the workflow 'elsewhere'"),
        (nothing, {"after": [3]}, "3 in it, which is no task"),
        (nothing, {"after": [total.output]}, r"what a task returns.*Write after=\[total\]"),
        (nothing, {"for_each": total}, r"no output.*for_each=total\.output"),
        (of_the_task, {}, r"the task 'total' itself.*Write `n = total\.output`"),
        (of_a_plain_task, {}, r"Declare 'plain' with `@daily\.task`, then write"),
        (nothing, {"after": "total"}, r"after='total'.*Write after=\[fetch\]"),
        (nothing, {"when": True}, "when=True.*no condition"),
        (nothing, {"when": failed(elsewhere)}, "task of the workflow 'elsewhere'"),
        (nothing, {"when": failed("gone")}, "`when` names 'gone'"),
        (nothing, {"when": succeeded(total)}, r"not upstream of it.*after=\[…, total\]"),
        (nothing, {"when": any_failed}, "would never run"),
        (nothing, {"retries": 3}, r"retries=3.*no such option.*after, when, for_each, queue"),
        (unknown, {}, r"'dey' \(did you mean 'day'\?\)"),
        (constant, {}, "belongs into the function"),
        (anything, {}, r"`\*\*` parameter"),
        (foreign, {}, "output of 'lambda_free', a task of the workflow 'elsewhere'"),
        (needs, {"when": all_done}, r"'n' would then be None.*`n: int \| None`"),
        (misread, {}, r"'n' is list\[str\], and 'total' returns int"),
        (two, {}, "both 'one' and 'other' are Contexts"),
        (nested, {}, "Context inside another type"),
        (late, {}, "the handle 'handle' is not the first"),
        (nothing, {"name": ""}, "between 1 and 200"),
        (nothing, {"timeout": 0}, "no task can end in no time"),
    ]
    before = dict(daily.tasks)
    for function, options, message in mistakes:
        with pytest.raises((PenstockError), match=f"(?s){message}"):
            daily.task(**options)(function)
        assert daily.tasks == before


def test_a_task_that_would_wait_for_itself_is_refused_with_the_way_round(
    daily: Workflow[...],
) -> None:
    source = "def fetch(day: str, n: int = total) -> list[int]: return []"
    again = new_version_of("fetch", source, total=daily.tasks["total"].output)
    with pytest.raises(InvalidWorkflow, match="fetch after total after fetch"):
        daily.task(again)
    assert daily.tasks["fetch"]("monday") == [6]


def test_a_replacement_that_would_break_what_depends_on_it_is_refused(
    registry: Registry,
) -> None:
    flow = registry.workflow("breaking")
    flow.task(name="first")(lambda_free)
    flow.task(name="second", after=["first"])(lambda_free)
    flow.task(name="third", after=["second"], when=failed("first"))(lambda_free)
    with pytest.raises(InvalidWorkflow, match=r"'third'.*'first', which is not upstream"):
        flow.task(name="second")(lambda_free)


def test_a_context_in_a_plain_task_is_refused(registry: Registry) -> None:
    with pytest.raises(TypeError, match=r"only the tasks of a workflow share.*@workflow\.task"):

        @registry.task
        def plain(context: Context) -> None: ...


@pytest.mark.parametrize(
    ("inputs", "message"),
    [(3, "neither a class nor a function"), (dict, "no named fields"), (max, "no named fields")],
)
def test_inputs_without_named_fields_are_refused(
    registry: Registry, inputs: Callable[..., object], message: str
) -> None:
    with pytest.raises(InvalidWorkflow, match=message):
        registry.workflow("inputs", inputs=inputs)


def test_a_workflow_without_tasks_cannot_be_started(registry: Registry) -> None:
    with pytest.raises(PenstockError, match="has no tasks, so there is nothing to start"):
        registry.workflow("empty").new_run((), {})


def test_what_may_follow_a_run_is_checked_when_it_is_declared(registry: Registry) -> None:
    def follows(task: str) -> None: ...

    plain = registry.task(follows)
    with pytest.raises(ValueError, match="It may take execution_id, workflow, result"):
        registry.workflow("followed", on_success=plain)
    flow = registry.workflow("flow")
    with pytest.raises(ValueError, match="it is no task"):
        registry.workflow("followed", on_failure=flow.task(lambda_free))  # type: ignore[call-overload]


def test_a_task_of_a_workflow_cannot_be_enqueued_by_itself(daily: Workflow[...]) -> None:
    app = App()
    flow = app.workflow("flow")
    task = flow.task(lambda_free)
    for act in (
        lambda: task.enqueue(3),  # type: ignore[attr-defined]
        lambda: task.using(priority=3),  # type: ignore[attr-defined]
        lambda: app.enqueue("flow.lambda_free"),
    ):
        with pytest.raises(PenstockError, match="is a task of the workflow 'flow'"):
            act()
    assert not hasattr(task, "enqueue")
    assert not hasattr(task, "anything_else")


@pytest.mark.parametrize(
    ("act", "instead"),
    [
        (lambda app: app.workflows["daily"].enqueue(day="monday"), r"no `enqueue`.*`\.start"),
        (lambda app: app.workflows["daily"].aenqueue(day="monday"), r"no `aenqueue`.*`\.astart"),
        (lambda app: app.workflows["daily"].delay("monday"), r"no `delay`.*`\.start"),
        (lambda app: app.enqueue("daily", {"day": "monday"}), r"a workflow.*'daily'\]\.start"),
        (
            lambda app: app.workflows["daily"].start("monday", connection=3),
            r"no parameter 'connection'.*`\.using\(connection=…\)\.start",
        ),
        (lambda app: app.workflows["daily"].using(), r"using\(connection=…\)\.start"),
        (lambda app: app.workflows["daily"].using(priority=3), "a start has no such option"),
    ],
)
def test_what_starts_nothing_says_how_a_workflow_is_started(
    act: Callable[[Any], object], instead: str
) -> None:
    app = App("sqlite:///:memory:")
    app.workflow("daily", inputs=Daily).task(fetch)
    with pytest.raises(PenstockError, match=instead):
        act(app)
    assert app.find_runs() == []
    assert app.find() == []
    app.close()


def test_a_plain_task_that_takes_the_result_of_a_workflows_task_is_refused(
    daily: Workflow[...], registry: Registry
) -> None:
    def by_output(ids: list[int] = daily.tasks["fetch"].output) -> None: ...
    def by_task(ids: object = daily.tasks["fetch"]) -> None: ...

    for function in (by_output, by_task):
        with pytest.raises(PenstockError, match=r"'ids' belongs to the workflow 'daily'.*\.task"):
            registry.task(function)


def test_names_that_are_defined_further_down_are_looked_up_when_a_run_starts(
    registry: Registry,
) -> None:
    flow = registry.workflow("late")
    scope: dict[str, Any] = {"__name__": __name__, "flow": flow, "failed": failed}
    exec(  # noqa: S102
        "from __future__ import annotations\n"
        "@flow.task\n"
        "def one() -> Later: ...\n"
        "@flow.task(after=[one], when=failed(one))\n"
        "def two(it: Later = one.output) -> None: ...\n",
        scope,
    )
    with pytest.raises(TypeError, match="needs the name 'Later'"):
        flow.new_run((), {})
    scope["Later"] = int
    with pytest.raises(InvalidWorkflow, match="'it' would then be None"):
        flow.new_run((), {})


def test_rules_are_data(daily: Workflow[...]) -> None:
    @daily.task(after=["total"], when=all_done & ~failed("total"))
    def last() -> None: ...

    rule = daily.tasks["last"].rule
    assert rule.left == Dependencies("all_done")  # type: ignore[union-attr]
    assert rule.right.it == TaskEnded("total", "failed")  # type: ignore[union-attr]
