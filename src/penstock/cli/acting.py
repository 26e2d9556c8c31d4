"""Commands that change something: enqueue, cancel, rerun, dismiss, pause, resume."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypedDict, Unpack

import click
import msgspec

from penstock.app import App
from penstock.cli.bulk import Choice, ChosenTwice, NothingChosen, act_on_all, choice_options
from penstock.cli.loading import load_app
from penstock.cli.naming import told_of_unknown_queue
from penstock.cli.options import (
    DatabaseOptions,
    database_options,
    default_explained,
    json_option,
    storable,
)
from penstock.cli.runs import PAUSED, RESUMED, looks_like_an_id, tell_answer
from penstock.cli.shapes import execution_shape, print_json
from penstock.engine.requests import EnqueueOptions, InvalidOption, checked_name
from penstock.errors import ExecutionNotFound, PenstockError, UnknownTask
from penstock.model.durations import Duration
from penstock.model.hiding import hide_in_execution
from penstock.model.ids import parse_id
from penstock.model.runs import FINAL_RUN, RunState
from penstock.model.states import FINAL, LIVE, State
from penstock.store.contract import Store


class NotATask(PenstockError):
    """A workflow was named where a task is asked for."""

    def __init__(self, workflow: str, *, target: str) -> None:
        self.workflow = workflow
        super().__init__(
            f"{workflow!r} is a workflow of {target}, and `penstock enqueue` asks for one task. "
            f"Start a run of it from Python, with `app.workflows[{workflow!r}].start(…)`."
        )


class _Choices(TypedDict):
    queue: str | None
    priority: int | None
    key: str | None
    serial: str | None


_CANCEL_OF_RUN = {
    "done": "run",
    "already": "run",
    "finished": "finished",
    "live": "run",
    "nothing": "finished",
    "unknown": "unknown",
}
_CANCELLED = {
    "cancelled": "cancelled",
    "run": "a run: what has not begun is cancelled, what runs is asked to stop",
    "requested": "running: asked to stop",
    "finished": "had ended already: nothing to cancel",
}
_RERUN_OF_RUN = {
    "done": "run",
    "live": "live",
    "nothing": "nothing",
    "already": "nothing",
    "finished": "nothing",
    "unknown": "unknown",
}
_RERUN = {
    "rerun": "will run again",
    "run": "a run: what failed or was cancelled will run again, and all downstream of it",
    "nothing": "a run without failures: nothing to rerun",
    "hastened": "was scheduled, and is ready now",
    "live": "not rerun: it, or a task downstream of it, has not ended yet",
}
_DISMISSED = {
    "dismissed": "dismissed: nothing of it is left",
    "kept": "has not failed: nothing to dismiss",
    "part": "is a task of a run: `penstock show` names it, and dismissing the run takes it along",
}
_DONE = frozenset({"cancelled", "requested", "rerun", "hastened", "run", "dismissed"})


@click.command
@click.argument("target", metavar="MODULE:APP")
@click.argument("task", metavar="TASK")
@click.argument("arguments", metavar="[JSON]", default="{}")
@click.option("--queue", metavar="NAME", help="Another queue than the task's own.")
@click.option("--priority", type=int, metavar="N", help="Higher goes first; 0 is the default.")
@click.option(
    "--run-after",
    metavar="WHEN",
    help="Not before: a duration such as 10m, or a time with its zone, 2030-01-31T08:00Z.",
)
@click.option("--key", metavar="TEXT", help="At most one live execution per task and key.")
@click.option("--serial", metavar="TEXT", help="One at a time, in order, per serial.")
@click.option("--import", "modules", metavar="MODULE", multiple=True, help="Tasks elsewhere.")
@json_option
@database_options
def enqueue(
    *,
    database: DatabaseOptions,
    target: str,
    task: str,
    arguments: str,
    modules: tuple[str, ...],
    run_after: str | None,
    as_json: bool,
    **choices: Unpack[_Choices],
) -> None:
    """Ask for one execution of a task, with its arguments as a JSON object."""
    named = _read_arguments(arguments)
    asked: EnqueueOptions = {}
    for name, value in choices.items():
        if value is not None:
            asked[name] = value  # type: ignore[literal-required]
    if run_after is not None:
        asked["run_after"] = _read_moment(run_after)
    app = load_app(target, modules=modules)
    database.configure(app)
    if task in app.workflows:
        raise NotATask(task, target=target)
    if app.find_task(task) is None:
        raise UnknownTask(task, registered=list(app.tasks))
    try:
        _enqueue(app, task, named, asked, as_json=as_json)
    finally:
        app.close()


def _enqueue(
    app: App, task: str, named: dict[str, Any], asked: EnqueueOptions, *, as_json: bool
) -> None:
    with default_explained(app.settings):
        execution = app.enqueue(task, named, **asked)
        if as_json:
            hidden = app.settings.privacy.hidden
            shown = hide_in_execution(execution.refresh().snapshot, hidden)
            print_json(execution_shape(shown))
        elif execution.created:
            click.echo(f"{execution.id} {execution.state}")
        else:
            click.echo(f"{execution.id} {execution.state}: it has this key already")


@click.command
@click.argument("ids", metavar="[ID]...", nargs=-1)
@choice_options(
    [state for state in State if state in LIVE],
    [state for state in RunState if state not in FINAL_RUN],
)
@click.option("--reason", metavar="TEXT", callback=storable, help="Why, for the history.")
@database_options
def cancel(
    *, database: DatabaseOptions, choice: Choice, ids: tuple[str, ...], reason: str | None
) -> None:
    """End executions that have not begun; ask running ones to stop. The same for runs.

    They are named by their ids, or chosen by --state. Those that are chosen are counted first,
    and nothing is done before you have said yes.
    """
    if _chosen("cancel", ids, choice):
        act_on_all(
            database,
            choice,
            lambda store, batch: _cancel(store, batch, choice.workflow, reason),
            doing="cancel",
            meanings={
                "cancelled": "cancelled",
                "requested": "running: asked to stop",
                "run": "ended, or asked to stop: `penstock list --runs` shows which",
            },
        )
        return
    wanted = [parse_id(one) for one in ids]
    with database.opened() as store:
        answers = _cancel(store, wanted, None, reason)
        for place, one in enumerate(wanted):
            if answers[place] == "unknown":  # to the tasks: it may be a run
                answers[place] = _CANCEL_OF_RUN[store.cancel_run(one, reason=reason)]
    _tell(wanted, answers, _CANCELLED)


@click.command
@click.argument("ids", metavar="[ID]...", nargs=-1)
@choice_options([state for state in State if state in FINAL], [RunState.FAILED, RunState.CANCELLED])
@database_options
def rerun(*, database: DatabaseOptions, choice: Choice, ids: tuple[str, ...]) -> None:
    """Give executions that have ended a new life, with fresh retries.

    A task of a workflow takes all downstream of it along; of a run, what failed or was cancelled
    runs again, and what completed is kept. A scheduled execution that is named, one that waits for
    its next try say, is ready at once.

    They are named by their ids, or chosen by --state. Those that are chosen are counted first,
    and nothing is done before you have said yes.
    """
    if _chosen("rerun", ids, choice):
        act_on_all(
            database,
            choice,
            lambda store, batch: _rerun(store, batch, choice.workflow),
            doing="rerun",
            meanings={
                "rerun": "will run again",
                "run": "will run again, from what failed or was cancelled on",
            },
        )
        return
    wanted = [parse_id(one) for one in ids]
    with database.opened() as store:
        answers = _rerun(store, wanted, None)
        for place, one in enumerate(wanted):
            if answers[place] == "unknown":  # to the tasks: it may be a run
                answers[place] = _RERUN_OF_RUN[store.rerun_run(one)]
            elif answers[place] == "live" and store.hasten([one]) == [True]:
                answers[place] = "hastened"
    _tell(wanted, answers, _RERUN)


@click.command
@click.argument("ids", metavar="[ID]...", nargs=-1)
@choice_options([State.FAILED], [RunState.FAILED])
@database_options
def dismiss(*, database: DatabaseOptions, choice: Choice, ids: tuple[str, ...]) -> None:
    """Remove failed executions that you have looked at and will not rerun.

    Each goes whole and for good, with its history; a run of a workflow with all of its tasks.
    Nothing else removes what failed. `penstock show ID --json` and `penstock history ID --json`
    print what is worth keeping.

    They are named by their ids, or chosen by --state. Those that are chosen are counted first,
    and nothing is done before you have said yes.
    """
    if _chosen("dismiss", ids, choice):
        act_on_all(
            database,
            choice,
            lambda store, batch: store.dismiss(batch),
            doing="dismiss",
            meanings={
                "dismissed": "dismissed",
                "part": "are tasks of runs, and stay: --workflow dismisses runs",
            },
        )
        return
    wanted = [parse_id(one) for one in ids]
    with database.opened() as store:
        answers = store.dismiss(wanted)
    _tell(wanted, answers, _DISMISSED)


def _cancel(
    store: Store, ids: Sequence[str], workflow: str | None, reason: str | None
) -> list[str]:
    if workflow is None:
        return list(store.cancel(ids, reason=reason))
    return [_CANCEL_OF_RUN[store.cancel_run(one, reason=reason)] for one in ids]


def _rerun(store: Store, ids: Sequence[str], workflow: str | None) -> list[str]:
    if workflow is None:
        return list(store.rerun(ids))
    return [_RERUN_OF_RUN[store.rerun_run(one)] for one in ids]


@click.command
@click.argument("queue", metavar="QUEUE|ID")
@database_options
def pause(*, database: DatabaseOptions, queue: str) -> None:
    """Stop handing out the tasks of a queue, for all workers, or those of one run.

    What looks like an id is the id of a run of a workflow; anything else is a queue. One that is
    empty and that no worker serves is paused too, with a hint on standard error.
    """
    if looks_like_an_id(queue):
        run_id = parse_id(queue)
        with database.opened() as store:
            answer = store.pause_run(run_id)
        tell_answer(run_id, answer, PAUSED)
        return
    name = checked_name("queue", queue)
    with database.opened() as store:
        changed = store.pause(name)
    click.echo(f"{name}: {'paused' if changed else 'was paused already'}")
    # It is paused, whatever becomes of the hint; a role may be allowed to do no more than that.
    with suppress(PenstockError), database.opened() as store:
        if hint := told_of_unknown_queue(store, name):
            click.echo(hint, err=True)


@click.command
@click.argument("queue", metavar="QUEUE|ID")
@database_options
def resume(*, database: DatabaseOptions, queue: str) -> None:
    """Hand out the tasks of a paused queue again, or let a paused run go on.

    What looks like an id is the id of a run of a workflow; anything else is a queue.
    """
    if looks_like_an_id(queue):
        run_id = parse_id(queue)
        with database.opened() as store:
            answer = store.resume_run(run_id)
        tell_answer(run_id, answer, RESUMED)
        return
    name = checked_name("queue", queue)
    with database.opened() as store:
        changed = store.unpause(name)
    click.echo(f"{name}: {'resumed' if changed else 'was not paused'}")


def _chosen(command: str, ids: tuple[str, ...], choice: Choice) -> bool:
    """Whether executions are chosen by filter; ids and filters exclude each other."""
    if ids and choice.given:
        raise ChosenTwice(command, choice.given)
    if not ids and choice.state is None:
        raise NothingChosen(command)
    return not ids


def _tell(ids: list[str], answers: Sequence[str], meanings: dict[str, str]) -> None:
    """Print an answer a line; exit with 1 unless all was done as asked."""
    for execution_id, answer in zip(ids, answers, strict=True):
        if answer in meanings:
            click.echo(f"{execution_id} {meanings[answer]}")
        else:
            click.echo(ExecutionNotFound(execution_id), err=True)
    if not _DONE.issuperset(answers):
        sys.exit(1)


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.ValidationError:
        because = "the arguments go by name, in an object"
    except msgspec.DecodeError as error:
        because = f"it is not JSON ({error})"
    except UnicodeEncodeError:
        because = "it holds bytes that are no text in UTF-8"
    raise InvalidOption(
        "JSON", text, because=because, instead="""Write them as in '{"order_id": 1, "to": "x"}'"""
    )


def _read_moment(text: str) -> Duration | datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text  # a duration; if it is none, the error says what one looks like
