"""What `--help`, the reference and the shell's completion say about every command."""

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli import commands
from penstock.cli.examples import EXAMPLES
from penstock.cli.reference import all_commands
from penstock.model.outcomes import Failed
from penstock.model.workers import WorkerInfo
from tests.e2e.command_line import CommandLine, run

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
TYPED = [typed for typed, _ in all_commands()]


@pytest.mark.parametrize("typed", TYPED)
def test_help_ends_with_examples(typed: str) -> None:
    told = CliRunner().invoke(commands, [*typed.split()[1:], "--help"])
    _, _, examples = told.stdout.partition("Examples:\n")
    assert [line.strip() for line in examples.splitlines()] == list(EXAMPLES[typed])


def test_there_are_examples_of_commands_that_exist_and_of_no_others() -> None:
    assert sorted(EXAMPLES) == sorted(TYPED)


@pytest.mark.parametrize("example", [one for some in EXAMPLES.values() for one in some])
def test_an_example_is_a_command_that_would_be_understood(example: str) -> None:
    """Read as the command line reads it, and not run."""
    name, *arguments = shlex.split(example)
    assert name == "penstock"
    group: click.Command = commands
    context = click.Context(commands, info_name=name)
    while isinstance(group, click.Group):
        word, command, arguments = group.resolve_command(context, arguments)
        assert command is not None
        group, context = command, click.Context(command, info_name=word, parent=context)
    group.make_context(context.info_name, arguments, parent=context.parent)


def test_the_reference_shows_the_bulk_actions_as_they_are_printed(penstock: CommandLine) -> None:
    for _ in range(3):
        penstock.enqueue("send_receipt")
    with penstock.store() as store:
        store.register(WorkerInfo(id="w1"))
        claimed = store.claim("w1", queues=["default"], tasks=["send_receipt"], limit=3)
        store.settle([Failed(lease=one.lease, error='{"type":"E"}') for one in claimed])
    page = REFERENCE.read_text("utf-8")
    for flag in ("--dry-run", "--yes"):
        typed = f"rerun --state failed --task send_receipt {flag}"
        shown = re.search(rf"\$ penstock {typed}\n(\d.*\n)", page)
        assert shown is not None
        assert penstock(*typed.split()).out == shown[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_writes_its_completion_for_the_shells_of_the_reference(shell: str) -> None:
    line = f"_PENSTOCK_COMPLETE={shell}_source"
    assert f"{line} penstock" in REFERENCE.read_text("utf-8")
    script = run("-m", "penstock", environment=dict([line.split("=")]))
    assert script.status == 0
    assert f"_PENSTOCK_COMPLETE={shell}_complete" in script.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("penstock wh", {"why"}),
        ("penstock rerun --state f", {"failed"}),
        ("penstock status --w", {"--watch"}),
        ("penstock admin m", {"migrate"}),
    ],
)
def test_commands_options_and_choices_complete(words: str, expected: set[str]) -> None:
    asked = {
        "_PENSTOCK_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    offered = run("-m", "penstock", environment=asked).out.splitlines()
    assert {one.partition(",")[2] for one in offered} == expected


@pytest.mark.parametrize("group", [(), ("admin",)])
def test_no_summary_in_a_list_of_commands_is_cut(group: tuple[str, ...]) -> None:
    listed = run("-m", "penstock", *group, "--help", environment={"COLUMNS": "80"}).out
    assert "..." not in listed.partition("Commands:\n")[2]
    assert max(map(len, listed.splitlines())) <= 80
