"""One annotation: whether its values can travel as JSON, and how they come back from it.

msgspec does the work. What it does not know it takes on trust, any class at all, so the
annotation is searched for classes that nobody here can read back. Pydantic models are known by
their methods: their users have imported pydantic, others need not have it.
"""

import re
import typing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.inspect import CustomType, DataclassType, Field, Type, type_info

from penstock.model.context import Context

_WHERE = r"(?s)(?P<what>.*?)(?: - at (?:`key` in )?`\$(?P<path>[^`]*)`)?"

_SUPPORTED = (
    "Use plain data (str, int, float, bool, None, list, dict, tuple, set), dataclasses, Structs, "
    "pydantic models, TypedDicts, NamedTuples, enums, dates and times, UUID, Decimal or bytes; "
    "for any other object pass its id, and load it in the task"
)
_ONE_OF_THEM = "Annotate one of them, or a dataclass with a field for each"
_NO_PATH = "Annotate str, and pass str(path): a path means something on one machine only"
_INSTEAD: Mapping[type, str] = {
    deque: "Annotate list",
    dict: "Annotate dict",
    str: "Annotate str, or a NewType of it",
    int: "Annotate int, or a NewType of it",
    Iterable: "Annotate list or Sequence: what is stored can be read twice",
}


class UnsupportedAnnotation(Exception):
    """A type whose values cannot be stored as JSON, or not be told apart in it.

    It becomes an InvalidTask where the task and the parameter are known.
    """

    def __init__(self, reason: str, next_step: str = _SUPPORTED) -> None:
        self.reason = reason
        self.next_step = next_step
        super().__init__(reason, next_step)


class UnknownName(UnsupportedAnnotation):
    """An annotation uses a name that does not exist while the program runs."""

    def __init__(self, unknown: str, *, within: str | None = None) -> None:
        self.unknown = unknown
        inside = f" inside {within}" if within else ""
        super().__init__(
            f"needs the name {unknown!r}{inside}, which does not exist while the program runs",
            f"Import {unknown!r} at module level, not under TYPE_CHECKING; define it at module "
            "level if it is local to a function",
        )


class Misfit(Exception):
    """JSON that is no value of the annotated type; `path` leads from the value to the culprit.

    It becomes an error that names the task where the task is known.
    """

    def __init__(self, path: str, detail: str) -> None:
        self.path = path
        self.detail = detail
        super().__init__(path, detail)


class _ModelRefused(ValueError):
    """Carries the path within a model through msgspec, which knows the path to the model."""

    def __init__(self, path: str, detail: str) -> None:
        self.path = path
        super().__init__(detail)


class Converter:
    """Reads JSON text as values of one annotated type."""

    def __init__(self, annotation: object) -> None:
        try:
            self._decoder = decoder(annotation)
            culprit = next(_unreadable(type_info(annotation)), None)
        except (NameError, AttributeError) as error:
            raise UnknownName(str(error.name), within=_name_of(annotation)) from error
        except (TypeError, ValueError, RecursionError) as error:
            reason, _, _ = str(error).partition(" - type ")
            why = f"cannot be read back from JSON: {_lower_first(_first_line(reason))}"
            next_step = _ONE_OF_THEM if "unions" in reason else _SUPPORTED
            raise UnsupportedAnnotation(why, next_step) from error
        if culprit is not None:
            raise _unsupported_class(culprit)

    def read(self, data: str | msgspec.Raw) -> object:
        """Return the value, or raise Misfit."""
        try:
            return self._decoder.decode(data)
        except Exception as error:
            # Any error: `__post_init__` and validators are code of the application.
            raise _misfit(error) from error


def decoder(annotation: object) -> msgspec.json.Decoder[Any]:
    """Return a strict decoder for `annotation` that also reads pydantic models."""
    kind: Any = annotation
    return msgspec.json.Decoder(kind, dec_hook=_revive)


def resolve(
    annotation: object,
    *,
    globals: dict[str, object],  # noqa: A002 # as `eval` calls them
    closure: dict[str, object],
) -> object:
    """Return `annotation` with every name in it looked up.

    Raises:
        UnknownName: a name does not exist.
        UnsupportedAnnotation: it is no type.
    """
    owner = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(owner, globals, closure, include_extras=True)["it"]
    except (NameError, AttributeError) as error:
        raise UnknownName(str(error.name)) from error
    except (TypeError, ValueError, SyntaxError) as error:
        why = f"is no type: {_first_line(str(error))}"
        raise UnsupportedAnnotation(why, "Write a type, as in `order_id: int`") from error


def closure_of(function: Callable[..., object]) -> dict[str, object]:
    """The names of the functions around it that it uses, as far as they exist by now."""
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    found: dict[str, object] = {}
    for name, cell in zip(code.co_freevars if code else (), cells, strict=True):
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _revive(kind: type, value: object) -> object:
    if kind is object:
        return value
    if kind is Context:
        return Context(typing.cast("Mapping[str, Any]", value))
    model: Any = kind
    # From JSON, not from `value`: a strict model takes a date from text in JSON only.
    try:
        return typing.cast("object", model.model_validate_json(msgspec.json.encode(value)))
    except ValueError as error:
        raise _refused_by_model(error) from error


def _refused_by_model(error: ValueError) -> _ModelRefused:
    errors = getattr(error, "errors", None)
    if errors is None:
        return _ModelRefused("", _first_line(str(error)))
    first = errors()[0]
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"])
    return _ModelRefused(path, first["msg"])


def _misfit(error: Exception) -> Misfit:
    match = re.fullmatch(_WHERE, str(error))
    if not isinstance(error, msgspec.DecodeError) or match is None:
        return Misfit("", f"{type(error).__name__}: {_first_line(str(error))}")
    path = match["path"] or ""
    if isinstance(error.__cause__, _ModelRefused):
        path += error.__cause__.path
    return Misfit(path, _lower_first(_first_line(match["what"])))


def _unreadable(info: Type) -> Iterator[type]:
    waiting: list[object] = [info]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Type | Field) or id(node) in seen:
            continue
        seen.add(id(node))
        if (isinstance(node, CustomType) and not _can_revive(node.cls)) or (
            # msgspec reads a pydantic dataclass as a plain one: no validation, no defaults.
            isinstance(node, DataclassType) and hasattr(node.cls, "__pydantic_validator__")
        ):
            yield node.cls
        for name in node.__struct_fields__:
            part = getattr(node, name)
            waiting.extend(part if isinstance(part, tuple) else [part])


def _can_revive(kind: type) -> bool:
    return kind in {object, Context} or (
        hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump_json")
    )


def _unsupported_class(kind: type) -> UnsupportedAnnotation:
    name = _name_of(kind)
    if hasattr(kind, "__pydantic_validator__"):
        return UnsupportedAnnotation(
            f"uses {name}, a pydantic dataclass, which would skip its validation",
            "Make it a pydantic BaseModel, or a standard dataclass",
        )
    from pathlib import PurePath  # noqa: PLC0415 - only where something is refused

    for base, instead in {PurePath: _NO_PATH, **_INSTEAD}.items():
        if isinstance(kind, type) and issubclass(kind, base):
            return UnsupportedAnnotation(f"uses {name}, which JSON cannot hold", instead)
    return UnsupportedAnnotation(f"uses {name}, which JSON cannot hold")


def _name_of(annotation: object) -> str:
    return getattr(annotation, "__qualname__", None) or str(annotation)


def _first_line(text: str) -> str:
    return (text.strip() or "no reason given").splitlines()[0].rstrip(".")


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
