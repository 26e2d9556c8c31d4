"""When a task of a workflow runs, as users write it: `failed(total) | value("n") > 3`.

Every condition becomes a rule, which is data: it is stored with each run, and any worker can
look whether it holds.
"""

from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, assert_never

from penstock.engine.outputs import Output
from penstock.engine.workflow_tasks import AnyWorkflowTask, WorkflowTask
from penstock.errors import PenstockError
from penstock.model import payloads
from penstock.model.rules import (
    Both,
    ContextValue,
    Dependencies,
    Either,
    Not,
    Rule,
    TaskEnded,
    Test,
)

_NO_PLAIN_DATA = (
    "a value of the context is compared with plain data, known when it is declared",
    (
        "Let a task upstream compare the two and write the answer into the context; two conditions "
        'are joined in parentheses, as in (value("n") == 1) | failed(total)'
    ),
)


class NoTruthYet(PenstockError, TypeError):
    """A condition was used where Python wants to know now whether it is true."""

    def __init__(self, condition: str) -> None:
        self.condition = condition
        super().__init__(
            f"{condition} is neither true nor false before a run gets there, so `and`, `or`, "
            "`not`, `if` and `a < b < c` cannot ask it. Join conditions with & | ~, each in "
            'parentheses: (failed(total)) | (value("n") > 3).'
        )


class InvalidCondition(PenstockError, TypeError):
    """A condition that could never be looked at."""

    def __init__(self, what: str, reason: str, next_step: str) -> None:
        self.what = what
        self.reason = reason
        self.next_step = next_step
        super().__init__(what, reason, next_step)

    def __str__(self) -> str:
        return f"{self.what} is no condition: {self.reason}. {self.next_step}."


class Condition:
    """What must hold for a task to run; joined with `&`, `|` and `~`."""

    def __init__(self, rule: Rule, workflows: frozenset[str] = frozenset()) -> None:
        self.rule = rule
        self.workflows = workflows  # of the tasks that it was given as objects

    def __repr__(self) -> str:
        return told(self.rule)

    def __and__(self, other: "Condition") -> "Condition":
        return self._joined(Both, other)

    def __or__(self, other: "Condition") -> "Condition":
        return self._joined(Either, other)

    def __invert__(self) -> "Condition":
        return Condition(Not(self.rule), self.workflows)

    def __bool__(self) -> bool:
        # Not NoReturn: a type checker would take all that follows for unreachable.
        raise NoTruthYet(repr(self))

    def _joined(self, how: type[Both | Either], other: "Condition") -> "Condition":
        if not isinstance(other, Condition):
            _refuse_operand(self, other)
        return Condition(how(self.rule, other.rule), self.workflows | other.workflows)

    if not TYPE_CHECKING:  # to a type checker they would be a way to join anything

        def __ror__(self, other: object) -> NoReturn:
            _refuse_operand(self, other)

        def __rand__(self, other: object) -> NoReturn:
            _refuse_operand(self, other)


class Value:
    """What the context holds under a key; compare it, and it becomes a condition.

    A key that is missing makes every comparison false, `!=` too: ask `~value("k").exists()`.
    """

    __hash__ = None  # type: ignore[assignment] # it is equal to nothing, it asks

    def __init__(self, key: str) -> None:
        self.key = key

    def __repr__(self) -> str:
        return f"value({self.key!r})"

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return self._compared("!=", other)

    def __lt__(self, other: object) -> Condition:
        return self._compared("<", other)

    def __le__(self, other: object) -> Condition:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Condition:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Condition:
        return self._compared(">=", other)

    def in_(self, several: list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]) -> Condition:
        """Whether it is one of these."""
        if not isinstance(several, list | tuple | set | frozenset):
            raise InvalidCondition(
                f"{self!r}.in_({several!r})",
                "it takes a list of values",
                f"Write {self!r}.in_([…]); whether a text is part of it asks .contains(…)",
            )
        # A set has another order in every process, and a rule is one text for all of them.
        ordered = several if isinstance(several, list | tuple) else sorted(several, key=repr)
        return self._compared("in", list(ordered))

    def contains(self, one: object) -> Condition:
        """Whether it, a list, a text or a dict, has this in it."""
        return self._compared("contains", one)

    def exists(self) -> Condition:
        """Whether the context has the key at all."""
        return Condition(ContextValue(self.key, "exists"))

    def __bool__(self) -> bool:
        raise NoTruthYet(repr(self))

    def _compared(self, test: Test, operand: object) -> Condition:
        if isinstance(operand, Value | Condition | Output | WorkflowTask):
            raise InvalidCondition(_comparison(self, test, operand), *_NO_PLAIN_DATA)
        try:
            stored = payloads.decode(payloads.encode(operand))
        except payloads.InvalidPayload as error:
            reason = f"what it is compared with cannot be stored: {error.reason}"
            what = _comparison(self, test, operand)
            raise InvalidCondition(what, reason, error.next_step) from error
        return Condition(ContextValue(self.key, test, stored))


