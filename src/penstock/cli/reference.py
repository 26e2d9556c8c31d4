"""The reference of all commands, written from their declaration.

`python -m penstock.cli.reference docs/reference/cli.md` brings the page up to date.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from penstock.cli import commands
from penstock.cli.examples import EXAMPLES

BEGIN = "<!-- begin: written from the declaration of the commands -->"
END = "<!-- end: written from the declaration of the commands -->"


def as_markdown() -> str:
    """Return a section per command: how it is called, what it does, its options."""
    return "\n".join(_sections()).rstrip()


def with_reference(page: str) -> str:
    """Return `page` with the part between the two marks written anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{as_markdown()}\n\n{END}{after}"


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by what is typed, in the order of `--help`."""
    yield from _below(commands, "penstock")


def _below(group: click.Group, typed: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _below(command, f"{typed} {name}")
        else:
            yield f"{typed} {name}", command


def _sections() -> Iterator[str]:
    for typed, command in all_commands():
        context = click.Context(command, info_name=typed)
        yield from (f"## `{typed}`", "", "```console")
        yield f"$ {typed} {' '.join(command.collect_usage_pieces(context))}"
        yield from ("```", "", inspect.cleandoc(command.help or ""), "")
        if examples := EXAMPLES.get(typed):
            yield from ("```console", *(f"$ {example}" for example in examples), "```", "")
        yield from ("| option | meaning | default |", "|---|---|---|")
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                yield _row(parameter, context)
        yield ""


def _row(option: click.Option, context: click.Context) -> str:
    written = ", ".join(option.opts)
    if not option.is_flag:
        # In a table a bare bar would begin the next cell.
        written += " " + option.make_metavar(context).replace("|", "\\|")
    default = f"`{option.default}`" if option.show_default else ""
    return f"| `{written}` | {option.help} | {default} |"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(with_reference(target.read_text(encoding="utf-8")), encoding="utf-8")
