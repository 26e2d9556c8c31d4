"""Tables for people: colours and the terminal's width there, plain aligned text in a pipe.

The layout is made once, here; only how a line is printed differs. In a pipe nothing is cut
unless COLUMNS asks for it, because another program may want the whole of a value.
"""

import os
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import Console

GAP = 2
NARROWEST = 6  # columns of the terminal for one of ours that gives way
READABLE = 20  # what it should have if others can be left out instead

STATE_STYLES = {
    "scheduled": "yellow",
    "waiting": "yellow",
    "ready": "blue",
    "running": "cyan",
    "completed": "green",
    "failed": "bold red",
    "skipped": "dim",
    "cancelled": "magenta",
    "paused": "yellow",
}


class Cell(msgspec.Struct, frozen=True):
    """A text and how it looks on a terminal."""

    text: str
    style: str = ""


Line = Sequence[Cell]


def state_cell(state: str) -> Cell:
    return Cell(state, STATE_STYLES.get(state, ""))


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[Cell | str]],
    *,
    whole: Collection[str] = (),
    dispensable: Sequence[str] = (),
) -> None:
    """Print aligned columns, as `table_lines` lays them out."""
    for line in table_lines(titles, rows, whole=whole, dispensable=dispensable):
        print_line(line)


def table_lines(
    titles: Sequence[str],
    rows: Iterable[Sequence[Cell | str]],
    *,
    whole: Collection[str] = (),
    dispensable: Sequence[str] = (),
) -> Iterator[Line]:
    """Yield a line for the titles and one for each row, in aligned columns.

    Where there is too little room, the `dispensable` ones are left out, the last one first,
    and then all but those in `whole` are cut. A terminal is told what was left out.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    head = [Cell(title.upper(), "bold") for title in titles]
    widths = [
        max(cell_width(cell.text) for cell in column) for column in zip(head, *cells, strict=True)
    ]
    room = _room()
    kept = list(range(len(titles)))
    if room is not None:
        gives_way = [title not in whole for title in titles]
        for title in reversed(dispensable):
            least = (min(widths[n], READABLE) if gives_way[n] else widths[n] for n in kept)
            if sum(least) + GAP * (len(kept) - 1) <= room:
                break
            kept.remove(titles.index(title))
        narrowed = _narrowed(
            [widths[n] for n in kept], [gives_way[n] for n in kept], room - GAP * (len(kept) - 1)
        )
    else:
        narrowed = widths
    for row in (head, *cells):
        yield _laid_out([row[n] for n in kept], narrowed)
    if len(kept) < len(titles) and on_terminal():
        left_out = ", ".join(title for n, title in enumerate(titles) if n not in kept)
        yield [Cell(f"(no room for {left_out})", "dim")]


def print_fields(fields: Iterable[tuple[str, Cell | str]]) -> None:
    """Print one name and value a line; the values begin in one column."""
    named = [(name, _cell(value)) for name, value in fields]
    width = max(len(name) for name, _ in named)
    for name, value in named:
        print_line([Cell(f"{name:<{width}}", "bold"), Cell(" " * GAP), value])


def print_wrapped(text: str, *, mark: str = "", style: str = "") -> None:
    """Print a paragraph below `mark`, broken between words where the window ends."""
    room, safe = _room(), printable(text)
    if room is not None:
        # Never within a word: an id that is broken cannot be copied.
        width = max(room - len(mark), NARROWEST)
        lines = textwrap.wrap(safe, width, break_long_words=False, break_on_hyphens=False)
    else:
        lines = [safe]
    for n, line in enumerate(lines):
        print_line([Cell(mark if n == 0 else " " * len(mark), style), Cell(line, style)])


def print_line(cells: Iterable[Cell]) -> None:
    if not on_terminal():
        click.echo("".join(cell.text for cell in cells).rstrip())
        return
    from rich.text import Text  # noqa: PLC0415

    line = Text()
    for cell in cells:
        line.append(cell.text, cell.style)
    line.rstrip()
    terminal().print(line, soft_wrap=True)


def on_terminal() -> bool:
    return sys.stdout.isatty()


@cache
def terminal() -> "Console":
    from rich.console import Console  # noqa: PLC0415

    # What people stored is not markup, and numbers in it are not to be painted.
    return Console(highlight=False, markup=False, emoji=False)


def moment(at: datetime | None, *, exact: bool = False) -> str:
    """Return a moment in the local time zone, as people read it."""
    if at is None:
        return ""
    local = at.astimezone().replace(tzinfo=None)
    return local.isoformat(" ", "milliseconds" if exact else "seconds")


def printable(text: str) -> str:
    """Return `text` on one line and without anything that a terminal would obey."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def cell_width(text: str) -> int:
    """How many columns of a terminal `text` takes: some characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415

    return cell_len(text)


def _cell(value: Cell | str) -> Cell:
    cell = value if isinstance(value, Cell) else Cell(value)
    return Cell(printable(cell.text), cell.style)


def _room() -> int | None:
    if on_terminal():
        return terminal().width
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else None


def _narrowed(widths: list[int], gives_way: Sequence[bool], room: int) -> list[int]:
    """Take from the widest column, a little at a time, until all fit or none can give way."""
    narrowed = list(widths)
    while sum(narrowed) > room:
        candidates = [
            place for place, width in enumerate(narrowed) if gives_way[place] and width > NARROWEST
        ]
        if not candidates:
            break
        widest = max(candidates, key=lambda place: narrowed[place])
        narrowed[widest] -= 1
    return narrowed


def _laid_out(row: Sequence[Cell], widths: Sequence[int]) -> list[Cell]:
    return [
        Cell(_fitted(cell.text, width) + " " * GAP, cell.style)
        for cell, width in zip(row, widths, strict=True)
    ]


def _fitted(text: str, width: int) -> str:
    if cell_width(text) <= width:
        return text + " " * (width - cell_width(text))
    kept = text[:width]
    while cell_width(kept) > width - 1:
        kept = kept[:-1]
    return kept + "…" + " " * (width - 1 - cell_width(kept))


def shortened(text: str, longest: int = 200) -> str:
    """Return a text, bounded: a table is no place for a whole document."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
