"""Ids of executions: UUIDv7, made by the client, so they are known before the commit.

As text they sort by the time at which they were made. The layout is RFC 9562's with a
counter (section 6.2, method 1):

    48 bits   milliseconds since 1970
    42 bits   counter, around the version and variant bits: starts anywhere in its lower half
              each millisecond, and goes up by one for each id within it
    32 bits   random
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from reprlib import repr as short_repr
from uuid import UUID

from penstock.errors import PenstockError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_NANOSECONDS = 1_000_000
_COUNTER_END = 1 << 42
_LOW_BITS = (1 << 16) - 1  # of the counter, in the last group of an id
_RANDOM_BYTES = 8192
_PLACE_DIGITS = 6  # hexadecimal: the ids of a run's tasks are its own, counted up
_ELEMENT_BITS = 14  # of them, for the elements of a task that runs for each of a list

MOST_TASKS = (1 << 4 * _PLACE_DIGITS - _ELEMENT_BITS) - 2
MOST_ELEMENTS = 10_000

# Not compiled before they are used: that takes longer than the rest of this module.
_CANONICAL = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_COMPACT = r"[0-9a-f]{32}"
_VERSION_7 = r".{14}7.{4}[89ab]"


class InvalidId(PenstockError, ValueError):
    """A value that cannot be the id of an execution."""

    def __init__(self, value: object, reason: str) -> None:
        self.value = value
        self.reason = reason
        super().__init__(value, reason)

    def __str__(self) -> str:
        return (
            f"{short_repr(self.value)} is not an execution's id: {self.reason}. Copy the whole id, "
            "as in '0190163d-8694-739b-aea5-966c26f8ad91'; `penstock list` shows them."
        )


class InvalidMoment(PenstockError, ValueError):
    """A datetime at which no id can have been made."""

    def __init__(self, moment: datetime, reason: str) -> None:
        self.moment = moment
        self.reason = reason
        super().__init__(moment, reason)

    def __str__(self) -> str:
        return (
            f"No id can have been made at {self.moment.isoformat()}: {self.reason}. Give an "
            "aware datetime since 1970, as in datetime.now(UTC)."
        )


class IdSource:
    """Makes ids that rise strictly, even while the clock stands still or goes back.

    Safe to share between threads, and to call from a signal handler.
    """

    def __init__(self, nanoseconds: Callable[[], int] = time.time_ns) -> None:
        self._nanoseconds = nanoseconds
        self.forget()

    def forget(self) -> None:
        """Start afresh, as in a child process that must not repeat its parent's ids.

        The lock is new as well: in the parent, another thread may hold it at this moment.
        """
        # Re-entrant, because a signal handler runs in the middle of whatever the thread does.
        self._lock = threading.RLock()
        self._millisecond = -1
        self._counter = 0
        self._prefix = ""  # what ids of one millisecond have in common, up to 65,536 of them
        self._words = iter(_random_words())

    def next(self) -> str:
        """Return an id greater than all that this source has returned before."""
        millisecond = self._nanoseconds() // _NANOSECONDS
        with self._lock:
            counter = self._counter + 1
            if millisecond > self._millisecond:
                counter = self._enter(millisecond)
            elif not counter & _LOW_BITS:
                counter = self._carry(counter)
            self._counter = counter
            prefix = self._prefix
            word = next(self._words, None)
            if word is None:
                word = self._next_word()
        # One number for the rest, behind a one that keeps its zeros: faster than a format.
        return prefix + hex(1 << 48 | (counter & _LOW_BITS) << 32 | word)[3:]

    def _enter(self, millisecond: int) -> int:
        # The top bit stays clear: room for 2**41 ids before the counter is used up.
        counter = self._next_word() << 9 | self._next_word() >> 23
        # Side by side: a signal handler must not find one of them without the other.
        self._prefix, self._millisecond = _prefix_of(millisecond, counter), millisecond
        return counter

    def _carry(self, counter: int) -> int:
        if counter == _COUNTER_END:
            return self._enter(self._millisecond + 1)
        self._prefix = _prefix_of(self._millisecond, counter)
        return counter

    def _next_word(self) -> int:
        # Not a generator: a signal handler cannot enter one that is running.
        word = next(self._words, None)
        if word is None:
            self._words = iter(_random_words())
            word = next(self._words)
        return word


def new_id() -> str:
    """Return a new UUIDv7 as canonical text, greater than all made before in this process."""
    return _source.next()


def new_run_id() -> str:
    """Return a new id for a run of a workflow, with room behind it for the ids of its tasks."""
    return _source.next()[:-_PLACE_DIGITS] + "0" * _PLACE_DIGITS


def placed_id(run_id: str, place: int) -> str:
    """Return the id of the task at a place of a run: found without an index of its own."""
    return f"{run_id[:-_PLACE_DIGITS]}{place + 1:0{_PLACE_DIGITS}x}"


def place_of(task_id: str) -> int:
    """Return the place of a run's task, from its id; for an element, that of its task."""
    number = int(task_id[-_PLACE_DIGITS:], 16)
    return (number >> _ELEMENT_BITS or number) - 1


