"""What people do to executions on SQLite: cancel and rerun them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.errors import KeyTaken
from penstock.model.events import EventType
from penstock.model.states import State
from penstock.store.batches import encode_strings, event_data
from penstock.store.scripts import Row, run
from penstock.store.sqlite.creating import advance
from penstock.store.sqlite.transaction import EventRow, ReadyRow, Transaction


class Withdrawn(NamedTuple):
    """What became of a request to cancel."""

    states: dict[str, State]  # in which they were found
    gone: list[str]  # those that ended at once
    around: set[str]  # the runs that have to be looked at


def withdraw(transaction: Transaction, ids: Sequence[str], *, reason: str | None) -> Withdrawn:
    wanted = encode_strings(sorted(set(ids)))
    tasks = transaction.rows("tasks", ids=wanted)
    states = {row[0]: State(row[1]) for row in tasks}
    transaction.rows("withdraw", ids=wanted)
    moved = sorted(transaction.rows("cancel", ids=wanted, now=transaction.now))
    asked = sorted(transaction.rows("request_cancel", ids=wanted))
    data = event_data(reason=reason)
    transaction.tell(
        [
            *_told(moved, EventType.CANCELLED, data, at=transaction.now),
            *_told(asked, EventType.CANCEL_REQUESTED, data, at=transaction.now),
        ]
    )
    _advance_serials_of(transaction, moved)
    around = {root_id for id_, root_id, _ in moved if root_id != id_}
    return Withdrawn(states, [id_ for id_, _, _ in moved], around)


def _told(
    rows: Sequence[Row], event: EventType, data: str | None, *, at: int
) -> Iterator[EventRow]:
    for id_, root_id, *_ in rows:
        yield EventRow(root_id, id_, event, data, None, at)


def rerun(transaction: Transaction, ids: Sequence[str]) -> dict[str, State]:
    """Return the states in which the executions were found."""
    wanted = encode_strings(sorted(set(ids)))
    tasks = transaction.rows("tasks", ids=wanted)
    _refuse_taken_keys(transaction, wanted, tasks)
    moved = sorted(transaction.rows("rerun", ids=wanted))
    ready, events = [], []
    for id_, root_id, task, queue, priority, state, _ in moved:
        events.append(EventRow(root_id, id_, EventType.RERUN, None, None, transaction.now))
        if state == State.READY:
            ready.append(ReadyRow(id_, None, queue, priority, suspect=False, task=task))
            events.append(
                EventRow(root_id, id_, EventType.MARKED_READY, None, None, transaction.now)
            )
    transaction.rows("wait_anew", ids=encode_strings([row[0] for row in moved]))
    transaction.fill_outbox(ready)
    transaction.tell(events)
    _advance_serials_of(transaction, moved)
    return {row[0]: State(row[1]) for row in tasks}


def _refuse_taken_keys(transaction: Transaction, wanted: str, tasks: Sequence[Row]) -> None:
    for execution_id, key, holder in transaction.rows("key_holders", ids=wanted):
        raise KeyTaken(execution_id, key=key, holder=holder)
    # Two finished executions may have had the same key, one after the other.
    first: dict[tuple[str, str], str] = {}
    for id_, _, task, key, _, finished_at in tasks:
        if key is None or finished_at is None:
            continue
        if first.setdefault((task, key), id_) != id_:
            raise KeyTaken(id_, key=key, holder=first[task, key])


def _advance_serials_of(transaction: Transaction, moved: Sequence[Row]) -> None:
    if serials := {row[-1] for row in moved if row[-1] is not None}:
        run(advance(transaction.statements, serials, now=transaction.now), transaction.execute)
