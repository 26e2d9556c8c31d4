"""Runs of workflows in the commands that look and act: list, show, pause, resume, cancel."""

import re
from collections.abc import Iterator, Sequence

import click
import msgspec

from penstock.cli.loading import load_app
from penstock.cli.options import DatabaseOptions
from penstock.cli.shapes import context_of, print_json, run_shape
from penstock.cli.tables import (
    Cell,
    moment,
    print_fields,
    print_table,
    shortened,
    state_cell,
)
from penstock.engine.requests import InvalidOption
from penstock.errors import ExecutionNotFound
from penstock.model.executions import Snapshot
from penstock.model.graph import decode_graph
from penstock.model.hiding import hide_in_execution, hide_in_run
from penstock.model.payloads import decode
from penstock.model.runs import RunAnswer, RunSnapshot, RunState
from penstock.model.states import State
from penstock.model.telling import error_line
from penstock.store.contract import Store

_LIKE_AN_ID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)

PAUSED = {"done": "paused", "already": "was paused already", "finished": "has ended already"}
RESUMED = {"done": "resumed", "already": "was not paused", "finished": "has ended already"}


def looks_like_an_id(text: str) -> bool:
    """Whether a word names a run: ids are UUIDs, and no queue should be called like one."""
    return _LIKE_AN_ID.fullmatch(text.strip()) is not None


def tell_answer(run_id: str, answer: RunAnswer, meanings: dict[str, str]) -> None:
    """Print what became of a request about one run; exit with 1 unless it was done."""
    if answer == "unknown":
        raise ExecutionNotFound(run_id)
    click.echo(f"{run_id} {meanings[answer]}")
    if answer == "finished":
        raise SystemExit(1)


def list_runs(
    database: DatabaseOptions,
    *,
    workflow: str | None,
    state: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List runs, the newest first."""
    wanted = None if state is None else _run_state(state)
    with database.opened() as store:
        found = store.find_runs(workflow=workflow, state=wanted, limit=limit + 1)
    hidden = database.settings().privacy.hidden
    shown = [hide_in_run(run, hidden) for run in found[:limit]]
    if as_json:
        print_json([run_shape(run) for run in shown])
        return
    if not shown:
        click.echo("No run matches.", err=True)
        return
    print_table(
        ("id", "workflow", "state", "created", "finished", "error"),
        [
            (
                run.id,
                run.workflow,
                state_cell(run.state),
                moment(run.created_at),
                moment(run.finished_at),
                _error_of(run.error),
            )
            for run in shown
        ],
        whole=("id", "state", "created"),
        dispensable=("created", "finished"),
    )
    if len(found) > limit:
        click.echo(f"These are the newest {limit}; --limit shows more.", err=True)


def show_run(
    store: Store,
    run: RunSnapshot,
    *,
    target: str | None,
    hidden: Sequence[str],
    as_json: bool,
) -> None:
    """Show a run with its tasks, its context, and whether the code has changed since."""
    run = hide_in_run(run, hidden)
    tasks = [hide_in_execution(one, hidden) for one in store.tasks_of(run.id)]
    code = _about_code(store, run, target)
    if as_json:
        print_json({**run_shape(run, tasks), "code": code})
        return
    print_fields(_fields(run, tasks, code))
    click.echo()
    print_table(
        ("task", "state", "attempt", "id", "error"),
        [
            (node.name, state_cell(one.state), str(one.attempt), one.id, _error_of(one.error))
            for node, one in zip(decode_graph(run.graph).nodes, tasks, strict=True)
        ],
        whole=("task", "state", "id"),
        dispensable=("attempt",),
    )
    for line in _elements(store, run):
        click.echo(line)


def _elements(store: Store, run: RunSnapshot) -> Iterator[str]:
    """A line for each task that runs for each element of a list, however long the list is."""
    nodes = decode_graph(run.graph).nodes
    for place, states in sorted(store.count_elements(run.id).items()):
        counted = ", ".join(f"{count:,} {state}" for state, count in sorted(states.items()))
        yield f"{nodes[place].name} has {sum(states.values()):,} elements: {counted}"


def _fields(
    run: RunSnapshot, tasks: Sequence[Snapshot], code: str
) -> Iterator[tuple[str, Cell | str]]:
    ended = sum(one.finished_at is not None for one in tasks)
    yield "id", run.id
    yield "workflow", run.workflow
    yield "state", state_cell(run.state)
    yield "tasks", f"{ended} of {len(tasks)} have ended"
    yield "inputs", shortened(run.inputs)
    yield "context", shortened(msgspec.json.encode(context_of(run, tasks)).decode())
    if run.error is not None:
        yield "error", _error_of(run.error)
    yield "code", code
    yield "created", moment(run.created_at, exact=True)
    if run.deadline is not None:
        yield "deadline", moment(run.deadline, exact=True)
    if run.finished_at is not None:
        yield "finished", moment(run.finished_at, exact=True)
    if run.cancel_requested and run.finished_at is None:
        yield "asked to stop", "yes"


def _about_code(store: Store, run: RunSnapshot, target: str | None) -> str:
    """Compare with the App that is named; without one, with the newest run of the workflow."""
    if target is not None:
        known = load_app(target).workflows.get(run.workflow)
        if known is None:
            return f"gone: {target} has no workflow {run.workflow!r}"
        if known.fingerprint == run.fingerprint:
            return f"the same as in {target}"
        return f"changed since it started: {target} has another version"
    newest = store.find_runs(workflow=run.workflow, limit=1)
    if newest and newest[0].fingerprint != run.fingerprint:
        return f"changed since it started: run {newest[0].id} started with another version"
    return "the same as in the newest run (to compare it with your code: --app MODULE:APP)"


def _run_state(state: str) -> RunState:
    try:
        return RunState(state)
    except ValueError:
        raise InvalidOption(
            "state",
            state,
            because="a run of a workflow has no such state",
            instead=f"There are {', '.join(RunState)}",
        ) from None


def refuse_task_filters(**given: str | None) -> None:
    """Refuse what only tasks have, where runs are asked for."""
    for option, value in given.items():
        if value is not None:
            raise InvalidOption(
                option,
                value,
                because="a run has many tasks, in queues of their own",
                instead="Leave it out, or leave out --workflow and --runs",
            )


def task_state(state: str) -> State:
    """The state of a task, where runs are not asked for."""
    try:
        return State(state)
    except ValueError:
        raise InvalidOption(
            "state",
            state,
            because="a task has no such state",
            instead="Runs have: add --runs, or --workflow NAME",
        ) from None


def _error_of(stored: str | None) -> str:
    return "" if stored is None else shortened(error_line(decode(stored)))
