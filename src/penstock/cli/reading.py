"""Commands that look and change nothing: list, show, history, workers."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import click

from penstock.cli.living import silent_among
from penstock.cli.naming import told_of_unknown
from penstock.cli.options import DatabaseOptions, database_options, json_option, storable
from penstock.cli.runs import list_runs, refuse_task_filters, show_run, task_state
from penstock.cli.shapes import (
    event_shape,
    execution_shape,
    print_json,
    worker_shape,
)
from penstock.cli.tables import (
    Cell,
    Line,
    moment,
    print_fields,
    print_line,
    print_table,
    printable,
    shortened,
    state_cell,
    table_lines,
)
from penstock.errors import ExecutionNotFound
from penstock.model.events import Event, EventType, RunEvent
from penstock.model.executions import Snapshot
from penstock.model.graph import decode_graph
from penstock.model.hiding import hide_in_execution
from penstock.model.ids import index_of, parse_id, place_of
from penstock.model.payloads import decode
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.model.workers import Peer
from penstock.store.contract import Store

DEFAULT_LIMIT = 50

_STATES = list(dict.fromkeys([*(state.value for state in State), *map(str, RunState)]))

_EVENT_STYLES: Mapping[str, str] = {
    EventType.COMPLETED: "green",
    EventType.FAILED: "bold red",
    EventType.ABANDONED: "bold red",
    EventType.RETRY_SCHEDULED: "yellow",
    EventType.RECOVERED: "bold magenta",
    EventType.CANCELLED: "magenta",
    RunEvent.COMPLETED: "green",
    RunEvent.FAILED: "bold red",
    RunEvent.CANCELLED: "magenta",
}


@click.command("list")
@click.option("--state", type=click.Choice(_STATES), help="In this state.")
@click.option("--task", metavar="NAME", callback=storable, help="Of this task.")
@click.option("--queue", metavar="NAME", callback=storable, help="In this queue.")
@click.option(
    "--workflow", metavar="NAME", callback=storable, help="Runs of this workflow, not tasks."
)
@click.option("--runs", is_flag=True, help="Runs of all workflows, not tasks.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="At most so many.",
)
@json_option
@database_options
def list_(
    *,
    database: DatabaseOptions,
    state: str | None,
    task: str | None,
    queue: str | None,
    workflow: str | None,
    runs: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List executions of tasks, or runs of workflows, the newest first."""
    if runs or workflow is not None:
        refuse_task_filters(task=task, queue=queue)
        list_runs(database, workflow=workflow, state=state, limit=limit, as_json=as_json)
        return
    wanted = None if state is None else task_state(state)
    with database.opened() as store:
        found = store.find(state=wanted, task=task, queue=queue, limit=limit + 1)
        hint = None if found or task is None else told_of_unknown(store, task)
    hidden = database.settings().privacy.hidden
    shown = [hide_in_execution(snapshot, hidden) for snapshot in found[:limit]]
    if as_json:
        print_json([execution_shape(snapshot) for snapshot in shown])
    elif not shown:
        click.echo("No execution matches.", err=True)
    if hint is not None:
        click.echo(hint, err=True)
    if as_json or not shown:
        return
    print_table(
        ("id", "task", "state", "queue", "attempt", "created", "error"),
        [
            (
                snapshot.id,
                snapshot.task,
                state_cell(snapshot.state),
                snapshot.queue,
                str(snapshot.attempt),
                moment(snapshot.created_at),
                _error_line(snapshot),
            )
            for snapshot in shown
        ],
        whole=("id", "state", "created"),
        dispensable=("attempt", "created", "queue"),
    )
    if len(found) > limit:
        click.echo(f"These are the newest {limit}; --limit shows more.", err=True)


@click.command
@click.argument("execution_id", metavar="ID")
@click.option(
    "--app",
    "target",
    metavar="MODULE:APP",
    help="Of a run: compare the workflow that it started with and the one in this App.",
)
@json_option
@database_options
def show(
    *, database: DatabaseOptions, execution_id: str, target: str | None, as_json: bool
) -> None:
    """Show all that is known of one execution, or of a run of a workflow and its tasks."""
    wanted = parse_id(execution_id)
    hidden = database.settings().privacy.hidden
    with database.opened() as store:
        found = store.get([wanted])
        if not found:
            for run in store.runs([wanted]):
                show_run(store, run, target=target, hidden=hidden, as_json=as_json)
                return
    if not found:
        raise ExecutionNotFound(wanted)
    if target is not None:
        click.echo("--app is for runs of workflows; this is an execution of a task.", err=True)
    shown = hide_in_execution(found[0], hidden)
    if as_json:
        print_json(execution_shape(shown))
        return
    print_fields(_fields(shown))
    _print_traceback(_decoded_error(shown))


