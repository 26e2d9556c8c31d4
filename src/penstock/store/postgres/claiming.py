"""Handing out tasks on PostgreSQL: one statement in the steady state."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.executions import Claimed, Lease
from penstock.store.low_water import Lane, LowWater, order_of
from penstock.store.postgres.session import Session


class Wanted(NamedTuple):
    """What a worker asks for."""

    worker_id: str
    queues: Sequence[str]
    tasks: frozenset[str]
    limit: int
    suspects: bool


def claim(session: Session, wanted: Wanted, marks: LowWater) -> list[Claimed]:
    """Scan from the marks; from zero when that is due, or when nothing was found."""
    if not marks.thorough_scan_is_due and (claimed := _scan(session, wanted, marks)):
        return claimed
    with marks.thorough_scan(Lane(*row) for row in session.rows("lanes")):
        return _scan(session, wanted, marks)


def _scan(session: Session, wanted: Wanted, marks: LowWater) -> list[Claimed]:
    claimed: list[Claimed] = []
    for lanes in marks.lanes(wanted.queues, suspects=wanted.suspects):
        claimed += _claim_lanes(session, wanted, marks, lanes, wanted.limit - len(claimed))
        if len(claimed) == wanted.limit or any(one.suspect for one in claimed):
            break
    return sorted(claimed, key=order_of(wanted.queues))


def _claim_lanes(
    session: Session,
    wanted: Wanted,
    marks: LowWater,
    lanes: Sequence[tuple[Lane, int]],
    limit: int,
) -> list[Claimed]:
    if not lanes:
        return []
    rows = session.rows(
        "claim_ready",
        worker_id=wanted.worker_id,
        queues=[lane.queue for lane, _ in lanes],
        priorities=[lane.priority for lane, _ in lanes],
        suspects=[lane.suspect for lane, _ in lanes],
        low_waters=[mark for _, mark in lanes],
        most=[1 if lane.suspect else limit for lane, _ in lanes],
        tasks=list(wanted.tasks),
        limit=limit,
        now=session.now,
    )
    for row in reversed(rows):
        marks.found(lanes[row[-1] - 1][0], row[6])
    return [Claimed(Lease(row[0], row[1], wanted.worker_id), *row[2:-1]) for row in rows]
