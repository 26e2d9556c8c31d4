"""The why command: what an execution waits for, or how it ended, and what to do about it."""

from collections.abc import Sequence

import click

from penstock.cli.options import DatabaseOptions, database_options, json_option
from penstock.cli.shapes import Shape, print_json
from penstock.cli.tables import (
    Cell,
    moment,
    print_line,
    print_table,
    print_wrapped,
    printable,
    state_cell,
)
from penstock.engine.endings import AttemptError, errors_of
from penstock.engine.reasons import Reason
from penstock.engine.why import explain, in_state_since
from penstock.engine.why_runs import RunFacts, explain_run
from penstock.errors import ExecutionNotFound
from penstock.model.events import Event, RunEvent
from penstock.model.ids import parse_id
from penstock.model.runs import RunState
from penstock.model.states import FINAL
from penstock.model.telling import span
from penstock.model.waiting import Waiting
from penstock.store.contract import Store


@click.command
@click.argument("execution_id", metavar="ID")
@json_option
@database_options
def why(*, database: DatabaseOptions, execution_id: str, as_json: bool) -> None:
    """Say why an execution does not run, or what became of it, and what to do about it.

    The answer comes from what the claim itself looks at, read at one moment: the queue, the
    serial, the workers, what they know and what they run. Of a run of a workflow it says which
    tasks are under way, and of a task in it which others it waits for.
    """
    wanted = parse_id(execution_id)
    lease = database.settings().worker.lease
    with database.opened() as store:
        facts = store.explain_waiting(wanted)
        run = _run(store, wanted) if facts is None else None
    if run is not None:
        _tell_run(run, as_json=as_json)
        return
    if facts is None:
        raise ExecutionNotFound(wanted)
    reasons, errors = explain(facts, lease=lease), errors_of(facts.history)
    if as_json:
        print_json(_shape(facts, reasons, errors))
    else:
        _print(facts, reasons, errors)


def _run(store: Store, run_id: str) -> RunFacts | None:
    for run in store.runs([run_id]):
        cancelled = run.state is RunState.CANCELLED
        reason = _reason_in(store.history(run_id)) if cancelled else None
        return RunFacts(run, store.tasks_of(run_id), reason)
    return None


def _reason_in(history: Sequence[Event]) -> str | None:
    for event in reversed(history):
        if event.type == RunEvent.CANCELLED:
            reason = event.data.get("reason")
            return None if reason is None else str(reason)
    return None


def _tell_run(facts: RunFacts, *, as_json: bool) -> None:
    run, reasons = facts.run, explain_run(facts)
    if as_json:
        shape = {"id": run.id, "workflow": run.workflow, "state": run.state}
        print_json({**shape, "reasons": _reason_shapes(reasons)})
        return
    print_line(
        [
            Cell(f"{printable(run.workflow)} {run.id}", "bold"),
            Cell(" is "),
            state_cell(run.state),
            Cell("."),
        ]
    )
    _print_reasons(reasons)


def _reason_shapes(reasons: list[Reason]) -> list[Shape]:
    return [
        {"code": code, "sentence": sentence, "next_step": next_step}
        for code, sentence, next_step in reasons
    ]


def _shape(facts: Waiting, reasons: list[Reason], errors: list[AttemptError]) -> Shape:
    one = facts.snapshot
    return {
        "id": one.id,
        "task": one.task,
        "queue": one.queue,
        "state": one.state,
        "since": in_state_since(facts),
        "reasons": _reason_shapes(reasons),
        "errors": [
            {"attempt": attempt, "at": at, "worker_id": worker_id, "error": line}
            for attempt, at, worker_id, line in errors
        ],
    }


def _print(facts: Waiting, reasons: list[Reason], errors: list[AttemptError]) -> None:
    one, since = facts.snapshot, span(facts.at - in_state_since(facts))
    ended = one.state in FINAL
    print_line(
        [
            Cell(f"{printable(one.task)} {one.id}", "bold"),
            Cell(f" in queue {printable(repr(one.queue))} "),
            *([] if ended else [Cell("has been ")]),
            state_cell(one.state),
            Cell(f" {since} ago." if ended else f" for {since}."),
        ]
    )
    _print_reasons(reasons)
    if errors:
        click.echo()
        print_table(
            ("attempt", "at", "error"),
            [(str(error.attempt), moment(error.at), error.line) for error in errors],
            whole=("attempt",),
            dispensable=("at",),
        )


def _print_reasons(reasons: list[Reason]) -> None:
    for reason in reasons:
        click.echo()
        print_wrapped(reason.sentence)
        print_wrapped(reason.next_step, mark="→ ", style="cyan")