def element_id(run_id: str, place: int, index: int) -> str:
    """Return the id of one element of the task at a place of a run."""
    number = (place + 1 << _ELEMENT_BITS) + index
    return f"{run_id[:-_PLACE_DIGITS]}{number:0{_PLACE_DIGITS}x}"


def index_of(task_id: str) -> int | None:
    """Return which element an id belongs to; None if it is that of a task itself."""
    number = int(task_id[-_PLACE_DIGITS:], 16)
    return number & (1 << _ELEMENT_BITS) - 1 if number >> _ELEMENT_BITS else None


def last_place_of(run_id: str) -> str:
    """Return the greatest id that a task of this run can have which is no element."""
    return f"{run_id[:-_PLACE_DIGITS]}{(1 << _ELEMENT_BITS) - 1:0{_PLACE_DIGITS}x}"


def run_of(task_id: str) -> str:
    """Return the id of the run that a task with this id belongs to, if it belongs to one."""
    return task_id[:-_PLACE_DIGITS] + "0" * _PLACE_DIGITS


def last_id_of(run_id: str) -> str:
    """Return the greatest id that a task of this run can have."""
    return run_id[:-_PLACE_DIGITS] + "f" * _PLACE_DIGITS


def parse_id(value: str | UUID) -> str:
    """Return the canonical text of a UUID of any version.

    Takes capitals, surrounding spaces and a text without hyphens, as people paste them.

    Raises:
        InvalidId: it is not a UUID.
    """
    if isinstance(value, UUID):
        return str(value)
    if not isinstance(value, str):
        raise InvalidId(value, f"a {type(value).__name__} is neither a text nor a UUID")
    # Not by uuid.UUID(), which takes hyphens anywhere and underscores for digits.
    if re.fullmatch(_CANONICAL, value):
        return str(value)
    text = value.strip().lower()
    if re.fullmatch(_CANONICAL, text):
        return text
    if re.fullmatch(_COMPACT, text):
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    raise InvalidId(value, "it is not a UUID")


def time_of(execution_id: str | UUID) -> datetime:
    """Return the moment at which a UUIDv7 was made, to the millisecond, in UTC.

    Raises:
        InvalidId: it is not a UUIDv7.
    """
    text = parse_id(execution_id)
    if not re.match(_VERSION_7, text):
        raise InvalidId(execution_id, "a UUID of another version than 7 carries no such time")
    millisecond = int(text[:8] + text[9:13], 16)
    try:
        return _EPOCH + millisecond * _MILLISECOND
    except OverflowError:
        raise InvalidId(execution_id, "its time is after the year 9999") from None


def lowest_id_at(moment: datetime) -> str:
    """Return the smallest UUIDv7 of that millisecond.

    Ids made earlier are smaller; ids made in that millisecond or later are not.

    Raises:
        InvalidMoment: it has no time zone, or is before 1970.
    """
    if moment.utcoffset() is None:
        raise InvalidMoment(moment, "it has no time zone")
    millisecond = (moment - _EPOCH) // _MILLISECOND
    if millisecond < 0:
        raise InvalidMoment(moment, "ids count from 1970")
    return f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}-7000-8000-000000000000"


def _prefix_of(millisecond: int, counter: int) -> str:
    high, middle = counter >> 30, 0x8000 | counter >> 16 & 0x3FFF
    return f"{millisecond >> 16:08x}-{millisecond & 0xFFFF:04x}-7{high:03x}-{middle:04x}-"


def _random_words() -> Iterable[int]:
    # A system call for every id would cost more than all the rest of it.
    return memoryview(os.urandom(_RANDOM_BYTES)).cast("I")


_source = IdSource()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_source.forget)
