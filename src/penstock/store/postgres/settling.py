"""How attempts begin, pause and end on PostgreSQL: one fenced write, with its events beside it."""

from collections.abc import Sequence
from datetime import datetime

from penstock.model.events import EventType
from penstock.model.executions import Lease
from penstock.model.outcomes import SUSPENDED, Completed, Outcome
from penstock.model.states import State, SubState
from penstock.store.batches import encode_leases, encode_outcomes
from penstock.store.follow_ups import following
from penstock.store.postgres import running
from penstock.store.postgres.creating import create
from penstock.store.postgres.serials import advance
from penstock.store.postgres.session import Session
from penstock.store.postgres.waiting import leave_orphans, wake
from penstock.store.runs import outputs_of
from penstock.store.scripts import run


def settle(session: Session, outcomes: Sequence[Outcome]) -> list[Lease]:
    """One statement, and so one round trip, unless other executions depend on the end.

    Any but a completion may turn out to be a cancellation, on which depends what the task started.
    """
    serials = {outcome.serial for outcome in outcomes if outcome.serial is not None}
    run_ids = {outcome.run_id for outcome in outcomes if outcome.run_id is not None}
    others = [outcome for outcome in outcomes if not isinstance(outcome, Completed)]
    follow_ups = any(outcome.has_follow_ups for outcome in outcomes)
    if not (serials or run_ids or others or follow_ups):
        return _settle(session, outcomes)
    suspended = [one.lease.execution_id for one in others if isinstance(one, SUSPENDED)]
    with session.transaction():
        locked = running.lock(session, run_ids) if run_ids else []
        lost = _settle(session, outcomes)
        wake(session, suspended)
        running.advance(session, locked, outputs_of(outcomes, lost))
        advance(session, serials)
        return lost


def _settle(session: Session, outcomes: Sequence[Outcome]) -> list[Lease]:
    batch = encode_outcomes(outcomes)
    rows = session.rows("settle", batch=batch, now=session.now, notify=session.notify)
    settled = {row[0] for row in rows}
    ended = [outcomes[n] for n in sorted(settled) if outcomes[n].has_follow_ups]
    follow(session, [outcome.lease.execution_id for outcome in ended])
    cancelled = [outcomes[n].lease.execution_id for n, state, _ in rows if state == State.CANCELLED]
    leave_orphans(session, cancelled)
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
