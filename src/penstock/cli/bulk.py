"""Many executions at once, chosen by filter: counted first, confirmed, then done in batches."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps

import click
import msgspec

from penstock.cli.options import Command, DatabaseOptions, storable
from penstock.cli.progress import progress
from penstock.cli.runs import refuse_task_filters
from penstock.engine.requests import InvalidOption
from penstock.errors import KeyTaken, PenstockError, StoreUnavailable, first_line
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.model.telling import count
from penstock.store.contract import Store

BATCH = 500
MOST_TOLD = 5


class NothingChosen(PenstockError):
    """A command that acts was given neither ids nor a filter."""

    def __init__(self, command: str) -> None:
        self.command = command
        super().__init__(
            f"`penstock {command}` was not told on which executions. Give their ids, or choose by "
            "--state, perhaps with --task and --queue, or with --workflow."
        )


class ChosenTwice(PenstockError):
    """A command that acts was given ids and a filter."""

    def __init__(self, command: str, options: Sequence[str]) -> None:
        self.command = command
        self.options = tuple(options)
        super().__init__(
            f"`penstock {command}` takes ids or a filter, not both: leave out either the ids or "
            f"{' and '.join(options)}."
        )


class NobodyToAsk(PenstockError):
    """Many executions would change, and there is no terminal to confirm it on."""

    def __init__(self, number: int, what: str, *, doing: str) -> None:
        self.number = number
        super().__init__(
            f"This would {doing} {count(number, what)}, and there is no terminal here to "
            "ask on. Pass --yes to do it, or --dry-run to count only."
        )


class StoppedHalfWay(PenstockError):
    """Ctrl-C, or the end of the database's answers, between two batches or in one."""

    def __init__(self, done: int, total: int, *, because: BaseException | None = None) -> None:
        self.done = done
        self.total = total
        why = "" if because is None else f" by the database ({first_line(because)})"
        super().__init__(
            f"Stopped{why}: about {done} of {total} are done, and stay done. Give the same command "
            "again for the rest."
        )


@contextmanager
def telling_how_far(done: Callable[[], int], total: int) -> Iterator[None]:
    """Let whoever is stopped after a batch or more hear what is done and stays done."""
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedHalfWay(done(), total) from None
    except StoreUnavailable as error:
        if done() == 0:
            raise
        raise StoppedHalfWay(done(), total, because=error.__cause__ or error) from error


class Choice(msgspec.Struct, frozen=True):
    """Which executions, or runs of a workflow, it is for, and how sure its caller is."""

    state: State | RunState | None
    task: str | None
    queue: str | None
    workflow: str | None
    dry_run: bool
    yes: bool

    @property
    def given(self) -> list[str]:
        """The options that were written, as they were written."""
        options = {
            "--state": self.state,
            "--task": self.task,
            "--queue": self.queue,
            "--workflow": self.workflow,
        }
        flags = {"--dry-run": self.dry_run, "--yes": self.yes}
        return [name for name, value in (options | flags).items() if value]

    @property
    def kind(self) -> str:
        """What one of them is called."""
        return "execution" if self.workflow is None else "run"

    def __str__(self) -> str:
        parts = (
            f"in state {self.state}",
            f"of task {self.task!r}" if self.task is not None else "",
            f"in queue {self.queue!r}" if self.queue is not None else "",
            f"of workflow {self.workflow!r}" if self.workflow is not None else "",
        )
        return " ".join(filter(None, parts))


def choice_options(
    states: Sequence[State], of_runs: Sequence[RunState]
) -> Callable[[Command], Command]:
    """Add the options of a bulk action on executions, or runs, in one of these states."""
    written = list(dict.fromkeys([*map(str, states), *map(str, of_runs)]))

    def decorated(command: Command) -> Command:
        @wraps(command)
        def with_choice(
            *,
            state: str | None,
            task: str | None,
            queue: str | None,
            workflow: str | None,
            dry_run: bool,
            yes: bool,
            **rest: object,
        ) -> object:
            if workflow is not None:
                refuse_task_filters(task=task, queue=queue)
            possible = states if workflow is None else of_runs
            wanted = None if state is None else _among(possible, state)
            choice = Choice(wanted, task, queue, workflow, dry_run, yes)
            return command(choice=choice, **rest)

        options = (
            click.option(
                "--state",
                type=click.Choice(written),
                help="Instead of ids: all that are in this state.",
            ),
            click.option(
                "--task",
                metavar="NAME",
                callback=storable,
                help="With --state: only of this task.",
            ),
            click.option(
                "--queue",
                metavar="NAME",
                callback=storable,
                help="With --state: only in this queue.",
            ),
            click.option(
                "--workflow",
                metavar="NAME",
                callback=storable,
                help="With --state: runs of this workflow, not tasks.",
            ),
            click.option("--dry-run", is_flag=True, help="With --state: only count them."),
            click.option("--yes", is_flag=True, help="With --state: do not ask before it is done."),
        )
        for option in reversed(options):
            with_choice = option(with_choice)
        return with_choice

    return decorated


