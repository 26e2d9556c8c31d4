"""Reading a stretch of the tables: what to ask for, and in which order, on either database."""

from collections.abc import Callable, Iterable
from typing import Protocol

from penstock.model.examinations import Examined
from penstock.model.ids import last_id_of, last_place_of, run_of
from penstock.store.decoding import HIGHEST_ID, LOWEST_ID
from penstock.store.examined import Stretch, Values, assemble
from penstock.store.ranges import encode_ranges
from penstock.store.scripts import Row

EVENTS_PER_EXECUTION = 20
"""How many events a stretch may have for each execution that it may have: most have six."""


class View(Protocol):
    """The tables as they were at one moment."""

    def rows(self, name: str, /, **parameters: object) -> list[Row]: ...


def examine_view(
    view: View,
    events: Callable[[str, str], Iterable[Row]],
    *,
    after: str | None,
    until: str | None,
    limit: int,
    schema: str = "",
) -> Examined:
    """Read what lies after one id and until another, or as much as `limit` allows.

    `events` reads those of a stretch one by one: one history can be longer than what fits into
    memory.
    """
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
        events(begin, until),
    )
    return assemble(stretch, lambda run_id: _values(view, run_id), until=until, schema=schema)


def _whole(view: View, reached: str) -> str:
    """How far a stretch goes that must not end in the middle of a run."""
    run_id = run_of(reached)
    ((is_run,),) = view.rows("examine_whether_run", id=run_id)
    return last_id_of(run_id) if is_run else reached


def _values(view: View, run_id: str) -> Values:
    ((inputs,),) = view.rows("examine_inputs", id=run_id)
    written = view.rows("run_writes", runs=encode_ranges([run_id], last=last_place_of))
    return Values(inputs, {task_id: writes for _, task_id, writes in written})
