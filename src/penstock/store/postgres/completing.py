"""Completing inside a handler's own transaction on PostgreSQL."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from penstock.errors import LeaseLost
from penstock.model.executions import Lease, Whereabouts
from penstock.store.follow_ups import following
from penstock.store.postgres.creating import create
from penstock.store.postgres.session import Session
from penstock.store.scripts import Script, Step
from penstock.store.sql import Statement
from penstock.store.whereabouts import GONE, whereabouts_of


def complete(
    statements: Mapping[str, Statement],
    lease: Lease,
    *,
    result: str,
    writes: str | None,
    started_at: datetime | None,
    now: datetime | None,
    notify: bool,
) -> Script[None]:
    rows = yield Step(
        statements["complete"],
        {
            **_as_text(lease),
            "result": result,
            "writes": writes,
            "started_at": started_at and started_at.isoformat(),
            "now": now and now.isoformat(),
            "notify": "yes" if notify else "no",
        },
    )
    if not rows:
        raise LeaseLost(lease.execution_id, doing="complete it")
    if found := following(rows):
        yield from create(statements, found, now=now, notify=notify)


def once(
    statements: Mapping[str, Statement], lease: Lease, name: str, *, now: datetime | None
) -> Script[bool]:
    parameters = {**_as_text(lease), "name": name, "now": now and now.isoformat()}
    ((held, first),) = yield Step(statements["once"], parameters)
    if not held:
        raise LeaseLost(lease.execution_id, doing=f"do {name!r} once")
    return bool(first)


def read_back(session: Session, leases: Sequence[Lease]) -> list[Whereabouts]:
    """A row that somebody's transaction has locked is not decided yet."""
    ids = [lease.execution_id for lease in leases]
    rows = {row[0]: row[1:] for row in session.rows("not_locked", ids=ids)}
    if unseen := [id_ for id_ in ids if id_ not in rows]:
        locked = {row[0] for row in session.rows("still_there", ids=unseen)}
        rows.update({id_: GONE for id_ in unseen if id_ not in locked})
    return [whereabouts_of(lease, rows.get(lease.execution_id)) for lease in leases]


def _as_text(lease: Lease) -> dict[str, str]:
    return {"id": lease.execution_id, "fence": str(lease.fence), "worker_id": lease.worker_id}
