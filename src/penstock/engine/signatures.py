"""How a task function is called, and how its arguments and result travel as JSON.

Annotations are looked up at first use, not at declaration: what they name may be defined later.
From then on one decoder reads all arguments at once. Only when it refuses are they read one by
one, to name the culprit.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter
from reprlib import repr as short_repr
from typing import Any, Never, NoReturn

import msgspec
from msgspec.structs import asdict

from penstock.engine.conversion import Converter, Misfit, UnsupportedAnnotation, decoder, resolve
from penstock.engine.functions import Colour, InvalidTask, TaskShape, inspect_function
from penstock.engine.habits import option_of_a_task
from penstock.engine.misfits import (
    ArgumentsDoNotFit,
    InvalidArguments,
    InvalidResult,
    ResultDoesNotFit,
)
from penstock.engine.outputs import Output
from penstock.engine.showing import shortened, shown, shown_parameter
from penstock.errors import nearest
from penstock.model import payloads
from penstock.model.context import Context
from penstock.model.payloads import InvalidPayload

__all__ = [
    "ArgumentsDoNotFit",
    "Colour",
    "InvalidArguments",
    "InvalidResult",
    "InvalidTask",
    "ResultDoesNotFit",
    "TaskSignature",
]

_members: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
)


Call = tuple[tuple[object, ...], dict[str, Any], Context | None]


class _Types(msgspec.Struct, frozen=True):
    """The annotations, looked up; `at_once` is None where names are not those of a Struct."""

    parameters: Mapping[str, Converter]
    any_name: Converter | None
    result: Converter
    at_once: msgspec.json.Decoder[Any] | None


class TaskSignature:
    """How a task function is called, and how its arguments and result travel as JSON.

    Raises:
        InvalidTask: `function` cannot be a task. Annotations that cannot be used raise it too,
            when a method first needs them.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *,
        name: str,
        handle_types: Mapping[type, Colour],
        in_workflow: bool = False,
    ) -> None:
        self._use(
            inspect_function(
                function, name=name, handle_types=handle_types, in_workflow=in_workflow
            ),
            name,
        )

    def _use(self, shape: TaskShape, name: str) -> None:
        named = [one for one in shape.parameters if one.kind is not Parameter.VAR_KEYWORD]
        by_position = [one for one in named if one.kind is not Parameter.KEYWORD_ONLY]
        by_keyword = [one for one in named if one.kind is not Parameter.POSITIONAL_ONLY]
        self.colour = shape.colour
        self.takes_handle = shape.handle is not None
        self.context = shape.context  # the parameter that takes the context of a workflow
        self._name = name
        self._shape = shape
        self._named = {one.name: one for one in named}
        self._positional = tuple(one.name for one in by_position)
        self._positional_only = named[: len(named) - len(by_keyword)]
        self._keywords = frozenset(one.name for one in by_keyword)
        self._required = {one.name for one in named if _must_be_given(one.default)}
        self.takes_any_name = len(named) < len(shape.parameters)

    def bind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> dict[str, object]:
        """Return the arguments of a call by parameter name, in the order of the parameters.

        Defaults are not filled in: those of the code that runs the task will count.

        Raises:
            InvalidArguments: the function could not be called like this.
        """
        if len(args) > len(self._positional):
            self._refuse(None, self._too_many(len(args)))
        bound = dict(zip(self._positional, args))  # noqa: B905 - there may be fewer, and this is hot
        for name, value in kwargs.items():
            if name in bound:
                self._refuse(name, f"{name!r} is given twice")
            if name not in self._keywords:
                self._refuse_unless_any_name_will_do(name)
            bound[name] = value
        if not bound.keys() >= self._required:
            self._refuse_missing(bound)
        # The same call gives the same text, in whatever order its keywords were written.
        return self._in_order(bound) if len(kwargs) > 1 else bound

    def encode_arguments(self, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
        """Return the arguments of a call as JSON text that `decode_arguments` can read.

        Raises:
            InvalidArguments: the call does not fit the signature, or a value its annotation.
        """
        return self._encode(self.bind(args, kwargs))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of what is stored: all parameters but the handle."""
        return tuple(self._named)

    @property
    def defaults(self) -> Mapping[str, object]:
        """What the parameters default to; of those that must be given, the outputs."""
        return {
            one.name: one.default
            for one in self._shape.parameters
            if one.default is not Parameter.empty
        }

    @property
    def takes(self) -> str:
        """What a caller may pass, as its author wrote it."""
        return self._takes()

    def shown_annotation(self, name: str) -> str:
        """The annotation of a parameter, as its author wrote it."""
        return self._expected(name)

    def shown_return(self) -> str:
        return shown(self._shape.returns)

    def hint_of(self, name: str | None) -> object:
        """The type of a parameter, or of the result; Any where nothing is said.

        Raises:
            InvalidTask: the annotation names something that does not exist, by now at least.
        """
        if name is None:
            return self._resolved(self._shape.returns, None)
        return self._resolved(self._named[name].annotation, name)

    def check_argument(self, name: str, raw: bytes) -> None:
        """Raise ArgumentsDoNotFit unless this JSON is a value for this parameter."""
        try:
            self._types.parameters[name].read(msgspec.Raw(raw))
        except Misfit as misfit:
            stored, expected = shortened(raw.decode()), self._expected(name)
            raise ArgumentsDoNotFit(
                self._name, name + misfit.path, stored, expected, misfit.detail
            ) from misfit

    def encode_named(self, arguments: Mapping[str, object]) -> str:
        """Return as JSON text arguments that are given by name, positional-only ones too.

        Raises:
            InvalidArguments: they do not fit the signature, or a value its annotation.
        """
        if not isinstance(arguments, Mapping):
            self._refuse(None, f"{short_repr(arguments)} is not a dict of arguments by name")
        for name in arguments:
            if name not in self._named:
                self._refuse_unless_any_name_will_do(name)
        if not arguments.keys() >= self._required:
            self._refuse_missing(arguments)
        return self._encode(self._in_order(arguments))

    def decode_arguments(self, text: str) -> dict[str, object]:
        """Return stored arguments as annotated, by parameter name and without defaults.

        Raises:
            ArgumentsDoNotFit: the signature is not the one that they were stored for.
        """
        return self._decode(text, self._types)

    def read_call(self, text: str) -> Call:
        """Return stored arguments as `function(handle, *args, **kwargs)` takes them.

        Raises:
            ArgumentsDoNotFit: the signature is not the one that they were stored for.
        """
        arguments = self._decode(text, self._types)
        context = None
        if self.context is not None and isinstance(found := arguments.get(self.context), Context):
            context = found
        if not self._positional_only:
            return (), arguments, context
        return *self._spread(arguments), context

    def _spread(self, arguments: dict[str, object]) -> tuple[tuple[object, ...], dict[str, object]]:
        by_name = dict(arguments)
        args: list[object] = []
        for parameter in self._positional_only:
            # A gap before one that is given can be filled by nothing but the default.
            if not any(one.name in by_name for one in self._positional_only):
                break
            args.append(by_name.pop(parameter.name, parameter.default))
        return tuple(args), by_name

    def encode_result(self, value: object) -> str:
        """Return a result as JSON text.

        It need not fit the return annotation: the work is done, and to refuse its result would
        do it again.

        Raises:
            InvalidResult: it cannot be stored.
        """
        try:
            return payloads.encode(value)
        except InvalidPayload as error:
            reason, next_step = error.reason, error.next_step
            if inspect.iscoroutine(value):
                value.close()
                reason = "it is a coroutine that nobody awaited"
                next_step = "Declare the task, and what wraps it, with `async def`"
            raise InvalidResult(self._name, error.path, reason, next_step) from error

    def decode_result(self, text: str) -> object:
        """Return a stored result as the return annotation says; without one, as plain JSON.

        Raises:
            ResultDoesNotFit: it is no value of that type.
        """
        try:
            return self._types.result.read(text)
        except Misfit as misfit:
            raise ResultDoesNotFit(
                self._name,
                misfit.path.removeprefix("."),
                shortened(text),
                shown(self._shape.returns),
                misfit.detail,
            ) from misfit

    def _encode(self, bound: dict[str, object]) -> str:
        types = self._types  # before the values: no value fits an annotation that cannot work
        try:
            text = payloads.encode(bound)
        except InvalidPayload as error:
            field = error.path.removeprefix("$").removeprefix(".")
            why = f"cannot be stored: {error.reason}"
            self._refuse_value(bound, field, why, next_step=f". {error.next_step}")
        # What can be read back is what the task will get, so reading it back is the check.
        try:
            if not _is_read_at_once(text, types):
                self._decode_one_by_one(text, types)
        except ArgumentsDoNotFit as error:
            misfit = f"does not fit {error.expected}: {error.detail}"
            self._refuse_value(bound, error.field, misfit)
        return text

    def _decode(self, text: str, types: _Types) -> dict[str, object]:
        if types.at_once is None:
            return self._decode_one_by_one(text, types)
        try:
            arguments = asdict(types.at_once.decode(text))
        except Exception:  # noqa: BLE001 # read one by one, the culprit raises it with its name
            return self._decode_one_by_one(text, types)
        if len(self._required) < len(arguments):
            return {name: one for name, one in arguments.items() if one is not msgspec.UNSET}
        return arguments

    def _decode_one_by_one(self, text: str, types: _Types) -> dict[str, object]:
        try:
            members = _members.decode(text)
        except msgspec.MsgspecError as error:
            raise ArgumentsDoNotFit(
                self._name, "$", shortened(text), "an object in JSON", str(error)
            ) from error
        arguments: dict[str, object] = {}
        for name, raw in members.items():
            converter = types.parameters.get(name, types.any_name)
            stored = shortened(bytes(raw).decode())
            if converter is None or name == self._shape.handle:
                raise ArgumentsDoNotFit(self._name, name, stored, None)
            try:
                arguments[name] = converter.read(raw)
            except Misfit as misfit:
                raise ArgumentsDoNotFit(
                    self._name, name + misfit.path, stored, self._expected(name), misfit.detail
                ) from misfit
        for name in self._named:
            if name in self._required and name not in arguments:
                raise ArgumentsDoNotFit(self._name, name, None, self._expected(name))
        return arguments

    @cached_property
    def _types(self) -> _Types:
        hints = {one.name: self._resolved(one.annotation, one.name) for one in self._named.values()}
        converters = {name: self._converter(hint, name) for name, hint in hints.items()}
        result = self._converter(self._resolved(self._shape.returns, None), None)
        if self.takes_any_name:
            last = self._shape.parameters[-1]
            any_name = self._converter(self._resolved(last.annotation, last.name), last.name)
            return _Types(converters, any_name, result, None)
        if any(name.startswith("__") for name in hints):  # such names a Struct has for itself
            return _Types(converters, None, result, None)
        fields = [
            (name, hint) if name in self._required else (name, hint, msgspec.UNSET)
            for name, hint in hints.items()
        ]
        together = msgspec.defstruct(
            "Arguments",
            typing.cast("list[tuple[str, type, Any]]", fields),
            forbid_unknown_fields=True,
            kw_only=True,
        )
        return _Types(converters, None, result, decoder(together))

    def _resolved(self, annotation: object, parameter: str | None) -> object:
        if annotation is Parameter.empty or (parameter is None and _promises_nothing(annotation)):
            return Any
        try:
            return resolve(annotation, globals=self._shape.globals, closure=self._shape.closure)
        except UnsupportedAnnotation as error:
            raise self._invalid_annotation(parameter, error) from error

    def _converter(self, hint: object, parameter: str | None) -> Converter:
        try:
            return Converter(hint)
        except UnsupportedAnnotation as error:
            raise self._invalid_annotation(parameter, error) from error

    def _invalid_annotation(
        self, parameter: str | None, error: UnsupportedAnnotation
    ) -> InvalidTask:
        whose = "return annotation" if parameter is None else f"annotation of {parameter!r}"
        return InvalidTask(self._name, f"the {whose} {error.reason}", error.next_step)

    def _in_order(self, arguments: Mapping[str, object]) -> dict[str, object]:
        ordered = {name: arguments[name] for name in self._named if name in arguments}
        return ordered | dict(arguments) if self.takes_any_name else ordered

    def _refuse(self, parameter: str | None, reason: str) -> NoReturn:
        raise InvalidArguments(self._name, parameter, reason, self._takes())

    def _refuse_value(
        self, bound: dict[str, object], field: str, why: str, *, next_step: str = ""
    ) -> NoReturn:
        inside = f" (at {field})" if field else ""
        for name, value in bound.items():
            if field == name:
                self._refuse(name, f"{name}={short_repr(value)} {why}{next_step}")
            if field.startswith((f"{name}.", f"{name}[")):
                self._refuse(name, f"{name}={short_repr(value)} {why}{inside}{next_step}")
        self._refuse(None, f"what is passed {why}{inside}{next_step}")

    def _refuse_missing(self, arguments: Mapping[str, object]) -> NoReturn:
        missing = [name for name in self._named if name in self._required - arguments.keys()]
        self._refuse(missing[0], f"{' and '.join(map(repr, missing))} must be given")

    def _refuse_unless_any_name_will_do(self, name: object) -> None:
        if not isinstance(name, str):
            self._refuse(None, f"the key {name!r} is not the name of a parameter")
        if name == self._shape.handle:
            self._refuse(name, f"{name!r} is the handle, which the worker passes")
        if name in self._named:
            self._refuse(name, f"{name!r} can be passed by position only")
        if not self.takes_any_name:
            near = nearest(name, self._named)
            remedy = self._remedy_for(name)
            guess = f" ({remedy})" if remedy else f" (did you mean {near!r}?)" if near else ""
            self._refuse(name, f"it has no parameter {name!r}{guess}")

    def _remedy_for(self, name: str) -> str | None:
        return option_of_a_task(name)

    def _too_many(self, given: int) -> str:
        reason = f"{given} arguments were given by position, and it takes {len(self._positional)}"
        handle = self._shape.handle
        return f"{reason}; the worker passes {handle!r} itself" if handle else reason

    def _expected(self, name: str) -> str:
        parameter = self._named.get(name, self._shape.parameters[-1])
        return shown(parameter.annotation)

    def _takes(self) -> str:
        return ", ".join(map(shown_parameter, self._shape.parameters)) or "no arguments"


def _must_be_given(default: object) -> bool:
    return default is Parameter.empty or isinstance(default, Output)


def _promises_nothing(annotation: object) -> bool:
    # By equality: annotations need not be hashable.
    return annotation in (None, NoReturn, Never, "None", "NoReturn", "Never")


def _is_read_at_once(text: str, types: _Types) -> bool:
    if types.at_once is None:
        return False
    try:
        types.at_once.decode(text)
    except Exception:  # noqa: BLE001 # read one by one, the culprit raises it with its name
        return False
    return True
