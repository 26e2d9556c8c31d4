"""The command line: each theme is a file beside this one; here they become one command.

`rich` is imported where something is drawn, never on the way there: most commands end before
they need it, and `--help` should appear at once.
"""

import sys
from io import TextIOWrapper
from typing import IO, Any

import click

from penstock import __version__
from penstock.cli.acting import NotATask, cancel, dismiss, enqueue, pause, rerun, resume
from penstock.cli.admin import admin
from penstock.cli.bench import bench
from penstock.cli.bulk import ChosenTwice, NobodyToAsk, NothingChosen
from penstock.cli.demo import demo
from penstock.cli.doctor import doctor
from penstock.cli.examples import show_examples
from penstock.cli.graph import graph
from penstock.cli.metrics import MetricsNotInstalled, metrics
from penstock.cli.reading import history, list_, show, workers
from penstock.cli.status import NothingToRedraw, status
from penstock.cli.supervising import NEVER_BEGAN, USED_WRONGLY
from penstock.cli.verifying import verify_
from penstock.cli.why import why
from penstock.cli.work import SUPERVISED, NoTasks, worker
from penstock.engine.misfits import InvalidArguments
from penstock.engine.requests import InvalidOption
from penstock.engine.workflow_tasks import PartOfWorkflow
from penstock.errors import PenstockError, UnknownTask, UnknownWorkflow
from penstock.model.durations import InvalidDuration
from penstock.model.ids import InvalidId
from penstock.model.payloads import InvalidPayload
from penstock.settings import SettingsError
from penstock.store.opening import InvalidDatabaseUrl
from penstock.targets import TargetError

FOUND_SOMETHING_WRONG = 1

_MISUSES = (
    ChosenTwice,
    InvalidArguments,
    InvalidDatabaseUrl,
    InvalidDuration,
    InvalidId,
    InvalidOption,
    InvalidPayload,
    MetricsNotInstalled,
    NoTasks,
    NobodyToAsk,
    NotATask,
    NothingChosen,
    NothingToRedraw,
    PartOfWorkflow,
    SettingsError,
    TargetError,
    UnknownTask,
    UnknownWorkflow,
)


class _Told(click.ClickException):
    """An error of ours, told in its own sentence and without a traceback."""

    exit_code = FOUND_SOMETHING_WRONG

    def __init__(self, error: PenstockError) -> None:
        super().__init__(str(error))

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=file is None)


class _ToldMisuse(_Told):
    exit_code = USED_WRONGLY


class _ToldSupervisor(_Told):
    exit_code = NEVER_BEGAN


class _Interrupted(click.ClickException):
    """Ctrl-C, where a command has nothing better to say about it."""

    exit_code = FOUND_SOMETHING_WRONG

    def __init__(self) -> None:
        super().__init__("Stopped. What was done before that is done; the same command goes on.")

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"\n{self.message}", file=file, err=file is None)


class _Commands(click.Group):
    """Commands in the order in which a newcomer meets them, not in that of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            told = _ToldSupervisor if SUPERVISED in ctx.meta else _Told
            raise (_ToldMisuse if isinstance(error, _MISUSES) else told)(error) from error
        except KeyboardInterrupt:
            raise _Interrupted from None


@click.group(
    "penstock",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 found something wrong, 2 used wrongly.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def commands() -> None:
    """Durable tasks and workflows on the database that you already have."""


for _command in (
    demo,
    worker,
    enqueue,
    list_,
    show,
    history,
    why,
    graph,
    rerun,
    cancel,
    dismiss,
    pause,
    resume,
    workers,
    status,
    metrics,
    doctor,
    verify_,
    bench,
    admin,
):
    commands.add_command(_command)
show_examples(commands)


def main() -> None:
    """Run the command that `sys.argv` asks for, and exit."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character must not keep the rest from being read.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    commands(prog_name="penstock")
