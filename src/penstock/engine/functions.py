"""What a function must be to become a task: the refusals at declaration.

Nothing here resolves an annotation that is still a string, because what it names may be defined
further down in the module. Handles are told apart by their name alone where it must be so.
"""

import builtins
import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from inspect import Parameter
from types import ModuleType
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from penstock.engine.conversion import closure_of
from penstock.errors import PenstockError
from penstock.model.context import Context

_NO_SUCH_NAME = object()


class Colour(StrEnum):
    """Whether a function runs in a thread (`def`) or on a loop (`async def`)."""

    SYNC = "sync"
    ASYNC = "async"


class InvalidTask(PenstockError, TypeError):
    """A function that cannot be a task, or not with these annotations."""

    def __init__(self, task: str, reason: str, next_step: str) -> None:
        self.task = task
        self.reason = reason
        self.next_step = next_step
        # The facts themselves, so that the error survives the way out of a child process.
        super().__init__(task, reason, next_step)

    def __str__(self) -> str:
        return f"{self.task!r} cannot be a task: {self.reason}. {self.next_step}."


class TaskShape(msgspec.Struct, frozen=True, kw_only=True):
    """How a task function is called; `parameters` are those that the caller fills."""

    colour: Colour
    handle: str | None
    context: str | None
    parameters: tuple[Parameter, ...]
    returns: object
    function: Callable[..., object]

    @property
    def globals(self) -> dict[str, object]:
        return getattr(self.function, "__globals__", {})

    @property
    def closure(self) -> dict[str, object]:
        return closure_of(self.function)


