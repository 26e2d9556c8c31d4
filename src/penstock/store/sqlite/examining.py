"""Reading a stretch of the tables on SQLite, all of it as it was at one moment."""

from collections.abc import Iterator

from penstock.model.examinations import Examined
from penstock.store.decoding import HIGHEST_ID, LOWEST_ID
from penstock.store.examined import EVENTS_PER_EXECUTION, assemble
from penstock.store.scripts import Row
from penstock.store.sqlite.transaction import Transaction


def examine(view: Transaction, *, after: str | None, until: str | None, limit: int) -> Examined:
    begin = after or LOWEST_ID
    if until is None:
        ((until,),) = view.rows(
            "examine_until",
            after=begin,
            limit=limit,
            most_events=EVENTS_PER_EXECUTION * limit,
            highest=HIGHEST_ID,
        )
    return assemble(
        view.rows("examine_executions", after=begin, until=until),
        view.rows("examine_outbox", after=begin, until=until),
        _events(view, after=begin, until=until),
        until=until,
    )


def _events(view: Transaction, *, after: str, until: str) -> Iterator[Row]:
    """Row by row: one history can be longer than what fits into memory."""
    statement = view.statements["examine_events"]
    yield from view.connection.execute(statement.sql, {"after": after, "until": until})
