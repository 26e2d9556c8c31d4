"""Reading a stretch of the tables on SQLite, all of it as it was at one moment."""

from collections.abc import Iterator

from penstock.model.examinations import Examined
from penstock.model.ids import last_id_of, last_place_of, run_of
from penstock.store.decoding import HIGHEST_ID, LOWEST_ID
from penstock.store.examined import EVENTS_PER_EXECUTION, Stretch, Values, assemble
from penstock.store.ranges import encode_ranges
from penstock.store.scripts import Row
from penstock.store.sqlite.transaction import Transaction


def examine(view: Transaction, *, after: str | None, until: str | None, limit: int) -> Examined:
    begin = after or LOWEST_ID
    if until is None:
        ((reached,),) = view.rows(
            "examine_until",
            after=begin,
            limit=limit,
            most_events=EVENTS_PER_EXECUTION * limit,
            highest=HIGHEST_ID,
        )
        until = _whole(view, reached)
    stretch = Stretch(
        view.rows("examine_executions", after=begin, until=until),
        view.rows("examine_runs", after=begin, until=until),
        view.rows("examine_outbox", after=begin, until=until),
        _events(view, after=begin, until=until),
    )
    return assemble(stretch, lambda run_id: _values(view, run_id), until=until)


def _whole(view: Transaction, reached: str) -> str:
    """How far a stretch goes that must not end in the middle of a run."""
    run_id = run_of(reached)
    ((is_run,),) = view.rows("examine_whether_run", id=run_id)
    return last_id_of(run_id) if is_run else reached


def _values(view: Transaction, run_id: str) -> Values:
    ((inputs,),) = view.rows("examine_inputs", id=run_id)
    written = view.rows("run_writes", runs=encode_ranges([run_id], last=last_place_of))
    return Values(inputs, {task_id: writes for _, task_id, writes in written})


def _events(view: Transaction, *, after: str, until: str) -> Iterator[Row]:
    """Row by row: one history can be longer than what fits into memory."""
    statement = view.statements["examine_events"]
    yield from view.connection.execute(statement.sql, {"after": after, "until": until})
