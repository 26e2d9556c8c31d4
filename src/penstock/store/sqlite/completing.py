"""Completing inside a handler's own transaction on SQLite."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from penstock.errors import LeaseLost
from penstock.model.events import EventType
from penstock.model.executions import Lease, Whereabouts
from penstock.store.batches import encode_strings, microseconds_at
from penstock.store.follow_ups import following
from penstock.store.runs import Output
from penstock.store.scripts import Script, Step, undone_on_error
from penstock.store.sql import Statement
from penstock.store.sqlite.creating import advance, write_executions
from penstock.store.sqlite.running import go_on
from penstock.store.sqlite.transaction import EventRow, Transaction, encode_json
from penstock.store.whereabouts import GONE, whereabouts_of


def complete(
    statements: Mapping[str, Statement],
    lease: Lease,
    *,
    result: str,
    writes: str | None,
    started_at: datetime | None,
    now: int,
) -> Script[None]:
    output = Output(result, writes)
    script = _complete(statements, lease, output, microseconds_at(started_at), now)
    yield from undone_on_error(statements, script)


def _complete(
    statements: Mapping[str, Statement],
    lease: Lease,
    output: Output,
    started_at: int | None,
    now: int,
) -> Script[None]:
    begun: Sequence[object] = ()
    if started_at is not None:
        told = {**_named(lease), "started_at": started_at}
        begun = yield Step(statements["start_unless_known"], told)
    rows = yield Step(statements["complete"], {**_named(lease), **output._asdict(), "now": now})
    if not rows:
        raise LeaseLost(lease.execution_id, doing="complete it")
    ((id_, root_id, task, follow_ups, serial, trace),) = rows
    events = [EventRow(root_id, id_, EventType.COMPLETED, None, lease.worker_id, now)]
    if started_at is not None and begun:
        start = EventRow(root_id, id_, EventType.STARTED, None, lease.worker_id, started_at)
        events.insert(0, start)
    yield Step(statements["tell"], {"batch": encode_json(events)})
    # There is one writer, so nobody can be in the way: what comes after is released here.
    end = (id_, task, "completed", follow_ups, output.result, None, trace)
    if found := following([end]):
        yield from write_executions(statements, found, now=now)
    if serial is not None:
        yield from advance(statements, [serial], now=now)
    if root_id != id_:
        yield from go_on(statements, [root_id], {id_: output}, now=now)


def once(statements: Mapping[str, Statement], lease: Lease, name: str, *, now: int) -> Script[bool]:
    held = yield Step(statements["holds_lease"], _named(lease))
    if not held:
        raise LeaseLost(lease.execution_id, doing=f"do {name!r} once")
    parameters = {"id": lease.execution_id, "name": name, "now": now}
    return bool((yield Step(statements["once"], parameters)))


def read_back(transaction: Transaction, leases: Sequence[Lease]) -> list[Whereabouts]:
    """As far as is committed: under the write lock that is all, for then nobody else writes."""
    ids = encode_strings([lease.execution_id for lease in leases])
    rows = {row[0]: row[1:] for row in transaction.rows("whereabouts", ids=ids)}
    return [whereabouts_of(lease, rows.get(lease.execution_id, GONE)) for lease in leases]


def _named(lease: Lease) -> dict[str, object]:
    return {"id": lease.execution_id, "fence": lease.fence, "worker_id": lease.worker_id}
