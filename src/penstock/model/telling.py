"""How facts are told to people: moments, spans of time, numbers, names and errors."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from penstock.model.durations import format_duration

SHORTEST = timedelta(milliseconds=1)
LONGEST_LINE = 200

# A span is told in steps that fit its length: nobody wants the seconds of three days.
_STEPS = (
    (timedelta(days=2), timedelta(hours=1)),
    (timedelta(hours=2), timedelta(minutes=1)),
    (timedelta(seconds=10), timedelta(seconds=1)),
)


def span(length: timedelta) -> str:
    """Return how long, as people say it: "340ms", "2.5s", "1m12s", "3d4h"."""
    length = abs(length)
    if timedelta(seconds=1) <= length < timedelta(seconds=10):
        return f"{length.total_seconds():.1f}s"
    step = next((step for least, step in _STEPS if length >= least), SHORTEST)
    return format_duration(max(round(length / step) * step, SHORTEST))


def moment(at: datetime) -> str:
    """Return a moment in the local time zone, with its offset: it may be read elsewhere."""
    return at.astimezone().isoformat(" ", "seconds")


def count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def some_of(names: Sequence[str], *, most: int = 5) -> str:
    """Return a, b and 2 more, as they are and in their order."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def listed(names: Iterable[str], *, most: int = 3) -> str:
    """Return 'a', 'b' and 2 more."""
    all_names = sorted(names)
    told = [repr(name) for name in all_names[:most]]
    if len(all_names) > most:
        told.append(f"{len(all_names) - most} more")
    return " and ".join(filter(None, (", ".join(told[:-1]), *told[-1:])))


def error_line(error: object) -> str:
    """Return an error as stored on one line: its type and its message."""
    if not isinstance(error, Mapping):
        return "an error that was not stored"
    parts = (str(error[part]) for part in ("type", "message") if error.get(part))
    line = " ".join(": ".join(parts).split()) or "an error without a message"
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