def _comparison(value: Value, test: Test, operand: object) -> str:
    return f"{value!r} {test} {operand!r}"


def value(key: str) -> Value:
    """What the context holds under `key`, as the task itself would see it."""
    if not isinstance(key, str) or not key:
        raise InvalidCondition(
            f"value({key!r})", "a key of the context is a text", 'Write value("key") > 3'
        )
    return Value(key)


def succeeded(task: AnyWorkflowTask | str) -> Condition:
    """Whether this task upstream completed."""
    return _ended(task, "completed")


def failed(task: AnyWorkflowTask | str) -> Condition:
    """Whether this task upstream failed."""
    return _ended(task, "failed")


def skipped(task: AnyWorkflowTask | str) -> Condition:
    """Whether this task upstream was skipped."""
    return _ended(task, "skipped")


all_succeeded: Final = Condition(Dependencies("all_succeeded"))
all_done: Final = Condition(Dependencies("all_done"))
any_succeeded: Final = Condition(Dependencies("any_succeeded"))
any_failed: Final = Condition(Dependencies("any_failed"))
none_failed: Final = Condition(Dependencies("none_failed"))

_ASKS: dict[Literal["completed", "failed", "skipped"], str] = {
    "completed": "succeeded",
    "failed": "failed",
    "skipped": "skipped",
}


def _ended(
    task: AnyWorkflowTask | str, state: Literal["completed", "failed", "skipped"]
) -> Condition:
    if isinstance(task, WorkflowTask):
        return Condition(TaskEnded(task.short_name, state), frozenset({task.workflow}))
    if isinstance(task, str) and task:
        return Condition(TaskEnded(task, state))
    given: object = task
    named = given.task if isinstance(given, Output) else "fetch"
    raise InvalidCondition(
        f"{_ASKS[state]}({task!r})",
        "it asks about a task of a workflow",
        f"Write {_ASKS[state]}({named}), with what `@workflow.task` made of a function, or its "
        "name",
    )


def _refuse_operand(condition: Condition, other: object) -> NoReturn:
    if isinstance(other, Value):
        reason = f"{other!r} is not compared with anything, or `|` and `&` came first"
        next_step = f"Put each comparison in parentheses: {condition!r} | ({other!r} == …)"
    else:
        reason = f"{other!r} is none"
        next_step = "Join conditions only: failed(task), value(key) > 3, all_done, …"
    what = f"What {condition!r} is joined with"
    raise InvalidCondition(what, reason, next_step)


# --- rules as people read them ------------------------------------------------------------


def told(rule: Rule) -> str:  # noqa: PLR0911 - one for each kind
    """Return a rule as a user would write it."""
    match rule:
        case Dependencies(ended=quantity):
            return quantity
        case TaskEnded(task=task, state=state):
            return f"{_ASKS[state]}({task})"
        case ContextValue(key=key, test="exists"):
            return f"value({key!r}).exists()"
        case ContextValue(key=key, test="in", operand=operand):
            return f"value({key!r}).in_({operand!r})"
        case ContextValue(key=key, test="contains", operand=operand):
            return f"value({key!r}).contains({operand!r})"
        case ContextValue(key=key, test=test, operand=operand):
            return f"value({key!r}) {test} {operand!r}"
        case Both(left=left, right=right):
            return f"{_grouped(left)} & {_grouped(right)}"
        case Either(left=left, right=right):
            return f"{_grouped(left)} | {_grouped(right)}"
        case Not(it=inner):
            return f"~{_grouped(inner)}"
        case _:
            assert_never(rule)


def _grouped(rule: Rule) -> str:
    compares = isinstance(rule, ContextValue) and rule.test not in {"exists", "in", "contains"}
    text = told(rule)
    return f"({text})" if compares or isinstance(rule, Both | Either) else text
