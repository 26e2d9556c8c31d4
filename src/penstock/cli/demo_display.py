"""How the demo looks: colours and a progress bar on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from penstock.cli.tables import Cell, on_terminal, print_line, terminal

REPORTS = 5  # how often plain lines say how far it is


class Progress(Protocol):
    """What is shown while the workers work."""

    def __call__(self, done: int, note: str) -> None: ...


def act(number: int, title: str, sentence: str) -> None:
    click.echo()
    print_line([Cell(f"{number}. {title}", "bold cyan")])
    print_line([Cell(f"   {sentence}")])


def code(*lines: str) -> None:
    for line in lines:
        print_line([Cell(f"     {line}", "dim")])


def fact(text: str, *, good: bool = True) -> None:
    print_line([Cell("   → ", "bold green" if good else "bold red"), Cell(text)])


def event(text: str) -> None:
    print_line([Cell("   × ", "bold red"), Cell(text)])


@contextmanager
def progress(total: int) -> Iterator[Progress]:
    """Show how many of `total` are done, from each call of what is given out."""
    if on_terminal():
        with _bar(total) as move:
            yield move
    else:
        yield _plain_lines(total)


def _plain_lines(total: int) -> Progress:
    told = 0

    def move(done: int, note: str) -> None:
        nonlocal told
        step = done * REPORTS // total
        if step > told:
            told = step
            click.echo(f"   {done:>4} of {total} done, {note}")

    return move


@contextmanager
def _bar(total: int) -> Iterator[Progress]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn  # noqa: PLC0415
    from rich.progress import Progress as RichProgress  # noqa: PLC0415

    columns = (
        TextColumn("  "),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with RichProgress(*columns, console=terminal(), refresh_per_second=20) as bar:
        shown = bar.add_task("", total=total, note="")

        def move(done: int, note: str) -> None:
            bar.update(shown, completed=done, note=note)

        yield move
