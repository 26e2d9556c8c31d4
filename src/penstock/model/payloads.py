"""Arguments, results and inputs as JSON text, the same byte for byte in every database.

One validator stands before every store. What SQLite or PostgreSQL would refuse, change or
misread later is refused here, in the caller, with the path to the culprit.

Encoding is fast for data that is in order and patient with data that is not: the text is read
back and compared with what was meant, and only where the two differ does `_Inspector` walk
through the value, to name the culprit or to find that there is none.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, NoReturn

import msgspec

from penstock.errors import PenstockError, first_line

MAX_PAYLOAD_BYTES = 8 * 1024 * 1024

# Fixed, so that what one process could write another can read: Python's own limit depends on
# how deep the caller's stack already is.
MAX_DEPTH = 100

_LONGEST_PATH_SHOWN = 80
_NUL = "\\u0000"  # as JSON spells it
_SHORT = 4_000  # bytes: no integer in here has more digits than Python reads
_SAFE = frozenset({str, int, bool, type(None)})  # what means the same when it is read back

_GIVE_PLAIN_DATA = (
    "Pass dicts, lists, strings, numbers, dataclasses, Structs, pydantic models, enums, "
    "datetimes, UUIDs or Decimals"
)
_GIVE_JSON = "Give JSON text, as in '{\"order_id\": 42}'"


class InvalidPayload(PenstockError, ValueError):
    """A value that cannot be stored as JSON without loss; `path` leads to the culprit."""

    def __init__(self, path: str, reason: str, next_step: str) -> None:
        self.path = path
        self.reason = reason
        self.next_step = next_step
        # The facts themselves, so that the error survives the way out of a child process.
        super().__init__(path, reason, next_step)

    def __str__(self) -> str:
        path = self.path
        if len(path) > _LONGEST_PATH_SHOWN:
            path = f"{path[: _LONGEST_PATH_SHOWN // 2]}…{path[-_LONGEST_PATH_SHOWN // 2 :]}"
        return f"The payload cannot be stored: {self.reason} (at {path}). {self.next_step}."


def encode(value: object) -> str:
    """Return `value` as compact JSON text, with keys in the order in which they are.

    Takes what msgspec encodes, and pydantic models. Integers of any size and floats come back
    from `decode` as they were, and so does the sign of -0.0.

    Raises:
        InvalidPayload: the text would not mean the same, or a database would not take it.
    """
    if value is None:
        return "null"
    try:
        data = _encoder.encode(value)
        text = data.decode()
        if len(data) < _SHORT and _is_flat(value) and _NUL not in text:
            return text
        read_back = _decoder.decode(data)
        plain = msgspec.to_builtins(value, enc_hook=_plain)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        _Inspector().inspect(value)
        raise InvalidPayload("$", first_line(error), _GIVE_PLAIN_DATA) from error
    if len(data) > MAX_PAYLOAD_BYTES:
        _refuse_size(len(data), path=_path_to_the_heaviest(read_back, len(data)))
    # msgspec writes null for NaN, and one key twice for 1 and "1": both differ when read back.
    # Not compared with `value` itself, which could run an `__eq__` that somebody wrote.
    if _NUL in text or _is_deep(text, read_back) or read_back != plain:
        _Inspector().inspect(plain)
    return text


def decode(text: str) -> object:
    """Return what `text` means, in dicts, lists, strings, numbers, bools and None.

    Raises:
        InvalidPayload: it is not JSON.
    """
    try:
        return _decoder.decode(text)
    except (UnicodeError, msgspec.DecodeError, RecursionError) as error:
        raise InvalidPayload("$", first_line(error), _GIVE_JSON) from error


def check(text: str) -> str:
    """Return `text`, unchanged, if it is JSON that every store can hold.

    Raises:
        InvalidPayload: it is malformed, or says something that `encode` would have refused.
    """
    try:
        data = text.encode()
        if len(data) > MAX_PAYLOAD_BYTES:
            _refuse_size(len(data), path="$")
        value = _decoder.decode(data)
    except (UnicodeEncodeError, msgspec.DecodeError, RecursionError) as error:
        _refuse_unreadable(text, error)
    if _NUL in text or _is_deep(text, value):
        _Inspector().inspect(value)
    return text


def _is_flat(value: object) -> bool:
    """Whether it is a dict of what is safe: most arguments are, and need no second look."""
    if type(value) is not dict:
        return False
    for key, one in value.items():  # noqa: SIM110 - every enqueue would wait for the generator
        if type(key) is not str or type(one) not in _SAFE:
            return False
    return True


def _plain(value: object) -> object:
    """Turn what msgspec does not know into what it knows; both its ways of encoding ask."""
    if isinstance(value, msgspec.Raw):
        return _decoder.decode(value)
    # By shape: users of pydantic have imported it, others need not have it. Not by
    # model_dump_json() itself, which writes null for NaN. By alias and for the round trip,
    # because the model must be able to read its own text.
    if hasattr(type(value), "model_dump_json"):
        model: Any = value
        return model.model_dump(mode="json", by_alias=True, round_trip=True)
    raise _no_json_for(value)


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder()


class _Inspector:
    """Walks through a value as msgspec does, and refuses the first culprit that it meets."""

    def __init__(self) -> None:
        self._entered: set[int] = set()

    def inspect(self, value: object, path: str = "$") -> None:
        kind = type(value)
        # By the exact type, because msgspec refuses what is derived from these three.
        if kind is str:
            _refuse_text(str(value), path)
        elif isinstance(value, float) and kind is float:
            _refuse_not_finite(value, path)
        elif isinstance(value, int) and kind is int:
            _refuse_too_many_digits(value, path)
        elif isinstance(value, Enum):
            self.inspect(value.value, path)
        elif isinstance(value, dict):
            self._enter(value, path, _members(value, path))
        elif isinstance(value, list | tuple | set | frozenset):
            self._enter(value, path, ((f"{path}[{n}]", item) for n, item in enumerate(value)))
        elif (fields := _fields(value)) is not None:
            self._enter(value, path, ((path + _step(name), item) for name, item in fields))
        else:
            self._inspect_leaf(value, path)

    def _enter(self, value: object, path: str, members: Iterable[tuple[str, object]]) -> None:
        if id(value) in self._entered:
            raise InvalidPayload(path, "it contains itself", "Pass an id in place of the cycle")
        if len(self._entered) == MAX_DEPTH:
            raise _too_deep(path)
        self._entered.add(id(value))
        for member_path, member in members:
            self.inspect(member, member_path)
        self._entered.remove(id(value))

    def _inspect_leaf(self, value: object, path: str) -> None:
        try:
            plain = msgspec.to_builtins(value, enc_hook=_plain)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidPayload(path, first_line(error), _GIVE_PLAIN_DATA) from error
        if plain is not value:
            self.inspect(plain, path)


def _members(value: dict[object, object], path: str) -> Iterator[tuple[str, object]]:
    names = set()
    for key, item in value.items():
        name = key if isinstance(key, str) else _name_of_key(key, path)
        member_path = path + _step(name)
        _refuse_text(name, member_path, what="key")
        if name in names:
            raise InvalidPayload(
                member_path,
                f"two keys both become {name!r} in JSON, which would lose one of them",
                "Give all keys the same type",
            )
        names.add(name)
        yield member_path, item


def _name_of_key(key: object, path: str) -> str:
    if isinstance(key, float) and not math.isfinite(key):
        raise InvalidPayload(path, f"the key {key} is not a finite number", "Use strings as keys")
    try:
        (name,) = _decoder.decode(_encoder.encode({key: None}))
    except TypeError as error:
        raise InvalidPayload(
            path, f"a {type(key).__name__} cannot be a key in JSON", "Use strings as keys"
        ) from error
    return str(name)


def _fields(value: object) -> Iterator[tuple[str, object]] | None:
    names: Iterable[tuple[str, str]]
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = ((field.name, field.name) for field in dataclasses.fields(value))
    elif attributes := getattr(type(value), "__attrs_attrs__", None):
        names = ((attribute.name, attribute.name) for attribute in attributes)
    else:
        return None
    present = ((shown, getattr(value, name, msgspec.UNSET)) for shown, name in names)
    return ((shown, item) for shown, item in present if item is not msgspec.UNSET)


def _step(name: str) -> str:
    import json  # noqa: PLC0415 - only where something is refused

    return f".{name}" if name.isidentifier() else f"[{json.dumps(name)}]"


def _refuse_text(text: str, path: str, *, what: str = "string") -> None:
    if "\0" in text:
        raise InvalidPayload(
            path,
            f"the {what} has a NUL character, which PostgreSQL cannot hold",
            "Remove it, or pass bytes, which are stored as base64",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidPayload(
            path,
            f"the {what} has half of a surrogate pair, {text[error.start]!a}, which is no text",
            "Decode it with errors='replace' where it comes from, or pass bytes",
        ) from error


def _refuse_not_finite(number: float, path: str) -> None:
    if not math.isfinite(number):
        raise InvalidPayload(
            path, f"JSON has no number for {number}", "Pass None, or the number as a string"
        )


def _refuse_too_many_digits(number: int, path: str) -> None:
    try:
        str(number)
    except ValueError as error:
        raise InvalidPayload(
            path, "the integer has more digits than Python reads", "Pass it as a string, in hex"
        ) from error


def _refuse_size(size: int, *, path: str) -> NoReturn:
    raise InvalidPayload(
        path,
        f"it has {size:,} bytes and the limit is {MAX_PAYLOAD_BYTES:,}",
        "Store the data elsewhere, a file or a table, and pass a reference to it",
    )


def _refuse_unreadable(text: str, error: Exception) -> NoReturn:
    import json  # noqa: PLC0415 - only where something is refused

    # The standard library reads NaN, 1e400 and half surrogate pairs: then they have a path.
    try:
        value = json.loads(text)
    except ValueError:
        raise InvalidPayload("$", first_line(error), _GIVE_JSON) from error
    except RecursionError:
        raise _too_deep("$") from error
    _Inspector().inspect(value)
    raise InvalidPayload("$", first_line(error), _GIVE_JSON) from error


def _too_deep(path: str) -> InvalidPayload:
    return InvalidPayload(path, f"it is more than {MAX_DEPTH} levels deep", "Flatten it")


def _no_json_for(value: object) -> TypeError:
    return TypeError(f"there is no JSON for values of type {type(value).__qualname__}")


def _is_deep(text: str, value: object) -> bool:
    # Brackets inside strings count too, so this only says that a closer look is needed.
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for _, child in _children(node)]
    return any(isinstance(node, dict | list) for node in level)


def _children(node: object) -> Iterable[tuple[str | int, object]]:
    if isinstance(node, dict):
        return node.items()
    return enumerate(node) if isinstance(node, list) else ()


def _path_to_the_heaviest(value: object, size: int) -> str:
    """Go down as long as one part has more than half of the weight."""
    path = "$"
    for _ in range(MAX_DEPTH):
        weights = ((len(_encoder.encode(child)), at, child) for at, child in _children(value))
        heaviest = max(weights, key=lambda weight: weight[0], default=None)
        if heaviest is None or heaviest[0] * 2 <= size:
            break
        size, at, value = heaviest
        path += f"[{at}]" if isinstance(at, int) else _step(at)
    return path
