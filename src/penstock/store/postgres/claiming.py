"""Handing out tasks on PostgreSQL: one statement in the steady state."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from penstock.model.executions import Claimed, Lease
from penstock.store.low_water import Lane, LowWater
from penstock.store.postgres.arrays import array, names_array, text_array
from penstock.store.postgres.session import Session

Lanes = tuple[Lane, ...]


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
    """One statement, unless several lanes have suspects: of those only one is handed out."""
    claimed: list[Claimed] = []
    ahead = marks.lanes(wanted.queues, suspects=wanted.suspects)
    while ahead and len(claimed) < wanted.limit:
        lanes, ahead = _until_next_suspect(ahead)
        claimed += _claim_lanes(session, wanted, marks, lanes, wanted.limit - len(claimed))
        if ahead and any(one.suspect for one in claimed):
            ahead = tuple(lane for lane in ahead if not lane.suspect)
    return claimed


@lru_cache(maxsize=32)  # the same ones, claim after claim
def _until_next_suspect(lanes: Lanes) -> tuple[Lanes, Lanes]:
    """Split before the second lane of suspects: whether it has a turn depends on the first."""
    suspicious = [place for place, lane in enumerate(lanes) if lane.suspect]
    split = suspicious[1] if len(suspicious) > 1 else len(lanes)
    return lanes[:split], lanes[split:]


def _claim_lanes(
    session: Session,
    wanted: Wanted,
    marks: LowWater,
    lanes: Lanes,
    limit: int,
) -> list[Claimed]:
    queues, priorities, suspects = _arrays(lanes)
    rows = session.rows(
        "claim_ready",
        worker_id=wanted.worker_id,
        queues=queues,
        priorities=priorities,
        suspects=suspects,
        low_waters=array(map(marks.mark, lanes)),
        most=array([1 if lane.suspect else limit for lane in lanes]),
        tasks=names_array(wanted.tasks),
        limit=limit,
        now=session.now,
    )
    claimed = [Claimed(Lease(row[0], row[1], wanted.worker_id), *row[2:]) for row in rows]
    return _in_turn(claimed, marks, lanes)


@lru_cache(maxsize=32)
def _arrays(lanes: Lanes) -> tuple[str, str, str]:
    """Queues, priorities, and which ones are suspect."""
    queues, priorities, suspects = zip(*lanes, strict=True)
    return text_array(queues), array(priorities), array(suspects)


def _in_turn(claimed: list[Claimed], marks: LowWater, lanes: Lanes) -> list[Claimed]:
    """Order by lane, and within each by sequence as they come; remember where each began."""
    if len(lanes) == 1:
        if claimed:
            marks.found(lanes[0], claimed[0].seq)
        return claimed
    by_lane: dict[Lane, list[Claimed]] = {lane: [] for lane in lanes}
    for one in claimed:
        by_lane.setdefault(Lane(one.queue, one.priority, one.suspect), []).append(one)
    for lane, ones in reversed(by_lane.items()):
        if ones:
            marks.found(lane, ones[0].seq)
    return [one for ones in by_lane.values() for one in ones]
