"""Reading a stretch of the tables on PostgreSQL, all of it as it was at one moment."""

from collections.abc import Iterator

from penstock.model.examinations import Examined
from penstock.model.ids import last_id_of, last_place_of, run_of
from penstock.store.decoding import HIGHEST_ID, LOWEST_ID
from penstock.store.examined import EVENTS_PER_EXECUTION, Stretch, Values, assemble
from penstock.store.postgres.session import Session
from penstock.store.ranges import encode_ranges
from penstock.store.scripts import Row

_ONE_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_EVENTS_AT_A_TIME = 2000


def examine(session: Session, *, after: str | None, until: str | None, limit: int) -> Examined:
    begin = after or LOWEST_ID
    with session.transaction():
        session.connection.execute(_ONE_MOMENT)
        if until is None:
            ((reached,),) = session.rows(
                "examine_until",
                after=begin,
                limit=limit,
                most_events=EVENTS_PER_EXECUTION * limit,
                highest=HIGHEST_ID,
            )
            until = _whole(session, reached)
        stretch = Stretch(
            session.rows("examine_executions", after=begin, until=until),
            session.rows("examine_runs", after=begin, until=until),
            session.rows("examine_outbox", after=begin, until=until),
            _events(session, after=begin, until=until),
        )
        ((schema,),) = session.rows("examine_schema")
        return assemble(
            stretch, lambda run_id: _values(session, run_id), until=until, schema=f"{schema}."
        )


def _whole(session: Session, reached: str) -> str:
    """How far a stretch goes that must not end in the middle of a run."""
    run_id = run_of(reached)
    ((is_run,),) = session.rows("examine_whether_run", id=run_id)
    return last_id_of(run_id) if is_run else reached


def _values(session: Session, run_id: str) -> Values:
    ((inputs,),) = session.rows("examine_inputs", id=run_id)
    written = session.rows("run_writes", runs=encode_ranges([run_id], last=last_place_of))
    return Values(inputs, {task_id: writes for _, task_id, writes in written})


def _events(session: Session, *, after: str, until: str) -> Iterator[Row]:
    """Through a cursor in the server: one history can be longer than what fits into memory."""
    with session.connection.cursor(name="penstock_examine") as cursor:
        cursor.itersize = _EVENTS_AT_A_TIME
        cursor.execute(
            session.statements["examine_events"].pyformat, {"after": after, "until": until}
        )
        yield from cursor
