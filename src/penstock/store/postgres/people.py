"""What people do to executions on PostgreSQL: cancel them, or give them a new life."""

from collections.abc import Sequence

from penstock.errors import KeyTaken
from penstock.model.states import FINAL, State
from penstock.store.batches import encode_strings, event_data
from penstock.store.postgres.serials import advance
from penstock.store.postgres.session import Session
from penstock.store.postgres.waiting import leave_orphans
from penstock.store.scripts import Row


def cancel(
    session: Session, ids: Sequence[str], *, reason: str | None, last_try: bool
) -> dict[str, State] | None:
    """Return the states that were found, or None when it has to be tried again.

    Runs that they are part of go on with the next propagation: their rows come first in the
    order of locks, and it is too late for that here.
    """
    with session.transaction():
        states = withdraw(session, ids, reason=reason, last_try=last_try)
        if states is not None:
            session.rows("leave_run_propagations", ids=ids)
        return states


def withdraw(
    session: Session, ids: Sequence[str], *, reason: str | None, last_try: bool
) -> dict[str, State] | None:
    """Do the same in a transaction that is open, and leave no word for the runs around them.

    But word is left for the runs that they have started, each of which is to be cancelled in a
    transaction of its own.
    """
    withdrawn = {row[0] for row in session.rows("lock_outbox", ids=ids)}
    tasks = session.rows("lock_tasks", ids=ids)
    states = {row[0]: State(row[1]) for row in tasks}
    ready = {id_ for id_, state in states.items() if state is State.READY}
    if ready - withdrawn and not last_try:
        # Promoted between the two locks. A claim may hold the new outbox row and
        # wait for the task: taking it now would be the wrong order. If that is so every
        # time, somebody has removed the outbox row by hand, and nobody waits for it.
        return None
    data = event_data(reason=reason)
    gone = {row[0] for row in session.rows("cancel", ids=ids, data=data, now=session.now)}
    session.rows("request_cancel", ids=ids, data=data, now=session.now, notify=session.notify)
    advance(session, {row[4] for row in tasks if row[0] in gone and row[4] is not None})
    leave_orphans(session, gone)
    return states


def rerun(session: Session, ids: Sequence[str]) -> dict[str, State]:
    """Return the states that the executions were in."""
    with session.transaction():
        serials = sorted(row[0] for row in session.rows("serials_of", ids=ids))
        if serials:
            session.rows("lock_serials", serials=encode_strings(serials))
        tasks = session.rows("lock_tasks", ids=ids)
        _refuse_common_keys(tasks)
        for execution_id, key, holder in session.rows("key_holders", ids=ids):
            raise KeyTaken(execution_id, key=key, holder=holder)
        session.rows("rerun", ids=ids, now=session.now, notify=session.notify)
        advance(session, serials)
        return {row[0]: State(row[1]) for row in tasks}


def _refuse_common_keys(tasks: Sequence[Row]) -> None:
    """Two finished executions of one key cannot both live again."""
    holders: dict[tuple[str, str], str] = {}
    for execution_id, state, task, key, *_ in tasks:
        if key is not None and State(state) in FINAL:
            holder = holders.setdefault((task, key), execution_id)
            if holder != execution_id:
                raise KeyTaken(execution_id, key=key, holder=holder)
