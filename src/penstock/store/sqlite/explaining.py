"""What decides when an execution runs, read from SQLite in one view."""

from datetime import timedelta

from penstock.model.executions import Snapshot
from penstock.model.gauges import Gauges
from penstock.model.ids import run_of
from penstock.model.runs import RunSnapshot
from penstock.model.states import State
from penstock.model.waiting import Load, QueueDepth, Standing, Waiting, dependencies, not_ended
from penstock.store.batches import encode_strings, moment_at
from penstock.store.decoding import decode_event, decode_peer, decode_run, decode_snapshot
from penstock.store.sqlite.transaction import Transaction

_MICROSECOND = timedelta(microseconds=1)


def explain(view: Transaction, execution_id: str) -> Waiting | None:
    found = view.rows("get", ids=encode_strings([execution_id]))
    if not found:
        return None
    ((due_in, paused_at),) = view.rows("hurdles", id=execution_id, now=view.now)
    # No row: it has ended, so nothing is ahead of it.
    in_serial = view.rows("ahead_in_serial", id=execution_id) or [(None, None, 0)]
    ((head, predecessor, ahead_in_serial),) = in_serial
    snapshot = decode_snapshot(found[0], moment_at)
    run = _run_of(view, snapshot)
    upstream = dependencies(run, execution_id) if run and snapshot.state is State.WAITING else []
    beside = {id_ for id_ in (head, predecessor) if id_ is not None}
    standings = _standings(view, beside.union(upstream))
    history = view.rows("history", id=execution_id, run_id=run_of(execution_id))
    return Waiting(
        at=moment_at(view.now),
        snapshot=snapshot,
        history=tuple(decode_event(row, moment_at) for row in history),
        due_in=None if due_in is None else due_in * _MICROSECOND,
        head=standings.get(head),
        predecessor=standings.get(predecessor),
        ahead_in_serial=ahead_in_serial,
        paused_at=None if paused_at is None else moment_at(paused_at),
        ahead=dict(view.rows("ahead_in_queue", id=execution_id)),
        workers=tuple(decode_peer(row, moment_at) for row in view.rows("workers")),
        loads=tuple(
            Load(*rest, *((None, None) if since is None else (id_, moment_at(since))))
            for *rest, id_, since in view.rows("loads")
        ),
        run=run,
        waits_for=not_ended(upstream, standings),
    )


def _run_of(view: Transaction, snapshot: Snapshot) -> RunSnapshot | None:
    if snapshot.root_id == snapshot.id:
        return None
    rows = view.rows("runs", ids=encode_strings([snapshot.root_id]))
    return decode_run(rows[0], moment_at) if rows else None


def _standings(view: Transaction, ids: set[str]) -> dict[str | None, Standing]:
    if not ids:
        return {}
    return {
        id_: Standing(id_, task, State(state), None if since is None else moment_at(since))
        for id_, task, state, since in view.rows("standings", ids=encode_strings(sorted(ids)))
    }


def depths(view: Transaction) -> list[QueueDepth]:
    return [
        QueueDepth(queue, ready, age * _MICROSECOND)
        for queue, ready, age in view.rows("depths", now=view.now)
    ]


def gauges(view: Transaction, lease: timedelta) -> Gauges:
    heard_since = view.now - 2 * (lease // _MICROSECOND)
    ((scheduled, running, deferred, failed, workers, silent),) = view.rows(
        "gauges", heard_since=heard_since
    )
    return Gauges(
        queues=tuple(depths(view)),
        paused=tuple(queue for (queue, *_) in view.rows("paused")),
        scheduled=scheduled,
        running=running,
        deferred=deferred,
        failed=failed,
        workers=workers,
        silent_workers=silent,
        oldest_transaction=None,
    )
