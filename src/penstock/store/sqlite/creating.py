"""Creating executions on SQLite: the same script on our connection and on a caller's.

A single one that nothing holds back needs no script on ours: see `create_one_at_once`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.errors import StoreRefused
from penstock.model.events import EventType
from penstock.model.executions import Created, NewExecution
from penstock.model.states import State
from penstock.store.batches import (
    encode_new,
    encode_one,
    encode_strings,
    event_data,
    moment_at,
)
from penstock.store.follow_ups import following
from penstock.store.scripts import Script, Step, undone_on_error
from penstock.store.sql import Statement
from penstock.store.sqlite.transaction import EventRow, ReadyRow, encode_json

_LEAST, _MOST = -(2**31), 2**31 - 1


class _Written(NamedTuple):
    id: str
    root_id: str
    task: str
    queue: str
    priority: int
    state: State
    run_at: int | None


def create(
    statements: Mapping[str, Statement],
    executions: Sequence[NewExecution],
    *,
    now: int,
) -> Script[list[Created]]:
    """Write the executions in the caller's transaction; answer in their order.

    All or none: an error leaves the transaction as it was, and usable.
    """
    if not executions:
        return []
    script = write_executions(statements, executions, now=now)
    return (yield from undone_on_error(statements, script))


def write_executions(
    statements: Mapping[str, Statement], executions: Sequence[NewExecution], *, now: int
) -> Script[list[Created]]:
    """Write the executions; answer in their order. An error may leave half of them behind."""
    if len(executions) == 1 and executions[0].is_free:
        one = executions[0]
        values = {**encode_one(one), "now": now}
        if (yield Step(statements["create_one"], values)):
            yield Step(statements["create_one_place"], values)
            yield Step(statements["create_one_history"], values)
            return [Created(one.id, created=True, state=State.READY)]
    rows = yield Step(statements["create"], {**encode_new(executions), "now": now})
    fate = {row[0]: (State(row[1]), row[2]) for row in rows}
    written = [
        _Written(new.id, new.id, new.task, new.queue, new.priority, *fate[new.id])
        for new in {new.id: new for new in reversed(executions)}.values()
        if new.id in fate
    ]
    written.reverse()

    # The heads of serials go with the others, so that the outbox follows the call.
    heads: dict[str, _Written] = {}
    if serials := sorted({new.serial for new in executions if new.serial is not None}):
        heads = yield from _move_heads(statements, serials, now=now)
    written = [heads.pop(one.id, one) for one in written]
    yield from _let_go(statements, written, now=now, new=True)
    yield from _let_go(statements, list(heads.values()), now=now, new=False)
    states = {one.id: one.state for one in written}

    holders: dict[int, Created] = {}
    if refused := [n for n, new in enumerate(executions) if new.id not in states]:
        asked = encode_new([executions[n] for n in refused])
        parameters = {"batch": asked["batch"], "task": asked["task"]}
        for place, holder, state in (yield Step(statements["holders"], parameters)):
            n = refused[place]
            holders[n] = Created(holder, created=holder == executions[n].id, state=State(state))
    return [
        holders.get(n) or Created(new.id, created=True, state=states[new.id])
        for n, new in enumerate(executions)
    ]


def refuse_long_numbers(executions: Sequence[NewExecution]) -> None:
    """Refuse what PostgreSQL has no room for: a caller's connection checks it, ours does not.

    Raises:
        StoreRefused: a priority or a number of crashes has more than 31 bits.
    """
    for new in executions:
        if not (_LEAST <= new.priority <= _MOST and _LEAST <= new.max_crashes <= _MOST):
            doing = "store an execution"
            longest = max(new.priority, new.max_crashes, key=abs)
            raise StoreRefused(doing, because=ValueError(f"{longest} has more than 31 bits"))


def follow(statements: Mapping[str, Statement], ended: Sequence[str], *, now: int) -> Script[None]:
    """Enqueue what follows these ends, in the transaction that ended them."""
    if ended:
        rows = yield Step(statements["ended"], {"ids": encode_strings(ended)})
        if found := following(rows):
            refuse_long_numbers(found)
            yield from write_executions(statements, found, now=now)


def advance(
    statements: Mapping[str, Statement], serials: Collection[str], *, now: int
) -> Script[None]:
    """Let the head of each of these serials go, if it waits."""
    heads = yield from _move_heads(statements, serials, now=now)
    yield from _let_go(statements, list(heads.values()), now=now, new=False)


def _move_heads(
    statements: Mapping[str, Statement], serials: Collection[str], *, now: int
) -> Script[dict[str, _Written]]:
    parameters = {"serials": encode_strings(sorted(serials)), "now": now}
    rows = yield Step(statements["advance_serials"], parameters)
    return {row[0]: _Written(*row)._replace(state=State(row[5])) for row in sorted(rows)}


def _let_go(
    statements: Mapping[str, Statement], written: Sequence[_Written], *, now: int, new: bool
) -> Script[None]:
    """Put what is ready into the outbox, and tell what happened."""
    ready = [
        ReadyRow(one.id, None, one.queue, one.priority, suspect=False, task=one.task)
        for one in written
        if one.state is State.READY
    ]
    if ready:
        yield Step(statements["fill_outbox"], {"batch": encode_json(ready)})
    if written:
        events = [event for one in written for event in _events_of(one, now=now, new=new)]
        yield Step(statements["tell"], {"batch": encode_json(events)})


def _events_of(one: _Written, *, now: int, new: bool) -> Iterator[EventRow]:
    if new:
        yield EventRow(one.root_id, one.id, EventType.CREATED, None, None, now)
    if one.state is State.READY:
        yield EventRow(one.root_id, one.id, EventType.MARKED_READY, None, None, now)
    elif one.state is State.SCHEDULED and one.run_at is not None:
        data = event_data(run_at=in_iso(one.run_at))
        yield EventRow(one.root_id, one.id, EventType.SCHEDULED, data, None, now)


def in_iso(microseconds: int) -> str:
    """Write a moment as PostgreSQL does."""
    return moment_at(microseconds).isoformat(timespec="microseconds")
