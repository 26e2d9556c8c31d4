"""Which executions somebody asks for: a task, and some of its arguments."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from penstock.app import App
from penstock.engine.executions import Execution
from penstock.engine.tasks import DeclaredTask, Task
from penstock.errors import PenstockError
from penstock.model.payloads import InvalidPayload, decode, encode


class NoSuchParameter(PenstockError, TypeError):
    """A question after an argument that the task does not take."""

    def __init__(self, task: str, name: str, *, takes: Sequence[str]) -> None:
        self.task = task
        self.name = name
        super().__init__(
            f"{task!r} takes no {name!r}, so no execution could have it. "
            f"It takes {', '.join(takes) or 'nothing'}."
        )


AnyTask: TypeAlias = Task[..., Any] | DeclaredTask[..., Any]  # a task of a workflow is none to call


def name_of(task: str | AnyTask) -> str:
    return task if isinstance(task, str) else task.name


class Question:
    """Has this task been enqueued with these arguments?"""

    def __init__(self, app: App, task: str | AnyTask, arguments: Mapping[str, object]) -> None:
        self.name = name_of(task)
        # As they would be stored: a date is compared as the text that it becomes.
        self._wanted = _as_stored(arguments)
        self._defaults: dict[str, Any] = {}
        declared = app.find_task(self.name)
        if declared is not None:
            self._know(inspect.signature(declared.function), declared.signature.parameters)

    def _know(self, signature: inspect.Signature, takes: Sequence[str]) -> None:
        parameters = signature.parameters
        any_name = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        for name in self._wanted:
            if name not in takes and not any_name:
                raise NoSuchParameter(self.name, name, takes=takes)
        for name in takes:
            default = parameters[name].default
            if name in self._wanted and default is not inspect.Parameter.empty:
                # A workflow's task has what feeds it as a default, which is nothing to be stored.
                with suppress(InvalidPayload):
                    self._defaults |= _as_stored({name: default})

    def answered(self, executions: Sequence[Execution[Any]]) -> list[Execution[Any]]:
        """Those among them that match, oldest first."""
        found = [one for one in executions if one.task == self.name and self._fits(one.args)]
        return sorted(found, key=lambda one: one.id)

    def _fits(self, given: Mapping[str, Any]) -> bool:
        arguments = {**self._defaults, **given}
        return all(
            name in arguments and arguments[name] == value for name, value in self._wanted.items()
        )


def _as_stored(arguments: Mapping[str, object]) -> dict[str, Any]:
    stored: dict[str, Any] = decode(encode(dict(arguments)))  # type: ignore[assignment]
    return stored
