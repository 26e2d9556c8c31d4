"""What tasks remember and wait for on SQLite."""

from collections.abc import Mapping, Sequence

from penstock.errors import LeaseLost
from penstock.model.executions import Lease, SignalAnswer, StepDone
from penstock.model.runs import NewRun
from penstock.store.batches import encode_leases, encode_steps
from penstock.store.remembering import answer_to_signal, asked_for
from penstock.store.scripts import Script, Step, run, undone_on_error
from penstock.store.sql import Statement
from penstock.store.sqlite.running import Writer, go_on
from penstock.store.sqlite.transaction import Transaction
from penstock.store.sqlite.waking import wake
from penstock.store.starting import start


def store_steps(transaction: Transaction, steps: Sequence[StepDone]) -> list[Lease]:
    transaction.rows("store_steps", batch=encode_steps(steps), now=transaction.now)
    batch = encode_leases([step.lease for step in steps])
    held = {row[0] for row in transaction.rows("held", batch=batch)}
    return [step.lease for n, step in enumerate(steps) if n not in held]


def start_child(transaction: Transaction, lease: Lease, step: str, child: NewRun) -> str:
    id_ = lease.execution_id
    held = transaction.rows("holds_lease", id=id_, fence=lease.fence, worker_id=lease.worker_id)
    if not held:
        raise LeaseLost(id_, doing="start a workflow")
    result = f'"{child.id}"'
    if not transaction.rows("remember", id=id_, name=step, result=result, now=transaction.now):
        ((first,),) = transaction.rows("remembered", id=id_, name=step)
        return asked_for(first)
    writer = Writer(transaction.statements, now=transaction.now)
    run(start(writer, [child]), transaction.execute)
    return child.id


def signal(
    statements: Mapping[str, Statement],
    execution_id: str,
    name: str,
    data: str,
    *,
    now: int,
) -> Script[SignalAnswer]:
    script = _signal(statements, execution_id, name, data, now)
    return (yield from undone_on_error(statements, script))


def _signal(
    statements: Mapping[str, Statement], execution_id: str, name: str, data: str, now: int
) -> Script[SignalAnswer]:
    rows = yield Step(statements["standing_of"], {"id": execution_id})
    if not rows:
        return "unknown"
    live = rows[0][0] is None
    told = {"id": execution_id, "name": name, "data": data, "now": now}
    if not live or not (yield Step(statements["signal"], told)):
        before = yield Step(statements["signalled"], {"id": execution_id, "name": name})
        return answer_to_signal(data, before, live=live)
    around = yield from wake(statements, [execution_id], now=now)
    # What is let go in a paused run is held there.
    yield from go_on(statements, around, now=now)
    return "told"
