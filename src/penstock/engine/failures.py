"""Errors as they are stored: type, message, and the user's part of the traceback."""

import traceback
from pathlib import Path

import msgspec

_ENGINE = str(Path(__file__).parent)
_MOST_FRAMES = 40
_LONGEST_MESSAGE = 4_000
_LONGEST_TRACEBACK = 16_000


def stored_error(error: BaseException) -> str:
    """Return an error as JSON text: bounded, and safe to store whatever it contains."""
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return msgspec.json.encode(
        {
            "type": name,
            "message": _storable(message_of(error), _LONGEST_MESSAGE),
            "traceback": _storable(_users_traceback(error), _LONGEST_TRACEBACK),
        }
    ).decode()


def message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as unprintable:  # noqa: BLE001 - a user's __str__ may do anything
        return f"(its message cannot be shown: {type(unprintable).__name__})"


def _users_traceback(error: BaseException) -> str:
    try:
        told = traceback.TracebackException.from_exception(error, limit=-_MOST_FRAMES, compact=True)
        _leave_out_engine(told)
        return "".join(told.format())
    except Exception as unprintable:  # noqa: BLE001 - formatting calls the user's code too
        return f"(its traceback cannot be shown: {type(unprintable).__name__})"


def _leave_out_engine(told: traceback.TracebackException) -> None:
    """Also from the errors that it came from, and from those that it is a group of."""
    ahead = [told]
    while ahead:
        one = ahead.pop()
        one.stack = traceback.StackSummary.from_list(
            frame for frame in one.stack if not frame.filename.startswith(_ENGINE)
        )
        related = (one.__cause__, one.__context__, *(one.exceptions or ()))
        ahead += [other for other in related if other is not None]


def _storable(text: str, longest: int) -> str:
    text = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
