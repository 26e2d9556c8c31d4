"""What workers do for each other on SQLite: promote, recover."""

from collections.abc import Collection, Sequence
from datetime import timedelta

from penstock.model.events import EventType
from penstock.model.executions import Promoted, Recovered
from penstock.model.states import FINAL, State
from penstock.model.wakeups import Chores
from penstock.model.workers import Beat
from penstock.store.batches import encode_strings, event_data
from penstock.store.decoding import ABANDONED, ASKED, OUT_OF_TIME
from penstock.store.scripts import Row, run
from penstock.store.sqlite.creating import advance, follow
from penstock.store.sqlite.running import cancel as cancel_run
from penstock.store.sqlite.running import cancel_children, go_on
from penstock.store.sqlite.transaction import EventRow, ReadyRow, Transaction, encode_json

_LONG_AGO = -(2**63)


def nothing_is_due(transaction: Transaction) -> Promoted | None:
    """Look without the write lock; None when there is something to promote."""
    earliest = _earliest(transaction, after=_LONG_AGO)
    if earliest is not None and earliest <= transaction.now:
        return None
    return Promoted(0, _until(transaction, earliest))


def promote(transaction: Transaction, *, limit: int) -> Promoted:
    rows = transaction.rows("promote", now=transaction.now, limit=limit)
    _mark_ready(transaction, rows)
    for (run_id,) in transaction.rows("overdue_runs", now=transaction.now, limit=limit):
        cancel_run(transaction, run_id, reason="the run is out of time", error=OUT_OF_TIME)
    later = _earliest(transaction, after=transaction.now)
    return Promoted(len(rows), _until(transaction, later))


def hasten(transaction: Transaction, ids: Sequence[str]) -> set[str]:
    """Return those that were scheduled, and are ready now."""
    rows = transaction.rows("hasten", ids=encode_strings(sorted(set(ids))))
    _mark_ready(transaction, rows, data=event_data(reason=ASKED))
    return {row[0] for row in rows}


def _mark_ready(transaction: Transaction, rows: list[Row], *, data: str | None = None) -> None:
    rows.sort(key=lambda row: (row[6], row[0]))
    transaction.fill_outbox(
        [
            ReadyRow(id_, None, queue, priority, suspect=bool(suspect), task=task)
            for id_, _, task, queue, priority, suspect, _ in rows
        ]
    )
    transaction.tell(
        [
            EventRow(row[1], row[0], EventType.MARKED_READY, data, None, transaction.now)
            for row in rows
        ]
    )
    around = {row[1] for row in rows if row[1] != row[0]}
    run(go_on(transaction.statements, around, now=transaction.now), transaction.execute)


def _earliest(transaction: Transaction, *, after: int) -> int | None:
    """When the next task is due, or the next run is out of time."""
    ((due,),) = transaction.rows("next_due", after=after)
    ((deadline,),) = transaction.rows("next_deadline")
    moments = [moment for moment in (due, deadline) if moment is not None]
    return min(moments, default=None)


def _until(transaction: Transaction, due: int | None) -> timedelta | None:
    return None if due is None else timedelta(microseconds=due - transaction.now)


def chores(transaction: Transaction) -> Chores:
    idle = nothing_is_due(transaction)
    next_due = timedelta(0) if idle is None else idle.next_due
    return Chores(has_orphans(transaction), propagations=False, next_due=next_due)


def has_orphans(transaction: Transaction) -> bool:
    return bool(transaction.rows("orphans", limit=1))


def recover(
    transaction: Transaction, observer: str, *, dead: Collection[Beat], limit: int
) -> list[Recovered]:
    if not transaction.rows("is_alive", worker_id=observer):
        return []
    if dead:
        transaction.rows("declare_dead", observer=observer, dead=encode_json(list(dead)))
    lost_worker: dict[str, str] = dict(transaction.rows("orphans", limit=limit))
    if not lost_worker:
        return []
    rows = transaction.rows(
        "recover",
        ids=encode_strings(list(lost_worker)),
        abandoned=ABANDONED,
        now=transaction.now,
    )
    rows.sort(key=lambda row: row[5])
    ready, events, serials = [], [], set()
    for id_, root_id, task, queue, priority, seq, state, serial, crashes, started_at in rows:
        data = event_data(
            lost_worker=lost_worker[id_], started=started_at is not None, crashes=crashes
        )
        events.append(
            EventRow(root_id, id_, _EVENT_OF[State(state)], data, observer, transaction.now)
        )
        if state == State.READY:
            ready.append(ReadyRow(id_, seq, queue, priority, suspect=True, task=task))
        elif serial is not None and state in FINAL:
            serials.add(serial)
    transaction.fill_outbox(ready)
    transaction.tell(events)
    ended = [row[0] for row in rows if row[6] in FINAL]
    run(follow(transaction.statements, ended, now=transaction.now), transaction.execute)
    cancel_children(transaction, [row[0] for row in rows if row[6] == State.CANCELLED])
    if serials:
        run(advance(transaction.statements, serials, now=transaction.now), transaction.execute)
    run_ids = {row[1] for row in rows if row[1] != row[0]}
    run(go_on(transaction.statements, run_ids, now=transaction.now), transaction.execute)
    return [Recovered(row[0], State(row[6]), lost_worker[row[0]]) for row in rows]


_EVENT_OF = {
    State.READY: EventType.RECOVERED,
    State.FAILED: EventType.ABANDONED,
    State.CANCELLED: EventType.CANCELLED,
}
