"""What workers do for each other on PostgreSQL: promote, propagate, recover."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from penstock.model.executions import Promoted, Recovered
from penstock.model.states import FINAL, State
from penstock.model.workers import Beat
from penstock.store.batches import event_data
from penstock.store.decoding import ABANDONED, ASKED, reason_in
from penstock.store.postgres import running
from penstock.store.postgres.running import Cancellation
from penstock.store.postgres.serials import advance
from penstock.store.postgres.session import Session
from penstock.store.postgres.settling import follow
from penstock.store.postgres.waiting import leave_orphans, wake_free


def promote(session: Session, *, limit: int) -> tuple[Promoted, bool]:
    """Return what was promoted, and whether a run is over its time."""
    ((count, next_due, overdue, _),) = session.rows(
        "promote", limit=limit, now=session.now, notify=session.notify
    )
    return Promoted(count, next_due), overdue


def hasten(session: Session, ids: Sequence[str]) -> set[str]:
    """Return those that were scheduled, and are ready now."""
    data = event_data(reason=ASKED)
    rows = session.rows("hasten", ids=ids, data=data, now=session.now, notify=session.notify)
    return {row[0] for row in rows}


def overdue_runs(session: Session, *, limit: int) -> list[str]:
    return [row[0] for row in session.rows("overdue_runs", limit=limit, now=session.now)]


class Propagated(NamedTuple):
    """What came of one batch of records."""

    done: int  # without those that somebody was in the way of, which are left once more
    orphans: list[Cancellation]  # the runs that have to be cancelled
    full: bool  # there may be more


def propagate(session: Session, *, limit: int) -> Propagated:
    with session.transaction():
        found = session.rows("take_run_propagations", limit=limit)
        run_ids = [run_id for _, run_id, cancel in found if cancel is None]
        wakes = session.rows("take_task_wakes", limit=limit)
        around = {root_id for id_, root_id in wakes if root_id != id_}
        locked = running.lock(session, around.union(run_ids)) if around or run_ids else []
        woken = wake_free(session, sorted({id_ for id_, _ in wakes})) if wakes else 0
        running.advance(session, locked)
        serials = [row[0] for row in session.rows("take_propagations", limit=limit)]
        moved = advance(session, set(serials))
        orphans = [
            Cancellation(run_id, reason_in(cancel), word=seq)
            for seq, run_id, cancel in found
            if cancel is not None
        ]
        full = limit in {len(found), len(wakes), len(serials)}
        return Propagated(len(run_ids) + woken + moved, orphans, full)


def recover(
    session: Session, observer: str, *, dead: Collection[Beat], limit: int
) -> list[Recovered]:
    with session.transaction():
        if not session.rows("observer", observer=observer):
            return []
        if dead:
            session.rows(
                "declare_dead",
                observer=observer,
                worker_ids=[seen.worker_id for seen in sorted(dead)],
                beats=[seen.beat for seen in sorted(dead)],
            )
        rows = session.rows(
            "recover",
            observer=observer,
            abandoned=ABANDONED,
            limit=limit,
            now=session.now,
            notify=session.notify,
        )
        ended = [row for row in rows if State(row[1]) in FINAL]
        follow(session, [row[0] for row in ended])
        leave_orphans(session, [row[0] for row in ended if row[1] == State.CANCELLED])
        advance(session, {row[2] for row in ended if row[2] is not None})
        return [Recovered(row[0], State(row[1]), row[3]) for row in rows]
