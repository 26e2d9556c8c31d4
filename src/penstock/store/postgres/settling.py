"""How attempts begin, pause and end on PostgreSQL: one fenced write, with its events beside it."""

from collections.abc import Collection, Sequence
from datetime import datetime

from penstock.model.events import EventType
from penstock.model.executions import Lease
from penstock.model.outcomes import Outcome
from penstock.model.states import SubState
from penstock.store.batches import encode_leases, encode_outcomes, encode_strings
from penstock.store.follow_ups import following
from penstock.store.postgres.creating import create
from penstock.store.postgres.session import Session
from penstock.store.scripts import run


def settle(session: Session, outcomes: Sequence[Outcome]) -> list[Lease]:
    """One statement, and so one round trip, unless other executions depend on the end."""
    serials = {outcome.serial for outcome in outcomes if outcome.serial is not None}
    if not serials and not any(outcome.has_follow_ups for outcome in outcomes):
        return _settle(session, outcomes)
    with session.transaction():
        lost = _settle(session, outcomes)
        advance(session, serials)
        return lost


def _settle(session: Session, outcomes: Sequence[Outcome]) -> list[Lease]:
    batch = encode_outcomes(outcomes)
    rows = session.rows("settle", batch=batch, now=session.now, notify=session.notify)
    settled = {row[0] for row in rows}
    ended = [outcomes[n] for n in sorted(settled) if outcomes[n].has_follow_ups]
    follow(session, [outcome.lease.execution_id for outcome in ended])
    if len(settled) < len(outcomes):
        settled |= {row[0] for row in session.rows("settled_before", batch=batch)}
    return [outcome.lease for n, outcome in enumerate(outcomes) if n not in settled]


def start(
    session: Session, leases: Sequence[Lease], started_at: Sequence[datetime] | None
) -> list[Lease]:
    batch = encode_leases(leases, started_at)
    session.rows("start", batch=batch, now=session.now)
    return lost(session, leases, batch)


def change_sub_state(
    session: Session,
    leases: Sequence[Lease],
    sub_state: SubState,
    event: EventType,
    data: str | None,
) -> list[Lease]:
    batch = encode_leases(leases)
    session.rows(
        "change_sub_state",
        batch=batch,
        sub_state=sub_state.value,
        event=event.value,
        data=data,
        now=session.now,
    )
    return lost(session, leases, batch)


def lost(session: Session, leases: Sequence[Lease], batch: str) -> list[Lease]:
    """Return those that are no longer the newest; `batch` is the leases, encoded."""
    held = {row[0] for row in session.rows("held", batch=batch)}
    return [lease for n, lease in enumerate(leases) if n not in held]


def follow(session: Session, ended: Sequence[str]) -> None:
    """Enqueue what follows these ends, in the transaction that ended them."""
    if ended and (found := following(session.rows("ended", ids=ended))):
        script = create(session.statements, found, now=session.now, notify=session.notify)
        run(script, session.execute)


def advance(session: Session, serials: Collection[str]) -> None:
    """Let the heads of these serials go; leave to others those that a caller is adding to."""
    if not serials:
        return
    wanted = sorted(serials)
    locked = [row[0] for row in session.rows("try_lock_serials", serials=wanted)]
    if locked:
        session.rows(
            "advance_serials",
            serials=encode_strings(locked),
            created="[]",
            now=session.now and session.now.isoformat(),
            notify="yes" if session.notify else "no",
        )
        session.rows("forget_empty_serials", serials=locked)
    if in_use := sorted(set(wanted) - set(locked)):
        session.rows("leave_propagations", serials=in_use)
