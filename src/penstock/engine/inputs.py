"""What a workflow is started with: bound and checked as a task's arguments are.

Defaults are filled in when a run starts, because many tasks may read one input and they all
have to see the same value.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter
from types import MappingProxyType
from typing import Any, NoReturn

import msgspec

from penstock.engine.conversion import UnsupportedAnnotation
from penstock.engine.functions import Colour, InvalidTask, TaskShape
from penstock.engine.habits import option_of_a_start
from penstock.engine.signatures import TaskSignature
from penstock.engine.workflow_errors import InvalidInputs, InvalidWorkflow
from penstock.errors import PenstockError

_raw_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_WRITE_A_CLASS = "Give a dataclass, as in `@dataclass class Daily: day: str`, then inputs=Daily"


class Inputs(TaskSignature):
    """The named fields of a class, or the parameters of a function, that a run begins with.

    Raises:
        InvalidWorkflow: it is neither, or its fields have no names.
    """

    def __init__(self, form: Callable[..., object] | None, *, workflow: str) -> None:
        self._form = form
        parameters = () if form is None else _parameters(form, workflow)
        self._use(
            TaskShape(
                colour=Colour.SYNC,
                handle=None,
                context=None,
                parameters=parameters,
                returns=Parameter.empty,
                function=form or _nothing,
            ),
            workflow,
        )

    def encode(self, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
        """Return the inputs of a start as the JSON text of an object, with defaults.

        Raises:
            InvalidInputs: they do not fit.
        """
        return self._encode(self._filled(args, kwargs, self.bind(args, kwargs)))

    def _filled(
        self, args: tuple[object, ...], kwargs: dict[str, object], bound: dict[str, object]
    ) -> dict[str, object]:
        if self._form is None:
            return {}
        if not inspect.isclass(self._form):
            return {
                name: bound.get(name, one.default)
                for name, one in self._named.items()
                if name in bound or one.default is not Parameter.empty
            }
        # Made here and now, so that its own checks and defaults are those that count.
        try:
            made = self._form(*args, **kwargs)
        except PenstockError:
            raise
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise InvalidInputs(
                self._name, None, f"{self._form.__name__} refuses it: {reason}", self._takes()
            ) from error
        if isinstance(made, dict):
            return {name: made[name] for name in self._named if name in made}
        return {name: getattr(made, name, bound.get(name)) for name in self._named}

    def refuse_missing_in(self, name: str, task: str) -> NoReturn:
        """Say that a task cannot do without an input that was left out."""
        self._refuse(name, f"{name!r} was left out, and its task {task!r} has no default for it")

    def members(self, text: str) -> Mapping[str, bytes]:
        """Each input as JSON text."""
        return MappingProxyType({name: bytes(raw) for name, raw in _raw_members(text).items()})

    def _resolved(self, annotation: object, parameter: str | None) -> object:
        if inspect.isclass(self._form) and parameter is not None:
            # A class may have fields from others, in modules with names of their own.
            try:
                hints = typing.get_type_hints(self._form, include_extras=True)
            except Exception:  # noqa: BLE001 - the single annotation then says what is wrong
                hints = {}
            if parameter in hints:
                annotation = _without_marks(hints[parameter])
        return super()._resolved(annotation, parameter)

    def _invalid_annotation(
        self, parameter: str | None, error: UnsupportedAnnotation
    ) -> InvalidTask:
        raise InvalidWorkflow(
            self._name, None, f"the input {parameter!r} {error.reason}", error.next_step
        ) from error

    def _remedy_for(self, name: str) -> str | None:
        return option_of_a_start(name)

    def _refuse(self, parameter: str | None, reason: str) -> NoReturn:
        raise InvalidInputs(self._name, parameter, reason, self._takes())


def _nothing() -> None:
    """Stand for inputs that there are none of."""


def _parameters(form: object, workflow: str) -> tuple[Parameter, ...]:
    if not callable(form):
        raise InvalidWorkflow(
            workflow, None, f"inputs={form!r} is neither a class nor a function", _WRITE_A_CLASS
        )
    if typing.is_typeddict(form):
        # Annotations that were texts hide their marks from `__optional_keys__`.
        optional: frozenset[str] = getattr(form, "__optional_keys__", frozenset())
        return tuple(
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                annotation=_without_marks(hint),
                default=msgspec.UNSET
                if _may_be_left_out(name, hint, optional)
                else Parameter.empty,
            )
            for name, hint in _fields_of(form).items()
        )
    try:
        parameters = tuple(inspect.signature(form).parameters.values())
    except (TypeError, ValueError):
        parameters = (Parameter("args", Parameter.VAR_POSITIONAL),)
    for one in parameters:
        if one.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.POSITIONAL_ONLY}:
            raise InvalidWorkflow(
                workflow,
                None,
                f"inputs={getattr(form, '__name__', form)} has no named fields that tasks could "
                "ask for",
                _WRITE_A_CLASS,
            )
    return parameters


def _fields_of(form: Any) -> dict[str, Any]:  # noqa: ANN401 - a TypedDict is no type to the checker
    try:
        return typing.get_type_hints(form, include_extras=True)
    except (NameError, TypeError):
        return dict(form.__annotations__)


def _may_be_left_out(name: str, hint: object, optional: frozenset[str]) -> bool:
    mark = typing.get_origin(hint)
    return mark is typing.NotRequired or (name in optional and mark is not typing.Required)


def _without_marks(hint: object) -> object:
    while typing.get_origin(hint) in {typing.Required, typing.NotRequired}:
        (hint,) = typing.get_args(hint)
    return hint
