"""Letting tasks go on that have what they waited for, on SQLite."""

from collections.abc import Mapping, Sequence

from penstock.model.events import EventType
from penstock.store.batches import encode_strings
from penstock.store.scripts import Script, Step
from penstock.store.sql import Statement
from penstock.store.sqlite.transaction import EventRow, ReadyRow, encode_json


def wake(statements: Mapping[str, Statement], ids: Sequence[str], *, now: int) -> Script[set[str]]:
    """Make ready what of these has what it waits for; return the runs they are part of."""
    if not ids:
        return set()
    moved = sorted((yield Step(statements["wake_tasks"], {"ids": encode_strings(ids)})))
    if not moved:
        return set()
    ready = [
        ReadyRow(id_, None, queue, priority, suspect=bool(suspect), task=task)
        for id_, _, task, queue, priority, suspect in moved
    ]
    events = [EventRow(row[1], row[0], EventType.MARKED_READY, None, None, now) for row in moved]
    yield Step(statements["fill_outbox"], {"batch": encode_json(ready)})
    yield Step(statements["tell"], {"batch": encode_json(events)})
    return {root_id for id_, root_id, *_ in moved if root_id != id_}
