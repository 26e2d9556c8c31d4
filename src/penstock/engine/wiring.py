"""How the tasks of a workflow hang together: what is refused when one is declared, and why."""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn

from penstock.engine.conditions import told
from penstock.engine.conversion import Converter, Misfit, UnsupportedAnnotation
from penstock.engine.functions import InvalidTask
from penstock.engine.inputs import Inputs
from penstock.engine.kinds import kinds_of
from penstock.engine.outputs import Output
from penstock.engine.tasks import DeclaredTask
from penstock.engine.workflow_errors import InvalidWorkflow
from penstock.engine.workflow_tasks import AnyWorkflowTask, WorkflowTask
from penstock.errors import nearest
from penstock.model import rules
from penstock.model.rules import Both, Dependencies, Either, Not, Rule, TaskEnded

Tasks = Mapping[str, AnyWorkflowTask]


def check_wiring(task: AnyWorkflowTask, tasks: Tasks, inputs: Inputs) -> None:
    """Raise InvalidWorkflow unless all that the task depends on is there, and upstream of it.

    `tasks` are those of the workflow, this one included.
    """
    _check_dependencies(task, tasks)
    _check_cycle(task, tasks)
    _check_rule(task, tasks)
    _check_sources(task, inputs)


def check_types(task: AnyWorkflowTask, tasks: Tasks) -> None:
    """Raise InvalidWorkflow if a result could never be what the parameter it feeds is to be.

    Raises:
        InvalidTask: an annotation names something that does not exist, by now at least.
    """
    _check_list(task, tasks)
    for parameter, source in task.outputs.items():
        hint = task.signature.hint_of(parameter)
        certain = _implies_success(task.rule, source, only=len(task.after) == 1)
        if not certain and not _accepts_none(hint):
            raise InvalidWorkflow(
                task.workflow,
                task.short_name,
                f"it may run when {source!r} has not succeeded (when={told(task.rule)}), "
                f"and {parameter!r} would then be None, which "
                f"{task.signature.shown_annotation(parameter)} does not accept",
                f"Annotate `{parameter}: {task.signature.shown_annotation(parameter)} | None`, or "
                f"ask for its success too, as in `when=succeeded({source}) & …`",
            )
        _check_kinds(task, parameter, hint, tasks[source])


def element_of(task: AnyWorkflowTask, inputs: Inputs) -> str | None:
    """The parameter that takes an element: the first that nothing else fills."""
    if task.for_each is None:
        return None
    for name in task.signature.parameters:
        if name not in (*inputs.parameters, *task.outputs, task.signature.context):
            return name
    raise InvalidWorkflow(
        task.workflow,
        task.short_name,
        f"it runs for each element of what {task.for_each!r} returns, and none of its parameters "
        "takes an element",
        "Give it a parameter that is neither an input nor an output",
    )


def _check_list(task: AnyWorkflowTask, tasks: Tasks) -> None:
    source = task.for_each
    if source is None:
        return
    if not _implies_success(task.rule, source, only=len(task.after) == 1):
        raise InvalidWorkflow(
            task.workflow,
            task.short_name,
            f"it may run when {source!r} has not succeeded (when={told(task.rule)}), and there "
            "would be no list",
            f"Ask for its success too, as in `when=succeeded({source}) & …`",
        )
    given = _kinds_given(tasks[source])
    if given is not None and "array" not in given:
        raise InvalidWorkflow(
            task.workflow,
            task.short_name,
            f"`for_each` needs a list, and {source!r} returns "
            f"{tasks[source].signature.shown_return()}",
            f"Let {source!r} return a list",
        )


def in_order(tasks: Tasks) -> list[AnyWorkflowTask]:
    """Return the tasks, each after all that it depends on, else as declared."""
    declared = {name: place for place, name in enumerate(tasks)}
    left = {name: len(task.after) for name, task in tasks.items()}
    dependents: dict[str, list[str]] = {name: [] for name in tasks}
    for name, task in tasks.items():
        for dependency in task.after:
            dependents[dependency].append(name)
    free = [declared[name] for name, count in left.items() if count == 0]
    heapify(free)
    names = list(tasks)
    ordered = []
    while free:
        task = tasks[names[heappop(free)]]
        ordered.append(task)
        for dependent in dependents[task.short_name]:
            left[dependent] -= 1
            if left[dependent] == 0:
                heappush(free, declared[dependent])
    return ordered


def upstream_of(name: str, tasks: Tasks) -> set[str]:
    """The names of all tasks that have ended when this one runs."""
    found: set[str] = set()
    ahead = list(tasks[name].after)
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead.extend(tasks[one].after)
    return found


# --- what a task depends on ---------------------------------------------------------------


def _check_dependencies(task: AnyWorkflowTask, tasks: Tasks) -> None:
    for default in task.signature.defaults.values():
        if isinstance(default, Output) and default.workflow != task.workflow:
            raise InvalidWorkflow(
                task.workflow,
                task.short_name,
                f"it takes the output of {default.task!r}, a task of the workflow "
                f"{default.workflow!r}",
                "A run knows its own tasks only: declare that task here too, or pass its result "
                "as an input",
            )
    for name in task.after:
        _check_known(task, name, tasks, asked="after")


def _check_known(task: AnyWorkflowTask, name: str, tasks: Tasks, *, asked: str) -> None:
    others = [other for other in tasks if other != task.short_name]
    if name in others:
        return
    if name == task.short_name:
        raise InvalidWorkflow(
            task.workflow,
            task.short_name,
            f"`{asked}` names the task itself",
            "A task runs once in a run, after others: leave it out",
        )
    near = nearest(name, others)
    raise InvalidWorkflow(
        task.workflow,
        task.short_name,
        f"`{asked}` names {name!r}, and no task of that name has been declared before it"
        + (f" (did you mean {near!r}?)" if near else ""),
        f"Declare {name!r} above it" if not near else f"There are {_listed(others)}",
    )