def _among(possible: Sequence[State] | Sequence[RunState], state: str) -> State | RunState:
    for one in possible:
        if one == state:
            return one
    raise InvalidOption(
        "state",
        state,
        because="they are never in this state when this can be done to them",
        instead=f"There are {', '.join(possible)}",
    )


class _Tally(msgspec.Struct):
    answers: Counter[str] = msgspec.field(default_factory=Counter)
    refused: list[KeyTaken] = msgspec.field(default_factory=list)

    @property
    def done(self) -> int:
        return self.answers.total() + len(self.refused)


def act_on_all(
    database: DatabaseOptions,
    choice: Choice,
    act: Callable[[Store, list[str]], Sequence[str]],
    *,
    doing: str,
    meanings: dict[str, str],
) -> None:
    """Do it to every execution that matches, the newest first; exit with 1 if some are left.

    Executions that are rerun or cancelled meanwhile, or that come to match, are not looked for
    a second time, so it ends however busy the database is.
    """
    tally = _Tally()
    with database.opened() as store:
        total = _count(store, choice)
        if total == 0:
            click.echo(f"No {choice.kind} matches.", err=True)
            return
        if choice.dry_run:
            click.echo(f"{count(total, choice.kind)} {choice}. Nothing was changed.")
            return
        _confirm(choice, total, doing)
        with telling_how_far(lambda: tally.done, total), progress(total, doing=doing) as move:
            for ids in _batches(store, choice):
                _act(store, ids, act, tally)
                move(min(tally.done, total))
    _tell(tally, meanings)


def _confirm(choice: Choice, total: int, doing: str) -> None:
    if choice.yes:
        return
    if not sys.stdin.isatty():
        raise NobodyToAsk(total, choice.kind, doing=doing)
    question = f"{doing.capitalize()} {count(total, choice.kind)} {choice}?"
    if not click.confirm(question, err=True):
        click.echo("Nothing was changed.", err=True)
        sys.exit(1)


def _count(store: Store, choice: Choice) -> int:
    if isinstance(choice.state, State):
        return store.count(task=choice.task, queue=choice.queue, state=choice.state)
    return sum(len(ids) for ids in _batches(store, choice))


def _batches(store: Store, choice: Choice) -> Iterator[list[str]]:
    before: str | None = None
    while ids := _found(store, choice, before):
        before = ids[-1]
        yield ids


def _found(store: Store, choice: Choice, before: str | None) -> list[str]:
    if isinstance(choice.state, RunState):
        runs = store.find_runs(
            workflow=choice.workflow, state=choice.state, before=before, limit=BATCH
        )
        return [run.id for run in runs]
    found = store.find(
        task=choice.task, queue=choice.queue, state=choice.state, before=before, limit=BATCH
    )
    return [snapshot.id for snapshot in found]


def _act(
    store: Store,
    ids: list[str],
    act: Callable[[Store, list[str]], Sequence[str]],
    tally: _Tally,
) -> None:
    """Do it to one batch; whoever cannot have its key back is left out, the others are not."""
    while ids:
        try:
            tally.answers.update(act(store, ids))
        except KeyTaken as error:
            tally.refused.append(error)
            ids = [one for one in ids if one != error.execution_id]
        else:
            return


def _tell(tally: _Tally, meanings: dict[str, str]) -> None:
    for answer, meaning in meanings.items():
        if number := tally.answers.pop(answer, 0):
            click.echo(f"{number} {meaning}")
    if changed := tally.answers.total():
        click.echo(f"{changed} had changed meanwhile and were left as they are")
    for error in tally.refused[:MOST_TOLD]:
        click.echo(error, err=True)
    if len(tally.refused) > MOST_TOLD:
        click.echo(f"… and {len(tally.refused) - MOST_TOLD} more for the same reason.", err=True)
    if tally.refused:
        sys.exit(1)
