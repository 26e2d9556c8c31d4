"""What decides when an execution runs, read from PostgreSQL in one snapshot."""

from penstock.model.states import State
from penstock.model.waiting import Load, Standing, Waiting
from penstock.store.decoding import decode_event, decode_peer, decode_snapshot
from penstock.store.postgres.session import Session


def explain(session: Session, execution_id: str) -> Waiting | None:
    with session.transaction():
        # Several statements that must agree with each other; nothing is written.
        session.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return _explain(session, execution_id)


def _explain(session: Session, execution_id: str) -> Waiting | None:
    found = session.rows("get", ids=[execution_id])
    if not found:
        return None
    ((at, due_in, paused_at),) = session.rows("hurdles", id=execution_id, now=session.now)
    # No row: it has ended, so nothing is ahead of it.
    in_serial = session.rows("ahead_in_serial", id=execution_id) or [(None, None, 0)]
    ((head, predecessor, ahead_in_serial),) = in_serial
    standings = _standings(session, {id_ for id_ in (head, predecessor) if id_ is not None})
    return Waiting(
        at=at,
        snapshot=decode_snapshot(found[0]),
        history=tuple(decode_event(row) for row in session.rows("history", id=execution_id)),
        due_in=due_in,
        head=standings.get(head),
        predecessor=standings.get(predecessor),
        ahead_in_serial=ahead_in_serial,
        paused_at=paused_at,
        ahead=dict(session.rows("ahead_in_queue", id=execution_id)),
        workers=tuple(decode_peer(row) for row in session.rows("workers")),
        loads=tuple(Load(*row) for row in session.rows("loads")),
    )


def _standings(session: Session, ids: set[str]) -> dict[str | None, Standing]:
    if not ids:
        return {}
    return {
        id_: Standing(id_, task, State(state), since)
        for id_, task, state, since in session.rows("standings", ids=sorted(ids))
    }