def inspect_function(
    function: Callable[..., object],
    *,
    name: str,
    handle_types: Mapping[type, Colour],
    in_workflow: bool = False,
) -> TaskShape:
    """Return the shape of `function`; only in a workflow may it ask for the context.

    Raises:
        InvalidTask: it is no function, or one that cannot be called from stored arguments.
    """
    if isinstance(function, staticmethod):
        function = function.__func__
    else:
        _refuse_what_is_no_function(function, name)
        _refuse_method(function, name)
    if "<lambda>" in name:
        raise InvalidTask(
            name, "a lambda has no name to be stored under", 'Write a `def`, or give name="…"'
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTask(
            name,
            "it yields, and nobody would take what a generator yields",
            "Return a list, or enqueue another task for each item",
        )
    signature = _signature(function, name)
    parameters = tuple(signature.parameters.values())
    for parameter in parameters:
        if parameter.kind is Parameter.VAR_POSITIONAL:
            raise InvalidTask(
                name,
                f"*{parameter.name} has no names, and arguments are stored by name",
                f"Take a list in its place, as in `{parameter.name}: list[int]`",
            )
    shape = TaskShape(
        colour=Colour.ASYNC if inspect.iscoroutinefunction(function) else Colour.SYNC,
        handle=None,
        context=None,
        parameters=parameters,
        returns=signature.return_annotation,
        function=inspect.unwrap(function),
    )
    handle = _HandleCheck(name, shape, handle_types).find()
    shape = replace(shape, context=_context_in(shape, name, in_workflow=in_workflow))
    return shape if handle is None else replace(shape, handle=handle, parameters=parameters[1:])


def _context_in(shape: TaskShape, name: str, *, in_workflow: bool) -> str | None:
    """Return the name of the parameter that takes the context, if one does."""
    check = _HandleCheck(name, shape, {Context: shape.colour})
    found = [one.name for one in shape.parameters if check.type_in(one.annotation) is not None]
    if found and not in_workflow:
        raise InvalidTask(
            name,
            f"{found[0]!r} is a Context, which only the tasks of a workflow share",
            "Declare it with `@workflow.task`, or take a dict",
        )
    if len(found) > 1:
        raise InvalidTask(
            name,
            f"both {found[0]!r} and {found[1]!r} are Contexts",
            f"Keep {found[0]!r}: a run has one context",
        )
    for parameter in shape.parameters:
        if check.type_within(parameter.annotation) is not None:
            raise InvalidTask(
                name,
                f"the annotation of {parameter.name!r} has Context inside another type",
                f"Annotate it plainly: `{parameter.name}: Context`; there always is one",
            )
    return found[0] if found else None


def _refuse_what_is_no_function(function: object, name: str) -> None:
    if isinstance(function, classmethod) or inspect.ismethod(function):
        raise _no_method(name, "it is a method, and its object is not stored with the arguments")
    if inspect.isclass(function):
        raise InvalidTask(
            name, "it is a class", "Decorate a function that makes the object and works with it"
        )
    if not callable(function):
        raise InvalidTask(
            name,
            f"it is no function, but {_article(type(function).__name__)}",
            'Write `@app.task` above a `def`; options have names, as in `@app.task(name="…")`',
        )
    if isinstance(function, functools.partial) or not hasattr(function, "__name__"):
        raise InvalidTask(
            name,
            f"it is no function, but {_article(type(function).__name__)} that can be called",
            "Write a `def` that calls it, and decorate that",
        )


def _refuse_method(function: Callable[..., object], name: str) -> None:
    owner = getattr(function, "__self__", None)
    if hasattr(function, "__objclass__") or not isinstance(owner, ModuleType | None):
        raise _no_method(name, "it is a method, and its object is not stored with the arguments")
    around, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    code = getattr(inspect.unwrap(function), "__code__", None)
    first = code.co_varnames[0] if code is not None and code.co_argcount else ""
    if around and not around.endswith("<locals>") and first in {"self", "cls"}:
        raise _no_method(
            name, f"it is a method of {around}, and {first!r} is not stored with the arguments"
        )


def _no_method(name: str, reason: str) -> InvalidTask:
    return InvalidTask(
        name, reason, "Write a function at module level, and pass what identifies the object"
    )


def _signature(function: Callable[..., object], name: str) -> inspect.Signature:
    try:
        if sys.version_info >= (3, 14):  # where to ask for annotations is to evaluate them
            import annotationlib  # noqa: PLC0415 # there is none before 3.14

            return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
        return inspect.signature(function)
    except (ValueError, TypeError) as error:
        raise InvalidTask(
            name,
            "Python does not know its parameters, as of many functions written in C",
            "Write a `def` with annotated parameters that calls it",
        ) from error


class _HandleCheck:
    """Finds the handle among the parameters, and refuses it where it cannot be passed."""

    def __init__(self, name: str, shape: TaskShape, handle_types: Mapping[type, Colour]) -> None:
        self._name = name
        self._shape = shape
        self._handle_types = handle_types
        self._by_name = {handle_type.__name__: handle_type for handle_type in handle_types}

    def find(self) -> str | None:
        """Return the name of the handle parameter, if there is one and it is in order."""
        found: Parameter | None = None
        for position, parameter in enumerate(self._shape.parameters):
            handle_type = self.type_in(parameter.annotation)
            if handle_type is None:
                self._refuse_handle_within(parameter)
                continue
            if found is not None:
                raise InvalidTask(
                    self._name,
                    f"both {found.name!r} and {parameter.name!r} are handles",
                    f"Keep {found.name!r}: an attempt has one handle",
                )
            if position or parameter.kind in {Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD}:
                raise InvalidTask(
                    self._name,
                    f"the handle {parameter.name!r} is not the first positional parameter",
                    f"Begin with it: `({parameter.name}: {handle_type.__name__}, …)`",
                )
            self._refuse_wrong_colour(parameter, handle_type)
            found = parameter
        return found.name if found is not None else None

    def _refuse_wrong_colour(self, parameter: Parameter, handle_type: type) -> None:
        colour = self._shape.colour
        if self._handle_types[handle_type] is colour:
            return
        kind = "an `async def`" if colour is Colour.ASYNC else "a plain `def`"
        right = [one.__name__ for one, its in self._handle_types.items() if its is colour]
        raise InvalidTask(
            self._name,
            f"{parameter.name!r} is {_article(handle_type.__name__)}, and the task is {kind}",
            f"Annotate it with {right[0]}" if right else "Leave the handle out",
        )

    def _refuse_handle_within(self, parameter: Parameter) -> None:
        handle_type = self.type_within(parameter.annotation)
        if handle_type is not None:
            raise InvalidTask(
                self._name,
                f"the annotation of {parameter.name!r} has {handle_type.__name__} inside another "
                "type",
                f"Annotate the first parameter plainly: `{parameter.name}: {handle_type.__name__}`",
            )

    def type_in(self, annotation: object) -> type | None:
        text = _text_of(annotation)
        if text is not None:
            dotted = text.strip(" \t\n'\"")
            meant = self._look_up(dotted)
            if meant is _NO_SUCH_NAME:  # imported later, or only for the type checker
                return self._by_name.get(dotted.rpartition(".")[2])
            annotation = meant
        if isinstance(annotation, type) and annotation in self._handle_types:
            return annotation
        return None

    def _look_up(self, dotted: str) -> object:
        first, *rest = dotted.split(".")
        for names in (self._shape.closure, self._shape.globals, vars(builtins)):
            if first in names:
                found: Any = names[first]
                break
        else:
            return _NO_SUCH_NAME
        for step in rest:
            found = getattr(found, step, _NO_SUCH_NAME)
        return found

    def type_within(self, annotation: object) -> type | None:
        text = _text_of(annotation)
        if text is not None:
            if text.isidentifier():
                return None
            meant = map(self.type_in, re.findall(r"\w+", text))
            return next((one for one in meant if one is not None), None)
        for part in get_args(annotation):
            found = self.type_in(part) or self.type_within(part)
            if found is not None:
                return found
        return None


def _text_of(annotation: object) -> str | None:
    if isinstance(annotation, str):
        return annotation
    text = getattr(annotation, "__forward_arg__", None)
    return text if isinstance(text, str) else None


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"
