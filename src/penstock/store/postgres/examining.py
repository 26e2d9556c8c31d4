"""Reading a stretch of the tables on PostgreSQL, all of it as it was at one moment."""

from collections.abc import Iterator
from functools import partial

from penstock.model.examinations import Examined
from penstock.store.examining import examine_view
from penstock.store.postgres.session import Session
from penstock.store.scripts import Row

_ONE_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_EVENTS_AT_A_TIME = 2000


def examine(session: Session, *, after: str | None, until: str | None, limit: int) -> Examined:
    with session.transaction():
        session.connection.execute(_ONE_MOMENT)
        ((schema,),) = session.rows("examine_schema")
        return examine_view(
            session,
            partial(_events, session),
            after=after,
            until=until,
            limit=limit,
            schema=f"{schema}.",
        )


def _events(session: Session, after: str, until: str) -> Iterator[Row]:
    """Through a cursor in the server, so that they need not fit into memory here."""
    with session.connection.cursor(name="penstock_examine") as cursor:
        cursor.itersize = _EVENTS_AT_A_TIME
        cursor.execute(
            session.statements["examine_events"].pyformat, {"after": after, "until": until}
        )
        yield from cursor
