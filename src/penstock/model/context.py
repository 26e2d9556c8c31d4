"""What the tasks of a workflow share.

A task sees the inputs of the run and what the tasks upstream of it wrote, merged in the order
of the graph, so that it never matters who was faster: dicts are merged key by key, lists take
in the elements that they do not have yet, and of anything else the later one wins.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.model import payloads

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_ordered = msgspec.json.Encoder(order="deterministic").encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ContextOnlyGrows(PenstockError, TypeError):
    """A task tried to take a key out of the context."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"{key!r} cannot be deleted from the context: another branch may have written it, "
            "and the two are merged. Set it to None."
        )


class InvalidKey(PenstockError, TypeError):
    """A key that JSON has no place for."""

    def __init__(self, key: object) -> None:
        self.key = key
        super().__init__(f"A context's keys are texts, and {key!r} is none. Use str(…).")


class Context(MutableMapping[str, Any]):
    """A dict of JSON values that a task may read and add to.

    What it wrote is stored with its result, in one piece: a task that fails has written nothing.
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._given: dict[str, bytes] = {}
        self._values: dict[str, Any] = {}
        if values:
            self._given = _raw(msgspec.json.encode(values))
            self._values = _decode(msgspec.json.encode(values))

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - any JSON value
        return self._values[key]

    def __setitem__(self, key: str, value: Any) -> None:  # noqa: ANN401 - any JSON value
        if not isinstance(key, str):
            raise InvalidKey(key)
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        raise ContextOnlyGrows(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Context({self._values!r})"

    def written(self) -> str | None:
        """What has been added or changed, also deep inside a value, as JSON text.

        Raises:
            InvalidPayload: a value cannot be stored.
        """
        text = payloads.encode(self._values)
        changed = {
            key: msgspec.Raw(raw) for key, raw in _raw(text).items() if self._given.get(key) != raw
        }
        return msgspec.json.encode(changed).decode() if changed else None


def merged(inputs: str, writes: Iterable[str]) -> dict[str, Any]:
    """Return the inputs of a run and what was written in it, in this order, as one."""
    whole = _decode(inputs)
    for written in writes:
        _merge(whole, _decode(written))
    return whole


def _merge(earlier: dict[str, Any], later: Mapping[str, Any]) -> None:
    for key, value in later.items():
        there = earlier.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            _merge(there, value)
        elif isinstance(there, list) and isinstance(value, list):
            _take_in(there, value)
        else:
            earlier[key] = value


def _take_in(earlier: list[Any], later: Iterable[Any]) -> None:
    known = {_mark(item) for item in earlier}
    for item in later:
        if (mark := _mark(item)) not in known:
            known.add(mark)
            earlier.append(item)


def _mark(item: Any) -> float | str | bytes:  # noqa: ANN401 - any JSON value
    """What two elements have in common that are the same."""
    if isinstance(item, int | float | str) and not isinstance(item, bool):
        return item
    return _ordered(item)  # for Python, true would be the same as 1


def _raw(text: str | bytes) -> dict[str, bytes]:
    return {key: bytes(raw) for key, raw in _members(text).items()}
