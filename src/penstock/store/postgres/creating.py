"""Creating executions on PostgreSQL: the same script on our connections and on a caller's."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from psycopg import Rollback
from psycopg.errors import UniqueViolation

from penstock.model.executions import Created, NewExecution
from penstock.model.states import State
from penstock.store.batches import (
    encode_new,
    encode_one,
    encode_strings,
    refuse_unstorable_texts,
)
from penstock.store.postgres.arrays import text_array
from penstock.store.postgres.session import Session
from penstock.store.scripts import Row, Script, Step, undone_on_error
from penstock.store.sql import Statement

IN_A_STATEMENT = 1_000

# What executions of one call have in common nearly always, and what `create_ready` calls it where
# they do not.
_TOLD_ONCE = {
    "task": "tasks",
    "queue": "queues",
    "priority": "priorities",
    "max_crashes": "crashes",
    "follow_ups": "follows",
    "trace": "traces",
}


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
    if len(executions) == 1 and executions[0].is_free:
        one = executions[0]
        if (yield Step(statements["create_one"], {**encode_one(one), **_moment(now, notify)})):
            return [Created(one.id, created=True, state=State.READY)]
    several = len(executions) > 1 and any(new.key is not None for new in executions)
    if not several and all(new.serial is None for new in executions):
        return (yield from _write(statements, executions, now=now, notify=notify))
    script = _write(statements, executions, now=now, notify=notify)
    return (yield from undone_on_error(statements, script))


def create_fresh(session: Session, new: NewExecution, *, notify: bool) -> list[Created] | None:
    """Write one that nothing holds back. None if it is there already: then nothing was written."""
    parameters = {**encode_one(new), **_moment(session.now, notify)}
    try:
        session.rows("create_fresh", **parameters)
    except UniqueViolation:
        return None
    return [Created(new.id, created=True, state=State.READY)]


def create_ready(
    session: Session, executions: Sequence[NewExecution], *, notify: bool
) -> list[Created] | None:
    """The same for several, in one statement."""
    parameters = {**_encode_ready(executions), **_moment(session.now, notify)}
    try:
        session.rows("create_ready", **parameters)
    except UniqueViolation:
        return None
    return _all_ready(executions)


def create_many(
    session: Session, executions: Sequence[NewExecution], *, notify: bool
) -> list[Created] | None:
    """Write thousands that have neither key nor serial, in one transaction of many statements.

    While the server writes one part, the next is prepared. None if one of them is there already,
    or twice in the call: then nothing has been written.
    """
    if len({new.id for new in executions}) < len(executions):
        return None
    parts = [
        _Part(session, executions[first : first + IN_A_STATEMENT], notify=notify)
        for first in range(0, len(executions), IN_A_STATEMENT)
    ]
    created: list[Created] = []
    try:
        with session.connection.pipeline(), session.transaction() as transaction:
            for part in parts:
                part.send()
            for part in parts:
                answers = part.answers()
                if answers is None:
                    raise Rollback(transaction)
                created += answers
    except UniqueViolation:
        return None
    return created if len(created) == len(executions) else None


class _Part:
    """What one statement of many writes."""

    def __init__(
        self, session: Session, executions: Sequence[NewExecution], *, notify: bool
    ) -> None:
        self._session = session
        self._executions = executions
        self._notify = notify
        self._ready = all(new.is_free for new in executions)

    def send(self) -> None:
        moment = _moment(self._session.now, self._notify)
        if self._ready:
            values = _encode_ready(self._executions)
            self._cursor = self._session.send("create_ready", **values, **moment)
        else:
            batch = encode_new(self._executions)
            self._cursor = self._session.send("create", **batch, held="no", **moment)

    def answers(self) -> list[Created] | None:
        """Wait for it to be written; None if one of them is there already."""
        rows = self._cursor.fetchall()
        if self._ready:
            return _all_ready(self._executions)
        states = dict(_states(rows))
        if len(states) < len(self._executions):
            return None
        return [Created(new.id, True, states[n]) for n, new in enumerate(self._executions)]  # noqa: FBT003


def _all_ready(executions: Sequence[NewExecution]) -> list[Created]:
    return [Created(new.id, True, State.READY) for new in executions]  # noqa: FBT003


def _encode_ready(executions: Sequence[NewExecution]) -> dict[str, str | None]:
    """Return parameters: an array for each column, or what all of them have there."""
    columns: list[list[str | int | None]] = [
        [getattr(new, name) for new in executions] for name in _TOLD_ONCE
    ]
    ids = [new.id for new in executions]
    args = [new.args for new in executions]
    names = {value for column in columns for value in column if isinstance(value, str)}
    refuse_unstorable_texts([*ids, *args, *names])
    parameters: dict[str, str | None] = {"ids": text_array(ids), "args": text_array(args)}
    for (name, plural), column in zip(_TOLD_ONCE.items(), columns, strict=True):
        shared = column.count(column[0]) == len(column)
        parameters[name] = _as_text(column[0]) if shared else None
        parameters[plural] = "{}" if shared else text_array(map(_as_text, column))
    return parameters


def _as_text(value: str | int | None) -> str | None:
    return None if value is None else str(value)


def _moment(now: datetime | None, notify: bool) -> dict[str, str | None]:  # noqa: FBT001
    return {"now": None if now is None else now.isoformat(), "notify": "yes" if notify else "no"}


def _states(rows: Sequence[Row]) -> Iterator[tuple[int, State]]:
    """Take apart what `create` answers: places in the batch, by the state that they got."""
    for name, places, _ in rows:
        state = State(name)
        for place in places.split():
            yield int(place) - 1, state


def _write(
    statements: Mapping[str, Statement],
    executions: Sequence[NewExecution],
    *,
    now: datetime | None,
    notify: bool,
) -> Script[list[Created]]:
    # Serials need their rows locked before anything is read under the lock, and a taken key
    # needs another look at who has it.
    moment = _moment(now, notify)
    serials = sorted({new.serial for new in executions if new.serial is not None})
    if serials:
        yield Step(statements["lock_serials"], {"serials": encode_strings(serials)})

    states: dict[str, State] = {}
    holders: dict[int, Created] = {}
    first = {new.id: n for n, new in reversed(list(enumerate(executions)))}
    pending = sorted(first.values())  # an id given twice is one execution
    while pending:
        batch = encode_new([executions[n] for n in pending])
        held = "yes" if serials else "no"
        rows = yield Step(statements["create"], {**batch, "held": held, **moment})
        states |= {executions[pending[place]].id: state for place, state in _states(rows)}
        refused = [n for n in pending if executions[n].id not in states]
        if not refused:
            break
        # The holder may have finished between the two statements; then the key is free.
        batch = encode_new([executions[n] for n in refused])
        rows = yield Step(statements["holders"], {"batch": batch["batch"], "task": batch["task"]})
        for place, holder, state in rows:
            n = refused[place - 1]
            holders[n] = Created(holder, created=holder == executions[n].id, state=State(state))
        pending = [n for n in refused if n not in holders]

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
