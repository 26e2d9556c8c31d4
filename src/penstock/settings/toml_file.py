"""A TOML file that knows the line of each of its keys.

`tomllib` reads the file and is the judge of what is valid; it does not say where anything
stands. `key_lines` finds that out afterwards and may therefore rely on a valid text: it needs to
tell keys from values, nothing more.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.settings.errors import UnreadableSettings

_TOKEN = re.compile(
    r'''(?P<text> """(?:\\.|[^\\])*?"{3,5} | \'\'\'.*?'{3,5} | "(?:\\.|[^"\\\n])*" | '[^'\n]*' )
      | (?P<word> [A-Za-z0-9_-]+ )
      | (?P<newline> \n )
      | (?P<blank> [ \t]+ | \#[^\n]* )
      | (?P<mark> . )''',
    re.DOTALL | re.VERBOSE,
)
_AT_LINE = re.compile(r"\s*\(at line (\d+), column (\d+)\)$")
_AT_END = re.compile(r"\s*\(at end of document\)$")

_OPENING = "[{"
_CLOSING = "]}"


@dataclass(frozen=True, slots=True)
class TomlFile:
    """What a TOML file says, and on which lines."""

    name: str
    content: Mapping[str, Any]
    lines: Mapping[tuple[str, ...], int]

    def place_of(self, *path: str) -> str:
        """Return "file:line" of a key or a section."""
        return f"{self.name}:{self.lines[path]}"


def read_toml(path: Path) -> TomlFile | None:
    """Read the file, or return None when there is none.

    Raises:
        UnreadableSettings: it is there, but it cannot be read or is not TOML.
    """
    name = str(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableSettings(
            source=name,
            why=f"the file cannot be read: {error.strerror or error}",
            next_step="Make it a file that this user may read, or name another one.",
        ) from None
    text = _decode(raw, name)
    return TomlFile(name, _parse(text, name), key_lines(text))


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line on which each key, section and dotted part first stands.

    `text` must be valid TOML, each line ended by a line feed alone. What stands inside arrays
    has no entry.
    """
    lines: dict[tuple[str, ...], int] = {}
    tokens = _Tokens(text)
    section: tuple[str, ...] = ()
    while tokens.peek():
        if tokens.peek() == "\n":
            tokens.take()
        elif tokens.peek() == "[":
            while tokens.peek() == "[":
                tokens.take()
            section = _take_key(tokens, (), lines)
            while tokens.peek() == "]":
                tokens.take()
        else:
            _take_pair(tokens, section, lines)
    return lines


class _Tokens:
    """The tokens of a text one by one, blanks and comments left out."""

    def __init__(self, text: str) -> None:
        self._tokens = self._split(text)
        self._next, self.line = next(self._tokens)

    def peek(self) -> str:
        """Return the next token, "" at the end."""
        return self._next

    def take(self) -> str:
        taken = self._next
        self._next, self.line = next(self._tokens, ("", self.line))
        return taken

    @staticmethod
    def _split(text: str) -> Iterator[tuple[str, int]]:
        line = 1
        for token in _TOKEN.finditer(text):
            if token.lastgroup != "blank":
                yield token[0], line
            line += token[0].count("\n")
        yield "", line


def _take_key(
    tokens: _Tokens, prefix: tuple[str, ...], lines: dict[tuple[str, ...], int]
) -> tuple[str, ...]:
    path = prefix
    while True:
        line = tokens.line
        path = (*path, _plain(tokens.take()))
        lines.setdefault(path, line)
        if tokens.peek() != ".":
            return path
        tokens.take()


def _take_pair(tokens: _Tokens, prefix: tuple[str, ...], lines: dict[tuple[str, ...], int]) -> None:
    path = _take_key(tokens, prefix, lines)
    tokens.take()  # the equals sign
    if tokens.peek() == "{":
        tokens.take()
        while tokens.peek() not in {"}", ""}:
            if tokens.peek() in {",", "\n"}:
                tokens.take()
            else:
                _take_pair(tokens, path, lines)
        tokens.take()
    else:
        _skip_value(tokens)


def _skip_value(tokens: _Tokens) -> None:
    # An array may hold line ends and commas of its own; outside one, either ends the value.
    depth = 0
    while tokens.peek() and (depth or tokens.peek() not in {"\n", ",", "}"}):
        token = tokens.take()
        depth += (token in _OPENING) - (token in _CLOSING)


def _plain(part: str) -> str:
    """Return a part of a key without its quotes and escapes."""
    if part[:1] not in {'"', "'"}:
        return part
    plain: str = tomllib.loads(f"part = {part}")["part"]
    return plain


def _decode(raw: bytes, name: str) -> str:
    try:
        # -sig: some editors begin every file with a byte order mark.
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UnreadableSettings(
            source=f"{name}:{line}",
            why="the file is not UTF-8 text",
            next_step="Save it as UTF-8.",
        ) from None
    return text.replace("\r\n", "\n")


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UnreadableSettings(
            source=name,
            why="its values are nested too deeply",
            next_step="No setting needs that.",
        ) from None
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        source = name
        if found := _AT_LINE.search(message):
            source = f"{name}:{found[1]}"
            message = f"{message[: found.start()]} in column {found[2]}"
        elif found := _AT_END.search(message):
            source = f"{name}:{text.rstrip().count(chr(10)) + 1}"
            message = f"{message[: found.start()]} at the end of the file"
        raise UnreadableSettings(
            source=source,
            why=f"this is not valid TOML: {message}",
            next_step="Texts need quotes, and every key stands once.",
        ) from None
    except ValueError:  # Python's own limit on the digits of an integer
        raise UnreadableSettings(
            source=name,
            why="it holds a number of thousands of digits",
            next_step="No setting needs that.",
        ) from None