def _check_cycle(task: AnyWorkflowTask, tasks: Tasks) -> None:
    # Only a task that replaces another can come back to itself: others do not know it yet.
    came_from: dict[str, str] = {}
    ahead = [task.short_name]
    while ahead:
        name = ahead.pop()
        for dependency in tasks[name].after:
            if dependency == task.short_name:
                _refuse_cycle(task, name, came_from)
            if dependency not in came_from:
                came_from[dependency] = name
                ahead.append(dependency)


def _refuse_cycle(task: AnyWorkflowTask, last: str, came_from: Mapping[str, str]) -> NoReturn:
    path = [task.short_name, last]
    while path[-1] != task.short_name:
        path.append(came_from[path[-1]])
    raise InvalidWorkflow(
        task.workflow,
        task.short_name,
        f"it would wait for itself: {' after '.join(reversed(path))}",
        "Leave one of these dependencies out",
    )


# --- its rule -----------------------------------------------------------------------------


def _check_rule(task: AnyWorkflowTask, tasks: Tasks) -> None:
    named = rules.tasks_in(task.rule)
    for name in sorted(named):
        _check_known(task, name, tasks, asked="when")
    for name in sorted(named - upstream_of(task.short_name, tasks) if named else ()):
        raise InvalidWorkflow(
            task.workflow,
            task.short_name,
            f"`when` asks about {name!r}, which is not upstream of it and may not have ended by "
            "then",
            f"Add it: after=[…, {name}]",
        )
    for part in rules.parts(task.rule):
        if not task.after and isinstance(part, Dependencies) and part.ended.startswith("any"):
            raise InvalidWorkflow(
                task.workflow,
                task.short_name,
                f"`when` is {told(task.rule)}, and it depends on no task, so it would never run",
                "Say after which tasks: after=[…]",
            )


def _implies_success(rule: Rule, source: str, *, only: bool) -> bool:
    """Whether `source`, a direct dependency, has surely completed where the rule holds."""
    match rule:
        case Dependencies(ended=quantity):
            return quantity == "all_succeeded" or (quantity == "any_succeeded" and only)
        case TaskEnded(task=task, state=state):
            return task == source and state == "completed"
        case Both(left=left, right=right):
            return any(_implies_success(one, source, only=only) for one in (left, right))
        case Either(left=left, right=right):
            return all(_implies_success(one, source, only=only) for one in (left, right))
        case Not(it=Not(it=inner)):
            return _implies_success(inner, source, only=only)
        case _:
            return False


# --- its parameters -----------------------------------------------------------------------


def _check_sources(task: AnyWorkflowTask, inputs: Inputs) -> None:
    signature = task.signature
    if signature.takes_any_name:
        raise InvalidWorkflow(
            task.workflow,
            task.short_name,
            "nothing fills its `**` parameter",
            "Name each parameter: an input, or another task's output",
        )
    for name in signature.parameters:
        fed = name in inputs.parameters or name in task.outputs
        if fed or name in {signature.context, task.element}:
            continue
        if isinstance(meant := signature.defaults.get(name), DeclaredTask):
            _refuse_task_for_output(task, name, meant)
        near = nearest(name, inputs.parameters)
        guess = f" (did you mean {near!r}?)" if near else ""
        there = (
            f"the inputs are {_listed(inputs.parameters)}"
            if inputs.parameters
            else ("this workflow has no inputs")
        )
        has_default = name in signature.defaults
        raise InvalidWorkflow(
            task.workflow,
            task.short_name,
            f"nothing fills its parameter {name!r}{guess}: {there}, and its default is no task's "
            "output",
            f"Make it an input, or write `{name} = other_task.output`"
            + ("; a value that never changes belongs into the function" if has_default else ""),
        )


def _refuse_task_for_output(
    task: AnyWorkflowTask, parameter: str, meant: DeclaredTask[..., Any]
) -> NoReturn:
    name = meant.short_name if isinstance(meant, WorkflowTask) else meant.name
    raise InvalidWorkflow(
        task.workflow,
        task.short_name,
        f"the default of its parameter {parameter!r} is the task {name!r} itself, not what that "
        "task returns",
        f"Write `{parameter} = {name}.output`"
        if isinstance(meant, WorkflowTask)
        else f"Declare {name!r} with `@{task.workflow}.task`, then write "
        f"`{parameter} = {name}.output`",
    )


def _accepts_none(hint: object) -> bool:
    try:
        Converter(hint).read("null")
    except (Misfit, UnsupportedAnnotation):
        return False
    return True


def _kinds_given(source: AnyWorkflowTask) -> frozenset[str] | None:
    """Which kinds of JSON a task returns; None where nobody can tell."""
    if source.for_each is not None:
        return frozenset({"array"})
    try:
        nothing = source.signature.shown_return() == "None"
        return frozenset({"null"}) if nothing else kinds_of(source.signature.hint_of(None))
    except InvalidTask:
        return None  # the other task says so itself when it is used


def _check_kinds(
    task: AnyWorkflowTask, parameter: str, hint: object, source: AnyWorkflowTask
) -> None:
    given, wanted = _kinds_given(source), kinds_of(hint)
    if given is None or wanted is None or given & wanted:
        return
    raise InvalidWorkflow(
        task.workflow,
        task.short_name,
        f"{parameter!r} is {task.signature.shown_annotation(parameter)}, and "
        f"{source.short_name!r} returns {_shown_return(source)}",
        "Let the two annotations agree",
    )


def _shown_return(source: AnyWorkflowTask) -> str:
    shown = source.signature.shown_return()
    return shown if source.for_each is None else f"list[{shown}]"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
