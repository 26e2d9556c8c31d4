"""What is said when a call, stored arguments or a result do not fit the task's signature.

Each error keeps its facts as its arguments, so that it survives the way out of a child process.
"""

import re

from penstock.errors import PenstockError
from penstock.model.payloads import InvalidPayload


class InvalidArguments(PenstockError, TypeError):
    """A call that the task could not take; `parameter` is the culprit, if there is one."""

    def __init__(self, task: str, parameter: str | None, reason: str, takes: str) -> None:
        self.task = task
        self.parameter = parameter
        self.reason = reason
        self.takes = takes
        super().__init__(task, parameter, reason, takes)

    def __str__(self) -> str:
        return (
            f"Task {self.task!r} cannot be enqueued like this: {self.reason}. "
            f"It takes {self.takes}. Nothing was written."
        )


class ArgumentsDoNotFit(PenstockError):
    """Stored arguments that the signature of today does not take.

    `field` leads to the culprit, beginning with the parameter. `stored` is None when the field is
    missing, `expected` is None when the signature no longer has it.
    """

    def __init__(
        self, task: str, field: str, stored: str | None, expected: str | None, detail: str = ""
    ) -> None:
        self.task = task
        self.field = field
        self.stored = stored
        self.expected = expected
        self.detail = detail
        super().__init__(task, field, stored, expected, detail)

    def __str__(self) -> str:
        field = self.field
        if self.stored is None:
            reason = f"{field!r} is not among them, and has no default"
            next_step = f"Give {field!r} a default"
        elif self.expected is None:
            reason = f"{field!r} ({self.stored}) is among them, and no parameter has that name"
            next_step = f"Put {field!r} back, with a default"
        else:
            parameter = re.split(r"[.\[]", field)[0]
            where = f" (at {field})" if field != parameter else ""
            reason = (
                f"{parameter!r} is {self.stored}, and {self.expected} is expected: "
                f"{self.detail}{where}"
            )
            next_step = "Change the signature so that it takes both old and new arguments"
        return (
            f"The stored arguments of task {self.task!r} do not fit its signature: {reason}. "
            f"{next_step}, then rerun the execution."
        )


class InvalidResult(InvalidPayload):
    """A result that cannot be stored; `path` leads to the culprit."""

    def __init__(self, task: str, path: str, reason: str, next_step: str) -> None:
        super().__init__(path, reason, next_step)
        self.task = task
        self.args = (task, path, reason, next_step)

    def __str__(self) -> str:
        return (
            f"The result of task {self.task!r} cannot be stored: {self.reason} "
            f"(at {self.path}). {self.next_step}."
        )


class InvalidWrites(InvalidResult):
    """Something that a task put into its workflow's context, and that cannot be stored."""

    def __str__(self) -> str:
        return (
            f"What task {self.task!r} wrote into the context cannot be stored: {self.reason} "
            f"(at {self.path}). {self.next_step}."
        )


class ResultDoesNotFit(PenstockError):
    """A stored result that is no value of the type that the task says it returns."""

    def __init__(self, task: str, field: str, stored: str, expected: str, detail: str) -> None:
        self.task = task
        self.field = field
        self.stored = stored
        self.expected = expected
        self.detail = detail
        super().__init__(task, field, stored, expected, detail)

    def __str__(self) -> str:
        where = f" (at {self.field})" if self.field else ""
        return (
            f"The stored result of task {self.task!r} is {self.stored}, and {self.expected} is "
            f"expected: {self.detail}{where}. Correct the return annotation, or leave it out to "
            "get plain JSON."
        )
