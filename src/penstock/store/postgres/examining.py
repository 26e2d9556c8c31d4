"""Reading a stretch of the tables on PostgreSQL, all of it as it was at one moment."""

from collections.abc import Iterator

from penstock.model.examinations import Examined
from penstock.store.decoding import HIGHEST_ID, LOWEST_ID
from penstock.store.examined import EVENTS_PER_EXECUTION, assemble
from penstock.store.postgres.session import Session
from penstock.store.scripts import Row

_ONE_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_EVENTS_AT_A_TIME = 2000


def examine(session: Session, *, after: str | None, until: str | None, limit: int) -> Examined:
    begin = after or LOWEST_ID
    with session.transaction():
        session.connection.execute(_ONE_MOMENT)
        if until is None:
            ((until,),) = session.rows(
                "examine_until",
                after=begin,
                limit=limit,
                most_events=EVENTS_PER_EXECUTION * limit,
                highest=HIGHEST_ID,
            )
        return assemble(
            session.rows("examine_executions", after=begin, until=until),
            session.rows("examine_outbox", after=begin, until=until),
            _events(session, after=begin, until=until),
            until=until,
        )


def _events(session: Session, *, after: str, until: str) -> Iterator[Row]:
    """Through a cursor in the server: one history can be longer than what fits into memory."""
    with session.connection.cursor(name="penstock_examine") as cursor:
        cursor.itersize = _EVENTS_AT_A_TIME
        cursor.execute(
            session.statements["examine_events"].pyformat, {"after": after, "until": until}
        )
        yield from cursor
