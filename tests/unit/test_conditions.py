"""Conditions: what they become, how they read, and that they have no truth of their own."""

import operator
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Condition,
    Context,
    all_done,
    all_succeeded,
    any_failed,
    any_succeeded,
    failed,
    none_failed,
    skipped,
    succeeded,
    value,
)
from penstock.engine.conditions import InvalidCondition, NoTruthYet
from penstock.model.rules import holds
from penstock.model.states import State


def is_so(condition: Condition, *ended: State, **context: object) -> bool:
    """Whether it holds for a task behind `a`, `b` and so on, which ended like this."""
    names = "abcdefgh"
    return holds(
        condition.rule,
        dependencies=ended,
        state_of=lambda name: ended[names.index(name)],
        context=context,
    )


GOOD, BAD, SKIPPED, CANCELLED = State.COMPLETED, State.FAILED, State.SKIPPED, State.CANCELLED


@pytest.mark.parametrize(
    ("condition", "good", "bad", "skip", "stop", "none"),
    [
        (all_succeeded, True, False, False, False, True),
        (all_done, True, True, True, True, True),
        (any_succeeded, True, True, True, True, False),
        (any_failed, False, True, False, False, False),
        (none_failed, True, False, True, True, True),
    ],
    ids=repr,
)
def test_dependencies_taken_together(
    condition: Condition, good: bool, bad: bool, skip: bool, stop: bool, none: bool
) -> None:
    assert is_so(condition, GOOD, GOOD) is good
    assert is_so(condition, GOOD, BAD) is bad
    assert is_so(condition, GOOD, SKIPPED) is skip
    assert is_so(condition, GOOD, CANCELLED) is stop
    assert is_so(condition) is none


def test_single_tasks_and_joins() -> None:
    assert is_so(succeeded("a") & failed("b"), GOOD, BAD)
    assert not is_so(succeeded("a") & failed("b"), GOOD, GOOD)
    assert is_so(succeeded("a") | skipped("b"), BAD, SKIPPED)
    assert is_so(~succeeded("a"), CANCELLED)
    assert not is_so(~(succeeded("a") | failed("b")), BAD, BAD)


@pytest.mark.parametrize(
    ("condition", "yes", "no"),
    [
        (value("n") == 3, 3, 4),
        (value("n") != 3, 4, 3),
        (value("n") < 3, 2, 3),
        (value("n") <= 3, 3, 4),
        (value("n") > 3, 4, 3),
        (value("n") >= 3, 3, 2),
        (operator.lt(3, value("n")), 4, 3),
        (value("n").in_({"b", "a"}), "a", "c"),
        (value("n").contains("x"), ["x"], ["y"]),
        (value("n").contains("x"), "axe", "abe"),
        (value("n") > 3, 4, "text"),
        (value("n").contains("x"), {"x": 1}, 3),
    ],
    ids=repr,
)
def test_values_of_the_context(condition: Condition, yes: object, no: object) -> None:
    assert is_so(condition, n=yes)
    assert not is_so(condition, n=no)
    assert not is_so(condition, other=yes)


def test_a_key_exists_whatever_it_holds() -> None:
    assert is_so(value("n").exists(), n=None)
    assert not is_so(value("n").exists())
    assert is_so(~value("n").exists())


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (failed("a") | value("n").exists(), "failed(a) | value('n').exists()"),
        ((value("n") > 3) & ~all_done, "(value('n') > 3) & ~all_done"),
        (~(succeeded("a") | skipped("b")), "~(succeeded(a) | skipped(b))"),
        (value("n").in_([1, 2]) & any_failed, "value('n').in_([1, 2]) & any_failed"),
        (value("n").contains("x"), "value('n').contains('x')"),
    ],
    ids=repr,
)
def test_a_condition_reads_as_it_was_written(condition: Condition, text: str) -> None:
    assert repr(condition) == text


def test_a_set_of_values_is_the_same_text_in_every_process() -> None:
    assert repr(value("n").in_({"b", "a", "c"})) == "value('n').in_(['a', 'b', 'c'])"


@pytest.mark.parametrize(
    "ask",
    [
        lambda: bool(failed("a")),
        lambda: failed("a") and all_done,
        lambda: not all_done,
        lambda: bool(value("n")),
        lambda: 1 < value("n") < 3,
    ],
)
def test_using_one_as_a_bool_raises(ask: Callable[[], object]) -> None:
    with pytest.raises(NoTruthYet, match=r"Join conditions with & \| ~"):
        ask()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: operator.or_(failed("a"), value("n")), "in parentheses"),
        (lambda: operator.or_(value("n"), failed("a")), "in parentheses"),
        (lambda: operator.and_(3, failed("a")), "3 is none"),
        (lambda: value("n") == value("m"), "compared with plain data"),
        (lambda: value("n") == failed("a"), "compared with plain data"),
        (lambda: value("n") == object(), "cannot be stored"),
        (lambda: value("n").in_("abc"), "takes a list"),  # type: ignore[arg-type]
        (lambda: value(""), "a key of the context is a text"),
        (lambda: failed(print), "asks about a task of a workflow"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_condition_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidCondition, match=message):
        make()


def test_a_context_keeps_what_was_added_and_gives_nothing_back() -> None:
    context = Context({"a": [1], "b": 2})
    context["a"].append(2)
    context["c"] = {"deep": True}
    assert context.written() == '{"a":[1,2],"c":{"deep":true}}'
    with pytest.raises(TypeError, match="Set it to None"):
        del context["a"]
    assert Context({"a": 1}).written() is None
