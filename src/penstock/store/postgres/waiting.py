"""What tasks remember and wait for on PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from penstock.errors import LeaseLost
from penstock.model.executions import Lease, SignalAnswer, StepDone
from penstock.model.runs import NewRun
from penstock.store.batches import encode_steps
from penstock.store.postgres.session import Session
from penstock.store.remembering import answer_to_signal, asked_for
from penstock.store.runs import RunWriter
from penstock.store.scripts import Script, Step, run
from penstock.store.sql import Statement
from penstock.store.starting import start


def store_steps(session: Session, steps: Sequence[StepDone]) -> list[Lease]:
    rows = session.rows("store_steps", batch=encode_steps(steps), now=session.now)
    held = {row[0] for row in rows}
    return [step.lease for n, step in enumerate(steps) if n not in held]


def start_child(session: Session, writer: RunWriter, lease: Lease, step: str, child: NewRun) -> str:
    with session.transaction():
        if not session.rows("hold_lease", **_named(lease)):
            raise LeaseLost(lease.execution_id, doing="start a workflow")
        named = {"id": lease.execution_id, "name": step}
        begun = session.rows("remember", **named, result=f'"{child.id}"', now=session.now)
        if not begun:
            ((result,),) = session.rows("remembered", **named)
            return asked_for(result)
        run(start(writer, [child]), session.execute)
        return child.id


def signal(
    statements: Mapping[str, Statement],
    execution_id: str,
    name: str,
    data: str,
    *,
    now: datetime | None,
    notify: bool,
) -> Script[SignalAnswer]:
    parameters = {
        "id": execution_id,
        "name": name,
        "data": data,
        "now": now and now.isoformat(),
        "notify": "yes" if notify else "no",
    }
    ((told, live, known, _),) = yield Step(statements["signal"], parameters)
    if told:
        return "told"
    if not known:
        return "unknown"
    before = yield Step(statements["signalled"], {"id": execution_id, "name": name})
    return answer_to_signal(data, before, live=live)


def wake(session: Session, ids: Sequence[str]) -> None:
    """Make ready what of these has what it waits for. Needs the lock on them."""
    if ids:
        session.rows("wake_tasks", ids=list(ids), now=session.now, notify=session.notify)


def wake_free(session: Session, ids: Sequence[str]) -> int:
    """Do the same for those that nobody has locked, and return how many; leave word for others."""
    free = [row[0] for row in session.rows("not_locked", ids=list(ids))]
    wake(session, free)
    if in_use := sorted(set(ids) - set(free)):
        session.rows("leave_task_wakes", ids=in_use)
    return len(free)


def leave_orphans(session: Session, cancelled: Collection[str]) -> None:
    """Leave word that what these tasks have started, and has not ended, is to be cancelled."""
    if cancelled:
        session.rows("leave_orphans", ids=sorted(cancelled), notify=session.notify)


def _named(lease: Lease) -> dict[str, object]:
    return {"id": lease.execution_id, "fence": lease.fence, "worker_id": lease.worker_id}
