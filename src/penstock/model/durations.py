"""Lengths of time as people write them: seconds, "1m30s", or a timedelta."""

import math
import re
from datetime import timedelta
from fractions import Fraction
from reprlib import repr as short_repr
from typing import TypeAlias

from penstock.errors import PenstockError

Duration: TypeAlias = int | float | str | timedelta

MAX_DURATION = timedelta(days=36_525)

_SECOND = 1_000_000
_MICROSECONDS = {
    "w": 7 * 86_400 * _SECOND,
    "d": 86_400 * _SECOND,
    "h": 3_600 * _SECOND,
    "m": 60 * _SECOND,
    "s": _SECOND,
    "ms": 1_000,
    "us": 1,
}
_UNITS = tuple(_MICROSECONDS)  # largest first, the order in which they are written
_MICROSECOND = timedelta(microseconds=1)
_MOST = MAX_DURATION // _MICROSECOND
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)([^\W\d_]*)")

# How people write durations elsewhere. We refuse them, for one notation is enough to learn, and say
# how the same length of time is written here.
_WORDS = {
    **dict.fromkeys(("week", "weeks"), "w"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("hour", "hours", "hr", "hrs"), "h"),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), "m"),
    **dict.fromkeys(("second", "seconds", "sec", "secs"), "s"),
    **dict.fromkeys(("millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("microsecond", "microseconds"), "us"),
    **{unit: unit for unit in _UNITS},
}
_PART_IN_WORDS = r"\s*(?:,|and\b)?\s*([0-9]+(?:\.[0-9]+)?)\s*([^\W\d_]+)"

# No duration needs more; Python refuses to read integers of more than 4300 digits.
_LONGEST_TEXT = 100


class InvalidDuration(PenstockError, ValueError):
    """A value that does not say how long."""

    def __init__(self, value: object, reason: str) -> None:
        self.value = value
        self.reason = reason
        super().__init__(value, reason)

    def __str__(self) -> str:
        return (
            f"{short_repr(self.value)} is not a duration: {self.reason}. Give seconds as a "
            "number, a text such as '1m30s', '250ms' or '1.5h' "
            f"(units, largest first: {' '.join(_UNITS)}), or a timedelta."
        )


def parse_duration(value: Duration) -> timedelta:
    """Return `value` as a timedelta between zero and 100 years.

    Numbers are seconds. In a text each unit occurs at most once, from the largest to the
    smallest, with or without spaces between the parts. What is finer than a microsecond is
    rounded to the nearest one.

    Raises:
        InvalidDuration: it is anything else; the error says why.
    """
    match value:
        # A bool is an int to Python, but `timeout=True` never means one second.
        case bool():
            raise InvalidDuration(value, "a bool says nothing about time")
        case timedelta():
            microseconds = Fraction(value // _MICROSECOND)
        case str():
            microseconds = _read(value)
        case int():
            microseconds = Fraction(value * _SECOND)
        case float() if math.isfinite(value):
            microseconds = Fraction(value) * _SECOND
        case float():
            raise InvalidDuration(value, "it is not a finite number")
        case _:
            raise InvalidDuration(value, f"a {type(value).__name__} says nothing about time")
    if microseconds < 0:
        raise InvalidDuration(value, "it is negative")
    if microseconds > _MOST:
        raise InvalidDuration(value, "it is longer than 100 years")
    return timedelta(microseconds=round(microseconds))


def format_duration(duration: timedelta) -> str:
    """Return the text that `parse_duration` reads back as exactly `duration`.

    Days are the largest unit used, and units of which there are none are left out: "90d",
    "1m30s", "0s". A negative duration has a minus in front, for people alone to read.
    """
    if duration < timedelta():
        return f"-{format_duration(-duration)}"
    rest = duration // _MICROSECOND
    parts = []
    # Without weeks: everybody reads "90d" at a glance, and nobody "12w6d".
    for unit in _UNITS[1:]:
        count, rest = divmod(rest, _MICROSECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _read(text: str) -> Fraction:
    written = text.strip()
    if not written:
        raise InvalidDuration(text, "it is empty")
    if len(written) > _LONGEST_TEXT:
        raise InvalidDuration(text, f"it has more than {_LONGEST_TEXT} characters")
    if written.startswith("-"):
        raise InvalidDuration(text, "it is negative")
    microseconds = Fraction()
    units_left = _UNITS
    position = 0
    while position < len(written):
        part = _PART.match(written, position)
        if part is None:
            raise InvalidDuration(text, f"no number starts at {written[position:].strip()!r}")
        number, unit = part.groups()
        if not unit:
            why = f"the number {number} has no unit, as in '{number}s'"
            raise InvalidDuration(text, _written_here(written) or why)
        if unit not in _MICROSECONDS:
            raise InvalidDuration(text, _written_here(written) or f"there is no unit {unit!r}")
        if unit not in units_left:
            raise InvalidDuration(text, f"{unit!r} comes twice or after a smaller unit")
        microseconds += Fraction(number) * _MICROSECONDS[unit]
        units_left = units_left[units_left.index(unit) + 1 :]
        position = part.end()
    return microseconds


def _written_here(written: str) -> str | None:
    """Say how a duration in words, such as "5 minutes", is written here, if it is one."""
    parts = []
    position = 0
    pattern = re.compile(_PART_IN_WORDS)
    while position < len(written):
        part = pattern.match(written, position)
        # A single letter counts as it is written: an M may well be a month.
        word = "" if part is None else part[2].lower() if part[2][1:] else part[2]
        if part is None or word not in _WORDS:
            return None
        parts.append(part[1] + _WORDS[word])
        position = part.end()
    meant = "".join(parts)
    try:
        _read(meant)
    except InvalidDuration:  # in another order, say
        return None
    return f"here it is written {meant!r}"