@click.command
@click.argument("execution_id", metavar="ID")
@json_option
@database_options
def history(*, database: DatabaseOptions, execution_id: str, as_json: bool) -> None:
    """Tell what has happened to one execution, or to a run and all its tasks, in order."""
    wanted = parse_id(execution_id)
    with database.opened() as store:
        events = store.history(wanted)
        # Events go before their execution does, and the other way round.
        if not events and not store.get([wanted]) and not store.runs([wanted]):
            raise ExecutionNotFound(wanted)
        names = _names_in(store, wanted) if any(not one.execution_id for one in events) else []
    if as_json:
        print_json([event_shape(event) for event in events])
        return
    within = bool(names)  # otherwise all of it is about the same task
    print_table(
        ("at", "after", *(("task",) if within else ()), "event", "worker", "details"),
        [
            (
                moment(event.at, exact=True),
                f"{(event.at - events[0].at).total_seconds():.3f} s",
                *((_name_of(event.execution_id, names),) if within else ()),
                event_cell(event),
                event.worker_id or "",
                details(event),
            )
            for event in events
        ],
        whole=("after", "event"),
        dispensable=("worker", "at"),
    )


def _names_in(store: Store, run_id: str) -> list[str]:
    """What the tasks of a run are called within it, in the order of its graph."""
    return [node.name for run in store.runs([run_id]) for node in decode_graph(run.graph).nodes]


def _name_of(execution_id: str | None, names: Sequence[str]) -> str:
    if execution_id is None or not names:
        return ""
    name, index = names[place_of(execution_id)], index_of(execution_id)
    return name if index is None else f"{name}[{index}]"


@click.command
@json_option
@database_options
def workers(*, database: DatabaseOptions, as_json: bool) -> None:
    """List the workers that count as alive, the oldest first.

    One that has sent no heartbeat for two leases is marked as silent: it may be dead, and nobody
    has noticed yet, because no other worker is there to do so.
    """
    with database.opened() as store:
        peers = store.workers()
        silent = silent_among(store, peers, lease=database.settings().worker.lease)
    if as_json:
        print_json([worker_shape(peer, silent=silent) for peer in peers])
        return
    if not peers:
        click.echo("No worker is alive.", err=True)
        return
    for line in worker_lines(peers, silent=silent):
        print_line(line)


def event_cell(event: Event) -> Cell:
    return Cell(event.type, _EVENT_STYLES.get(event.type, ""))


def details(event: Event) -> str:
    """Say on one line what an event carries; of an error its type and message."""
    told = []
    for name, value in event.data.items():
        match name, value:
            case "error", {"type": kind, "message": message}:
                told.append(f"{kind}: {message}")
            case "lost_worker", _:
                told.append(f"worker {value} was lost")
            case "started", False:
                told.append("it is not known to have started")
            case ("started", True) | ("crashes", 0):
                pass  # what the number of crashes says, or the line above
            case "crashes", _:
                told.append(f"crash {value}")
            case "delay", _:
                told.append(f"again in {value} s")
            case "reason", _:
                told.append(str(value))
            case _:
                told.append(f"{name.replace('_', ' ')} {value}")
    return shortened(", ".join(told))


def _fields(snapshot: Snapshot) -> Iterator[tuple[str, Cell | str]]:
    yield "id", snapshot.id
    yield "task", snapshot.task
    yield "state", state_cell(snapshot.state)
    optional = (
        ("sub-state", snapshot.sub_state),
        ("queue", snapshot.queue),
        ("priority", snapshot.priority),
        ("attempt", snapshot.attempt),
        ("retries", snapshot.retries),
        ("crashes", snapshot.crashes),
        ("key", snapshot.key),
        ("serial", snapshot.serial),
        ("worker", snapshot.worker_id),
        ("progress", _progress_line(snapshot)),
        ("args", snapshot.args),
        ("result", snapshot.result),
        ("error", _error_line(snapshot) or None),
        ("created", moment(snapshot.created_at, exact=True)),
        ("run at", moment(snapshot.run_at, exact=True) or None),
        ("started", moment(snapshot.started_at, exact=True) or None),
        ("finished", moment(snapshot.finished_at, exact=True) or None),
    )
    for name, value in optional:
        if value is not None:
            yield name, str(value)
    if snapshot.cancel_requested:
        yield "asked to stop", "yes"


def _progress_line(snapshot: Snapshot) -> str | None:
    match None if snapshot.progress is None else decode(snapshot.progress):
        case {"fraction": float(fraction), "note": note}:
            return shortened(f"{fraction:.0%}{f', {note}' if note else ''}")
    return None


def _decoded_error(snapshot: Snapshot) -> Mapping[str, object]:
    error = None if snapshot.error is None else decode(snapshot.error)
    return error if isinstance(error, dict) else {}


def _error_line(snapshot: Snapshot) -> str:
    error = _decoded_error(snapshot)
    return shortened(f"{error.get('type')}: {error.get('message')}") if error else ""


def _print_traceback(error: Mapping[str, object]) -> None:
    told = error.get("traceback")
    if not isinstance(told, str):
        return
    click.echo()
    for line in told.rstrip().splitlines():
        print_line([Cell(printable(line), "dim")])


def worker_lines(peers: Sequence[Peer], *, silent: Collection[str]) -> Iterator[Line]:
    return table_lines(
        ("worker", "name", "slots", "queues", "started", "last heartbeat", ""),
        [
            (
                peer.info.id,
                peer.info.name,
                str(peer.info.slots),
                ", ".join(peer.info.queues),
                moment(peer.started_at),
                moment(peer.beat_at),
                Cell("silent", "bold red") if peer.info.id in silent else "",
            )
            for peer in peers
        ],
        whole=("worker", ""),
        dispensable=("last heartbeat", "started"),
    )
