"""When a task of a workflow runs: rules as data, so that any worker can evaluate them.

A rule is looked at once, when all direct dependencies of its task have ended.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Union, assert_never

import msgspec

from penstock.model.states import State

Quantity = Literal["all_succeeded", "all_done", "any_succeeded", "any_failed", "none_failed"]
Test = Literal["==", "!=", "<", "<=", ">", ">=", "in", "contains", "exists"]


class Dependencies(msgspec.Struct, frozen=True, tag="dependencies", tag_field="rule"):
    """How the direct dependencies ended, taken together."""

    ended: Quantity


class TaskEnded(msgspec.Struct, frozen=True, tag="task", tag_field="rule"):
    """How one task upstream ended."""

    task: str  # its name within the workflow
    state: Literal["completed", "failed", "skipped"]


class ContextValue(msgspec.Struct, frozen=True, tag="value", tag_field="rule"):
    """What the context holds under a key, as the task itself would see it.

    A key that is missing and a value that cannot be compared make every test false.
    """

    key: str
    test: Test
    operand: Any = None


class Both(msgspec.Struct, frozen=True, tag="and", tag_field="rule"):
    left: "Rule"
    right: "Rule"


class Either(msgspec.Struct, frozen=True, tag="or", tag_field="rule"):
    left: "Rule"
    right: "Rule"


class Not(msgspec.Struct, frozen=True, tag="not", tag_field="rule"):
    it: "Rule"


Rule = Union[Dependencies, TaskEnded, ContextValue, Both, Either, Not]  # noqa: UP007 - recursive

ALL_SUCCEEDED = Dependencies("all_succeeded")

_QUANTITIES: Mapping[Quantity, Callable[[Sequence[State]], bool]] = {
    "all_succeeded": lambda ended: all(state is State.COMPLETED for state in ended),
    "all_done": lambda _: True,
    "any_succeeded": lambda ended: State.COMPLETED in ended,
    "any_failed": lambda ended: State.FAILED in ended,
    "none_failed": lambda ended: State.FAILED not in ended,
}

_TESTS: Mapping[Test, Callable[[Any, Any], object]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, several: value in several,
    "contains": operator.contains,
    "exists": lambda _value, _nothing: True,
}


def holds(
    rule: Rule,
    *,
    dependencies: Sequence[State],
    state_of: Callable[[str], State],
    context: Mapping[str, Any],
) -> bool:
    """Whether a task with this rule runs; `context` is asked only by rules about values."""

    def check(part: Rule) -> bool:
        match part:
            case Dependencies(ended=quantity):
                return _QUANTITIES[quantity](dependencies)
            case TaskEnded(task=task, state=state):
                return state_of(task) == state
            case ContextValue():
                return _value_holds(part, context)
            case Both(left=left, right=right):
                return check(left) and check(right)
            case Either(left=left, right=right):
                return check(left) or check(right)
            case Not(it=inner):
                return not check(inner)
            case _:
                assert_never(part)

    return check(rule)


def _value_holds(part: ContextValue, context: Mapping[str, Any]) -> bool:
    if part.key not in context:
        return False
    try:
        return bool(_TESTS[part.test](context[part.key], part.operand))
    except TypeError:
        return False


def parts(rule: Rule) -> Iterator[Dependencies | TaskEnded | ContextValue]:
    """Return what a rule is made of, without what joins it."""
    match rule:
        case Both(left=left, right=right) | Either(left=left, right=right):
            yield from parts(left)
            yield from parts(right)
        case Not(it=inner):
            yield from parts(inner)
        case Dependencies() | TaskEnded() | ContextValue():
            yield rule
        case _:
            assert_never(rule)


def tasks_in(rule: Rule) -> frozenset[str]:
    """The tasks that a rule names."""
    return frozenset(part.task for part in parts(rule) if isinstance(part, TaskEnded))


def asks_context(rule: Rule) -> bool:
    return any(isinstance(part, ContextValue) for part in parts(rule))
