"""How far a long piece of work is: a bar on a terminal, plain lines elsewhere; never among data.

Standard error has it, because standard output is for the answer.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

REPORTS = 10  # how often plain lines say how far it is

Move = Callable[[int], None]


@contextmanager
def progress(total: int, *, doing: str) -> Iterator[Move]:
    """Show how many of `total` are done, from each call of what is given out."""
    if sys.stderr.isatty():
        with _bar(total, doing) as move:
            yield move
    else:
        yield _plain_lines(total, doing)


def _plain_lines(total: int, doing: str) -> Move:
    told = 0

    def move(done: int) -> None:
        nonlocal told
        # The last line is the answer itself.
        step = REPORTS * done // total if done < total else told
        if step > told:
            told = step
            click.echo(f"{doing}: {done} of {total}", err=True)

    return move


@contextmanager
def _bar(total: int, doing: str) -> Iterator[Move]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(doing, markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task("", total=total)
        yield lambda done: bar.update(shown, completed=done)
