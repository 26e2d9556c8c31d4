"""The kinds of values that settings have.

A kind reads a value in two notations: as Python and TOML have it (`read`), and as the one line
of text that an environment variable or a command line can hold (`read_text`).
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from typing import Generic, TypeVar

from penstock.model.durations import InvalidDuration, format_duration, parse_duration

T = TypeVar("T")

# PostgreSQL cuts longer names off, and two schemas would quietly become one.
LONGEST_IDENTIFIER = 63

_LONGEST_QUOTE = 60


class Unfit(Exception):
    """A value is not of its kind. `why` goes on where the setting's name ends.

    No user sees it: the loader adds the name and the source, and raises InvalidSetting.
    """

    def __init__(self, *, why: str) -> None:
        self.why = why
        super().__init__(why)


class Kind(ABC, Generic[T]):
    """What values a setting may have, and how they are written."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """The kind in words, to stand after "must be"."""

    @abstractmethod
    def read(self, value: object) -> T:
        """Return `value` as the setting's own type, or raise Unfit."""

    def read_text(self, text: str) -> T:
        return self.read(text)

    def to_text(self, value: T) -> str:
        return str(value)

    def to_toml(self, value: T) -> str:
        # A JSON string is a TOML string for everything that these kinds let through.
        return json.dumps(self.to_text(value), ensure_ascii=False)

    def refuse(self, value: object) -> Unfit:
        return Unfit(why=f"must be {self.expected}, not {describe(value)}")


@dataclass(frozen=True, slots=True)
class Switch(Kind[bool]):
    """On or off."""

    @property
    def expected(self) -> str:
        return "true or false"

    def read(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.refuse(value)
        return value

    def read_text(self, text: str) -> bool:
        match text.lower():
            case "true" | "yes" | "on" | "1":
                return True
            case "false" | "no" | "off" | "0":
                return False
            case _:
                raise self.refuse(text)

    def to_text(self, value: bool) -> str:  # noqa: FBT001 - the kind's value, not a flag
        return "true" if value else "false"

    def to_toml(self, value: bool) -> str:  # noqa: FBT001 - the kind's value, not a flag
        return self.to_text(value)


@dataclass(frozen=True, slots=True)
class WholeNumber(Kind[int]):
    """An integer between two limits, both allowed."""

    at_least: int
    at_most: int

    @property
    def expected(self) -> str:
        return f"a whole number from {self.at_least} to {self.at_most}"

    def read(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse(value)
        if not self.at_least <= value <= self.at_most:
            raise self.refuse(value)
        return value

    def read_text(self, text: str) -> int:
        # int() also takes blanks, underscores and the digits of every script.
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise self.refuse(text)
        return self.read(int(text))

    def to_toml(self, value: int) -> str:
        return self.to_text(value)


@dataclass(frozen=True, slots=True)
class Length(Kind[timedelta]):
    """A duration: a number of seconds, or a text such as "1m30s"."""

    at_least: timedelta

    @property
    def expected(self) -> str:
        limit = f" of at least {format_duration(self.at_least)}" if self.at_least else ""
        return f'a duration{limit}, in seconds or like "1m30s"'

    def read(self, value: object) -> timedelta:
        if not isinstance(value, int | float | str | timedelta):
            raise self.refuse(value)
        try:
            duration = parse_duration(value)
        except InvalidDuration as error:
            raise Unfit(why=f"{self.refuse(value).why}: {error.reason}") from None
        if duration < self.at_least:
            raise self.refuse(value)
        return duration

    def read_text(self, text: str) -> timedelta:
        if re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", text):
            return self.read(float(text))
        return self.read(text)

    def to_text(self, value: timedelta) -> str:
        return format_duration(value)


@dataclass(frozen=True, slots=True)
class SchemaName(Kind[str]):
    """The name of a PostgreSQL schema. It is always quoted, so nearly everything is allowed."""

    @property
    def expected(self) -> str:
        return f"a schema name of 1 to {LONGEST_IDENTIFIER} bytes that does not begin with pg_"

    def read(self, value: object) -> str:
        if not isinstance(value, str) or not _is_plain(value):
            raise self.refuse(value)
        if len(value.encode()) > LONGEST_IDENTIFIER or value.startswith("pg_"):
            raise self.refuse(value)
        return value


@dataclass(frozen=True, slots=True)
class Names(Kind[tuple[str, ...]]):
    """Names of queues, or of something else; each once. As text: separated by commas."""

    of: str = "queue"

    @property
    def expected(self) -> str:
        return f"a list of {self.of} names, each named once"

    def read(self, value: object) -> tuple[str, ...]:
        # A string is a sequence too: "mail" must not become the queues m, a, i and l.
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self.refuse(value)
        names = []
        for name in value:
            if not isinstance(name, str) or not _is_plain(name):
                raise Unfit(
                    why=f"must be {self.expected}, and {describe(name)} is not a {self.of} name"
                )
            if name in names:
                raise Unfit(why=f"must be {self.expected}, and {describe(name)} is there twice")
            names.append(name)
        return tuple(names)

    def read_text(self, text: str) -> tuple[str, ...]:
        return self.read([name.strip() for name in text.split(",")] if text.strip() else [])

    def to_text(self, value: tuple[str, ...]) -> str:
        return ",".join(value)

    def to_toml(self, value: tuple[str, ...]) -> str:
        return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Address(Kind[str]):
    """Where to listen: an address or a name of this machine."""

    @property
    def expected(self) -> str:
        return "an address or host name of this machine, without a port"

    def read(self, value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(r"[0-9A-Za-z.:_%-]+", value):
            raise self.refuse(value)
        return value


def describe(value: object) -> str:  # noqa: PLR0911 - one for each kind of value
    """Name `value` in a message: as it was written if it is short, else by its type."""
    match value:
        case bool():
            return "true" if value else "false"
        case "":
            return "an empty text"
        case str():
            shown = value if len(value) <= _LONGEST_QUOTE else value[:_LONGEST_QUOTE] + "…"
            return f"the text {shown!r}"
        case int() if value.bit_length() > 64:  # noqa: PLR2004 - Python refuses to print huge ones
            return "a number that large"
        case int() | float():
            return str(value)
        case timedelta():
            return f"a duration of {value.total_seconds():g} seconds"
        case date() | time():
            return "a date or time"
        case dict():
            return "a table"
        case list() | tuple():
            return "a list"
        case _:
            return f"a value of type {type(value).__name__}"


def _is_plain(name: str) -> bool:
    """Whether `name` has no control characters, lone surrogates or blanks around it."""
    return bool(name) and name.isprintable() and name == name.strip()
