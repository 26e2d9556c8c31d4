"""What decides when an execution runs, read from PostgreSQL in one snapshot."""

from datetime import timedelta

from penstock.model.executions import Snapshot
from penstock.model.gauges import Gauges
from penstock.model.ids import run_of
from penstock.model.runs import RunSnapshot
from penstock.model.states import State
from penstock.model.waiting import Load, QueueDepth, Standing, Waiting, dependencies, not_ended
from penstock.store.decoding import decode_event, decode_peer, decode_run, decode_snapshot
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
    snapshot = decode_snapshot(found[0])
    run = _run_of(session, snapshot)
    upstream = dependencies(run, execution_id) if run and snapshot.state is State.WAITING else []
    beside = {id_ for id_ in (head, predecessor) if id_ is not None}
    standings = _standings(session, beside.union(upstream))
    history = session.rows("history", id=execution_id, run_id=run_of(execution_id))
    return Waiting(
        at=at,
        snapshot=snapshot,
        history=tuple(decode_event(row) for row in history),
        due_in=due_in,
        head=standings.get(head),
        predecessor=standings.get(predecessor),
        ahead_in_serial=ahead_in_serial,
        paused_at=paused_at,
        ahead=dict(session.rows("ahead_in_queue", id=execution_id)),
        workers=tuple(decode_peer(row) for row in session.rows("workers")),
        loads=tuple(Load(*row) for row in session.rows("loads")),
        run=run,
        waits_for=not_ended(upstream, standings),
    )


def _run_of(session: Session, snapshot: Snapshot) -> RunSnapshot | None:
    if snapshot.root_id == snapshot.id:
        return None
    rows = session.rows("runs", ids=[snapshot.root_id])
    return decode_run(rows[0]) if rows else None


def _standings(session: Session, ids: set[str]) -> dict[str | None, Standing]:
    if not ids:
        return {}
    return {
        id_: Standing(id_, task, State(state), since)
        for id_, task, state, since in session.rows("standings", ids=sorted(ids))
    }


def depths(session: Session) -> list[QueueDepth]:
    return [QueueDepth(*row) for row in session.rows("depths", now=session.now)]


def gauges(session: Session, lease: timedelta) -> Gauges:
    ((scheduled, running, deferred, failed, workers, silent),) = session.rows(
        "gauges", now=session.now, lease=lease
    )
    oldest = session.rows("inspect_transactions")
    return Gauges(
        queues=tuple(depths(session)),
        paused=tuple(queue for (queue, *_) in session.rows("paused")),
        scheduled=scheduled,
        running=running,
        deferred=deferred,
        failed=failed,
        workers=workers,
        silent_workers=silent,
        # Of another role's transaction an unprivileged one sees that it is there, not since when.
        oldest_transaction=(oldest[0][3] if oldest else None) or timedelta(0),
    )
