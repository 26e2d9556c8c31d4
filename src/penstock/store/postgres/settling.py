"""How attempts begin, pause and end on PostgreSQL: one fenced write, with its events beside it."""

from collections.abc import Sequence
from datetime import datetime

from penstock.model.events import EventType
from penstock.model.executions import Lease
from penstock.model.outcomes import SUSPENDED, Completed, Outcome, concerns_nobody
from penstock.model.states import State, SubState
from penstock.store.batches import encode_completed_by_name, encode_leases, encode_outcomes
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
    plain = [outcome for outcome in outcomes if concerns_nobody(outcome)]
    if len(plain) == len(outcomes) and len({one.lease.worker_id for one in plain}) == 1:
        return _settle_completed(session, plain)
    serials = {outcome.serial for outcome in outcomes if outcome.serial is not None}
    run_ids = {outcome.run_id for outcome in outcomes if outcome.run_id is not None}
    suspended = [one.lease.execution_id for one in outcomes if isinstance(one, SUSPENDED)]
    with session.transaction():
        locked = running.lock(session, run_ids) if run_ids else []
        lost = _settle(session, outcomes)
        wake(session, suspended)
        running.advance(session, locked, outputs_of(outcomes, lost))
        advance(session, serials)
        return lost


def _settle_completed(session: Session, completed: Sequence[Completed]) -> list[Lease]:
    """Settle what concerns nobody else; nearly always all of it, so nobody asks which."""
    ((moved,),) = session.rows(
        "settle_completed",
        worker_id=completed[0].lease.worker_id,
        batch=encode_completed_by_name(completed),
        now=session.now,
    )
    if moved == len(completed):
        return []
    leases = [outcome.lease for outcome in completed]
    settled = {row[0] for row in session.rows("settled_before", batch=encode_leases(leases))}
    return [lease for n, lease in enumerate(leases) if n not in settled]


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
