"""Creating executions on PostgreSQL: the same script on our connections and on a caller's."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from penstock.model.executions import Created, NewExecution
from penstock.model.states import State
from penstock.store.batches import encode_new, encode_strings
from penstock.store.scripts import Script, Step, undone_on_error
from penstock.store.sql import Statement


def create(
    statements: Mapping[str, Statement],
    executions: Sequence[NewExecution],
    *,
    now: datetime | None,
    notify: bool,
) -> Script[list[Created]]:
    """Write the executions; answer in their order.

    One statement in the plain case. Where it takes several, an error in between, or the
    cancellation of an async caller, leaves nothing behind in the transaction.
    """
    several = len(executions) > 1 and any(new.key is not None for new in executions)
    if not several and all(new.serial is None for new in executions):
        return (yield from _write(statements, executions, now=now, notify=notify))
    script = _write(statements, executions, now=now, notify=notify)
    return (yield from undone_on_error(statements, script))


def _write(
    statements: Mapping[str, Statement],
    executions: Sequence[NewExecution],
    *,
    now: datetime | None,
    notify: bool,
) -> Script[list[Created]]:
    # Serials need their rows locked before anything is read under the lock, and a taken key
    # needs another look at who has it.
    moment = {"now": now and now.isoformat(), "notify": "yes" if notify else "no"}
    serials = sorted({new.serial for new in executions if new.serial is not None})
    if serials:
        yield Step(statements["lock_serials"], {"serials": encode_strings(serials)})

    states: dict[str, State] = {}
    holders: dict[int, Created] = {}
    first = {new.id: n for n, new in reversed(list(enumerate(executions)))}
    pending = {
        n: executions[n] for n in sorted(first.values())
    }  # an id given twice is one execution
    while pending:
        batch = encode_new(pending.values())
        held = "yes" if serials else "no"
        rows = yield Step(statements["create"], {"batch": batch, "held": held, **moment})
        asked = list(pending)
        for name, places in ((row[0], row[1]) for row in rows):
            state = State(name)
            states |= {executions[asked[int(place)]].id: state for place in places.split()}
        refused = [n for n, new in pending.items() if new.id not in states]
        if not refused:
            break
        # The holder may have finished between the two statements; then the key is free.
        batch = encode_new(pending[n] for n in refused)
        rows = yield Step(statements["holders"], {"batch": batch})
        for place, holder, state in rows:
            n = refused[place]
            holders[n] = Created(holder, created=holder == executions[n].id, state=State(state))
        pending = {n: pending[n] for n in refused if n not in holders}

    if serials:
        created_ids = [new.id for new in executions if new.id in states]
        names = {"serials": encode_strings(serials), "created": encode_strings(created_ids)}
        rows = yield Step(statements["advance_serials"], {**names, **moment})
        states |= {row[0]: State(row[1]) for row in rows}
    # A holder of this very call may have moved on since it was asked for.
    return [
        Created(taken.id, taken.created, states.get(taken.id, taken.state))
        if (taken := holders.get(first[new.id])) is not None
        else Created(new.id, created=True, state=states[new.id])
        for new in executions
    ]
