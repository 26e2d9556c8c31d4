"""How attempts begin, pause and end on SQLite: one fenced write, with its events beside it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.model.events import EventType
from penstock.model.executions import Lease
from penstock.model.outcomes import SUSPENDED, Completed, Outcome, enqueues_nothing
from penstock.model.states import State, SubState
from penstock.store.batches import encode_completed, encode_leases, encode_outcomes
from penstock.store.runs import Output, outputs_of
from penstock.store.scripts import Row, run
from penstock.store.sqlite.creating import advance, follow
from penstock.store.sqlite.running import cancel_children, go_on
from penstock.store.sqlite.together import ToBeUndone
from penstock.store.sqlite.transaction import EventRow, ReadyRow, Transaction, encode_json
from penstock.store.sqlite.waking import wake


class Settlement(NamedTuple):
    """What became of a batch."""

    lost: list[Lease]
    gave_back: bool  # something is in the outbox again, at its old place


_ALL_SETTLED = Settlement([], gave_back=False)


class SomeAreLost(ToBeUndone):
    """Not all of these leases are the newest: nothing of it may be committed."""


class _Alike(NamedTuple):
    """Completions that differ only in what `encode_completed` tells of each."""

    worker_id: str
    fence: int
    with_start: bool
    ids: list[str]
    batch: str


class Round(NamedTuple):
    """Outcomes among which no execution comes twice, encoded before anybody waits for them."""

    alike: list[_Alike]  # completions that enqueue nothing; nearly always one
    of_runs: list[Completed]  # those of them after which a run goes on
    others: list[Outcome]

    @property
    def concerns_others(self) -> bool:
        return bool(self.others or self.of_runs)


def prepare(outcomes: Sequence[Outcome]) -> list[Round]:
    return [_round(batch) for batch in _without_repetition(outcomes)]


def settle(transaction: Transaction, rounds: Sequence[Round]) -> Settlement:
    """Write how these ended.

    Raises:
        SomeAreLost: use `settle_held`, once this transaction is undone.
    """
    return _all_of([_settle_round(transaction, one) for one in rounds])


def settle_held(transaction: Transaction, outcomes: Sequence[Outcome]) -> Settlement:
    """Write how those ended whose leases are the newest; the slow way, and a rare one."""
    return _all_of([_settle_held(transaction, batch) for batch in _without_repetition(outcomes)])


def _settle_held(transaction: Transaction, outcomes: Sequence[Outcome]) -> Settlement:
    leases = [outcome.lease for outcome in outcomes]
    batch = encode_leases(leases)
    not_held = set(lost(transaction, leases, batch))
    before = {row[0] for row in transaction.rows("settled_before", batch=batch)}
    held = [outcome for outcome in outcomes if outcome.lease not in not_held]
    settlement = _settle_round(transaction, _round(held))
    gone = [lease for n, lease in enumerate(leases) if lease in not_held and n not in before]
    return settlement._replace(lost=gone + settlement.lost)


def _all_of(settlements: Sequence[Settlement]) -> Settlement:
    return Settlement(
        [lease for settlement in settlements for lease in settlement.lost],
        any(settlement.gave_back for settlement in settlements),
    )


def _without_repetition(outcomes: Sequence[Outcome]) -> Iterator[Sequence[Outcome]]:
    """Split the outcomes so that no execution comes twice in a part; nearly always one part."""
    if len({outcome.lease.execution_id for outcome in outcomes}) == len(outcomes):
        yield outcomes
        return
    rest = list(outcomes)
    while rest:
        first = {rest[n].lease.execution_id: n for n in reversed(range(len(rest)))}
        yield [rest[n] for n in sorted(first.values())]
        rest = [one for n, one in enumerate(rest) if first[one.lease.execution_id] != n]


def _round(outcomes: Sequence[Outcome]) -> Round:
    of_runs: list[Completed] = []
    others: list[Outcome] = []
    alike: dict[tuple[str, int, bool], list[Completed]] = defaultdict(list)
    for outcome in outcomes:
        if not enqueues_nothing(outcome):
            others.append(outcome)
            continue
        lease = outcome.lease
        alike[lease.worker_id, lease.fence, outcome.started_at is not None].append(outcome)
        if outcome.run_id is not None:
            of_runs.append(outcome)
    return Round([_encoded(*kind, some) for kind, some in alike.items()], of_runs, others)


def _encoded(
    worker_id: str,
    fence: int,
    with_start: bool,  # noqa: FBT001 - in the order of a key
    completed: Sequence[Completed],
) -> _Alike:
    ids = [outcome.lease.execution_id for outcome in completed]
    return _Alike(worker_id, fence, with_start, ids, encode_completed(completed))


def _settle_round(transaction: Transaction, one: Round) -> Settlement:
    for some in one.alike:
        _settle_completed(transaction, some)
    run_ids = {outcome.run_id for outcome in one.of_runs if outcome.run_id is not None}
    if run_ids:
        _go_on(transaction, run_ids, outputs_of(one.of_runs))
    return _settle_others(transaction, one.others) if one.others else _ALL_SETTLED


def _settle_completed(transaction: Transaction, some: _Alike) -> None:
    """Settle what enqueues nothing; nearly always all of it, so nobody asks which."""
    whose = {"worker_id": some.worker_id, "now": transaction.now}
    moved = transaction.count("settle_completed", batch=some.batch, fence=some.fence, **whose)
    if moved < len(some.ids):
        raise SomeAreLost
    ids = encode_json(some.ids)
    transaction.rows("tell_completed", ids=ids, with_start=some.with_start, **whose)


def _settle_others(transaction: Transaction, outcomes: Sequence[Outcome]) -> Settlement:
    batch = encode_outcomes(outcomes)
    place = {outcome.lease.execution_id: n for n, outcome in enumerate(outcomes)}
    rows = transaction.rows("settle", batch=batch, now=transaction.now)
    settled = {place[row[0]] for row in rows}
    ready = sorted(_ready_rows(rows), key=lambda row: row.seq or 0)
    transaction.fill_outbox(ready)
    if settled:
        moved = encode_json(sorted(settled))
        transaction.rows("tell_settled", batch=batch, moved=moved, now=transaction.now)
    followed = [row[0] for row in rows if outcomes[place[row[0]]].has_follow_ups]
    run(follow(transaction.statements, followed, now=transaction.now), transaction.execute)
    suspended = [one.lease.execution_id for one in outcomes if isinstance(one, SUSPENDED)]
    run(wake(transaction.statements, suspended, now=transaction.now), transaction.execute)
    cancel_children(transaction, [row[0] for row in rows if row[5] == State.CANCELLED])
    run_ids = {row[1] for row in rows if row[1] != row[0]}
    if run_ids:
        _go_on(transaction, run_ids, outputs_of(outcomes[place[row[0]]] for row in rows))
    if serials := {row[8] for row in rows if row[8] is not None}:
        run(
            advance(transaction.statements, serials, now=transaction.now),
            transaction.execute,
        )
    if len(settled) < len(outcomes):
        settled |= {row[0] for row in transaction.rows("settled_before", batch=batch)}
    lost = [outcome.lease for n, outcome in enumerate(outcomes) if n not in settled]
    return Settlement(lost, gave_back=bool(ready))


def _go_on(transaction: Transaction, run_ids: set[str], known: dict[str, Output]) -> None:
    script = go_on(transaction.statements, run_ids, known, now=transaction.now)
    run(script, transaction.execute)


def _ready_rows(rows: Sequence[Row]) -> Iterator[ReadyRow]:
    for id_, _, task, queue, priority, state, seq, suspect, _ in rows:
        if state == State.READY:
            yield ReadyRow(id_, seq, queue, priority, suspect=bool(suspect), task=task)


def start(
    transaction: Transaction, leases: Sequence[Lease], started_at: Sequence[datetime] | None
) -> list[Lease]:
    batch = encode_leases(leases, started_at)
    rows = transaction.rows("start", batch=batch, now=transaction.now)
    transaction.tell(
        [
            EventRow(root_id, id_, EventType.STARTED, None, worker_id, moment)
            for id_, root_id, worker_id, moment in _in_order(leases, rows)
        ]
    )
    return lost(transaction, leases, batch)


def change_sub_state(
    transaction: Transaction,
    leases: Sequence[Lease],
    sub_state: SubState,
    event: EventType,
    data: str | None,
) -> list[Lease]:
    batch = encode_leases(leases)
    rows = transaction.rows("change_sub_state", batch=batch, sub_state=sub_state.value)
    _tell_each(transaction, leases, rows, event, data)
    return lost(transaction, leases, batch)


def _tell_each(
    transaction: Transaction,
    leases: Sequence[Lease],
    rows: Sequence[Row],
    event: EventType,
    data: str | None,
) -> None:
    transaction.tell(
        [
            EventRow(root_id, id_, event, data, worker_id, transaction.now)
            for id_, root_id, worker_id in _in_order(leases, rows)
        ]
    )


def _in_order(leases: Sequence[Lease], rows: Sequence[Row]) -> list[Row]:
    place = {lease.execution_id: n for n, lease in enumerate(leases)}
    return sorted(rows, key=lambda row: place[row[0]])


def lost(transaction: Transaction, leases: Sequence[Lease], batch: str) -> list[Lease]:
    """Return those that are no longer the newest; `batch` is the leases, encoded."""
    held = {row[0] for row in transaction.rows("held", batch=batch)}
    return [lease for n, lease in enumerate(leases) if n not in held]
