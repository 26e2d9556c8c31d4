"""Retention on SQLite: what has ended long ago is found without the write lock, then removed."""

from datetime import timedelta
from typing import NamedTuple

import msgspec

from penstock.store.batches import encode_strings
from penstock.store.decoding import LOWEST_ID
from penstock.store.ranges import behind, encode_ranges
from penstock.store.sqlite.transaction import Transaction


class Old(msgspec.Struct, frozen=True):
    """How old is old enough, and which part of it to look at."""

    older_than: timedelta
    after: str | None
    limit: int

    def before(self, view: Transaction) -> int:
        return view.now - self.older_than // timedelta(microseconds=1)

    def made_before(self, view: Transaction) -> str:
        made_before = f"{max(self.before(view), 0) // 1000:012x}"
        return f"{made_before[:8]}-{made_before[8:]}-0000-0000-000000000000"


class Batch(NamedTuple):
    """What can go, and where to look next (None: nowhere)."""

    ids: list[str]
    next: str | None
    runs: tuple[str, ...] = ()  # each with all of its tasks


def executions(view: Transaction, old: Old) -> Batch:
    rows = view.rows(
        "sweepable",
        after=old.after or LOWEST_ID,
        before=old.before(view),
        made_before=old.made_before(view),
        limit=old.limit,
    )
    ids = [id_ for id_, root_id in rows if id_ == root_id]
    runs = dict.fromkeys(root_id for id_, root_id in rows if id_ != root_id)
    return Batch(ids, behind(*rows[-1]) if len(rows) == old.limit else None, tuple(runs))


def count(view: Transaction, batch: Batch) -> int:
    ((tasks,),) = view.rows("count_tasks_of", runs=encode_ranges(batch.runs))
    return len(batch.ids) + len(batch.runs) + int(tasks)


def sweep(transaction: Transaction, old: Old, batch: Batch) -> int:
    before = old.before(transaction)
    gone = transaction.rows("sweep", ids=encode_strings(batch.ids), before=before)
    runs: list[str] = []
    if batch.runs:
        rows = transaction.rows("sweep_runs", ids=encode_strings(batch.runs), before=before)
        runs = [row[0] for row in rows]
        gone += transaction.rows("sweep_tasks_of", runs=encode_ranges(runs))
    for beside in ("sweep_once_ledger", "sweep_step_results", "sweep_signals"):
        transaction.rows(beside, ids=encode_strings([row[0] for row in gone]))
    return len(gone) + len(runs)


def roots(view: Transaction, old: Old) -> Batch:
    after, made_before = old.after or LOWEST_ID, old.made_before(view)
    reached = view.rows("events_to_look_at", after=after, made_before=made_before, limit=old.limit)
    upto = reached[0][0] if reached else None
    found = view.rows(
        "roots_to_forget", after=after, upto=upto or made_before, before=old.before(view)
    )
    return Batch([row[0] for row in found], upto)


def count_events(view: Transaction, batch: Batch) -> int:
    ((count,),) = view.rows("count_events_of", roots=encode_strings(batch.ids))
    return int(count)


def sweep_events(transaction: Transaction, old: Old, batch: Batch) -> int:
    transaction.rows(
        "sweep_events", roots=encode_strings(batch.ids), before=old.before(transaction)
    )
    ((removed,),) = transaction.rows("changed_rows")
    return int(removed)
