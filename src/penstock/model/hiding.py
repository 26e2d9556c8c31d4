"""What is not to be printed: members of stored JSON, by their names, wherever they are in it."""

from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from penstock.model.executions import Snapshot
from penstock.model.runs import RunSnapshot

MASK = '"***"'

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def hide(text: str, names: Collection[str]) -> str:
    """Return stored JSON with `***` for every member of these names, in any case, at any depth.

    All else stays as it is written, to the last digit. A text that is no JSON is hidden whole
    if one of the names is in it.
    """
    unwanted = {name.casefold() for name in names}
    if not unwanted:
        return text
    try:
        return _hidden(text.encode(), unwanted).decode()
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        found = any(name in text.casefold() for name in unwanted)
        return MASK if found else text


def hide_in_execution(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """The same execution, fit to be shown."""
    return replace(
        snapshot,
        args=hide(snapshot.args, names),
        result=_hide_if_there(snapshot.result, names),
        progress=_hide_if_there(snapshot.progress, names),
        writes=_hide_if_there(snapshot.writes, names),
    )


def hide_in_run(run: RunSnapshot, names: Collection[str]) -> RunSnapshot:
    """The same run, fit to be shown."""
    return replace(run, inputs=hide(run.inputs, names))


def _hide_if_there(text: str | None, names: Collection[str]) -> str | None:
    return None if text is None else hide(text, names)


def _hidden(raw: bytes, unwanted: set[str]) -> bytes:
    match raw.lstrip()[:1]:
        case b"{":
            return _encode(
                {
                    name: msgspec.Raw(
                        MASK.encode()
                        if name.casefold() in unwanted
                        else _hidden(bytes(value), unwanted)
                    )
                    for name, value in _members(raw).items()
                }
            )
        case b"[":
            return _encode([msgspec.Raw(_hidden(bytes(item), unwanted)) for item in _items(raw)])
        case _:
            return raw
