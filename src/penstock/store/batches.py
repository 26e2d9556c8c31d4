"""Batches as JSON: one text parameter carries any number of rows through any driver.

Both databases unpack it in the statement itself, so a batch of a thousand is one
statement, and the caller's codecs and row factories never see it.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import assert_never, overload

import msgspec

from penstock.errors import StoreRefused
from penstock.model.executions import Lease, NewExecution, StepDone
from penstock.model.outcomes import (
    EVENT_OF,
    Cancelled,
    Completed,
    DeferredFor,
    Failed,
    Outcome,
    Released,
    RetryScheduled,
    Suspended,
    SuspendedFor,
)
from penstock.model.states import State, next_state

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_encode = msgspec.json.Encoder().encode

_LEADS_TO = {
    kind: (event.value, next_state(State.RUNNING, event).value) for kind, event in EVENT_OF.items()
}


# A member that is left out is NULL for both databases, and costs neither side anything.


class _NewRow(msgspec.Struct, omit_defaults=True, gc=False):
    id: str
    args: str
    task: str | None = None
    queue: str | None = None
    priority: int | None = None
    max_crashes: int | None = None
    key: str | None = None
    serial: str | None = None
    run_at_us: int | None = None
    delay_us: int | None = None
    follow_ups: str | None = None
    trace: str | None = None


class _OutcomeRow(msgspec.Struct, omit_defaults=True, gc=False):
    n: int
    id: str
    fence: int
    worker_id: str
    event: str
    state: str
    started_at_us: int | None = None
    gives_back: bool = False
    result: str | None = None
    error: str | None = None
    data: str | None = None
    delay_us: int | None = None
    writes: str | None = None
    awaits: str | None = None


class _CompletedRow(msgspec.Struct, omit_defaults=True, gc=False):
    id: str
    fence: int
    result: str
    started_at_us: int | None = None
    writes: str | None = None


class _LeaseRow(msgspec.Struct):
    n: int
    id: str
    fence: int
    worker_id: str
    started_at_us: int | None = None


def encode_new(executions: Sequence[NewExecution]) -> dict[str, str]:
    """Return parameters: what the first has, and a batch that tells where others differ from it.

    Those of one call are nearly always of one task, and both sides are spared the repetition.
    """
    task, queue = executions[0].task, executions[0].queue
    priority, max_crashes = executions[0].priority, executions[0].max_crashes
    rows = [
        _NewRow(
            new.id,
            new.args,
            None if new.task == task else new.task,
            None if new.queue == queue else new.queue,
            None if new.priority == priority else new.priority,
            None if new.max_crashes == max_crashes else new.max_crashes,
            new.key,
            new.serial,
            microseconds_at(new.run_at),
            microseconds_in(new.delay),
            new.follow_ups,
            new.trace,
        )
        for new in executions
    ]
    _as_text([task, queue], doing="store an execution")  # refuses what no database can store
    return {
        "batch": _as_text(rows, doing="store an execution"),
        "task": task,
        "queue": queue,
        "priority": str(priority),
        "max_crashes": str(max_crashes),
    }


def encode_one(new: NewExecution) -> dict[str, str | None]:
    """Return parameters for a single execution, by the names of what it has."""
    refuse_unstorable(new)
    return {
        "id": new.id,
        "task": new.task,
        "queue": new.queue,
        "args": new.args,
        "follow_ups": new.follow_ups,
        "trace": new.trace,
        "priority": str(new.priority),
        "max_crashes": str(new.max_crashes),
    }


def refuse_unstorable(new: NewExecution) -> None:
    """Refuse texts that no database can store.

    Raises:
        StoreRefused: one of them has a NUL in it, or is no text.
    """
    refuse_unstorable_texts(
        (new.id, new.task, new.queue, new.args, new.follow_ups or "", new.trace or "")
    )


def refuse_unstorable_texts(texts: Sequence[str]) -> None:
    """The same for any texts of executions."""
    together = "".join(texts)
    if not together.isascii() or "\x00" in together:
        for text in texts:
            _refuse_text(text, doing="store an execution")


def encode_outcomes(outcomes: Iterable[Outcome]) -> str:
    rows = [_outcome_row(n, outcome) for n, outcome in enumerate(outcomes)]
    return _as_text(rows, doing="store an outcome")


def encode_completed(completed: Iterable[Completed]) -> str:
    """Return for each id when its task began; with its result and its writes if it has any."""
    return _as_text(
        {outcome.lease.execution_id: _completed_value(outcome) for outcome in completed},
        doing="store an outcome",
    )


def _completed_value(outcome: Completed) -> object:
    began = microseconds_at(outcome.started_at)
    if outcome.result == "null" and outcome.writes is None:
        return began
    return (began, outcome.result, outcome.writes)


def encode_completed_by_name(completed: Iterable[Completed]) -> str:
    """Return completions of one worker, as objects."""
    rows = [
        _CompletedRow(
            outcome.lease.execution_id,
            outcome.lease.fence,
            outcome.result,
            microseconds_at(outcome.started_at),
            outcome.writes,
        )
        for outcome in completed
    ]
    return _as_text(rows, doing="store an outcome")


def encode_leases(leases: Sequence[Lease], started_at: Sequence[datetime] | None = None) -> str:
    moments = [None] * len(leases) if started_at is None else started_at
    rows = [
        _LeaseRow(n, lease.execution_id, lease.fence, lease.worker_id, microseconds_at(moment))
        for n, (lease, moment) in enumerate(zip(leases, moments, strict=True))
    ]
    return _as_text(rows, doing="compare a lease")


class _StepRow(msgspec.Struct):
    n: int
    id: str
    fence: int
    worker_id: str
    name: str
    result: str


def encode_steps(steps: Iterable[StepDone]) -> str:
    rows = [
        _StepRow(
            n,
            step.lease.execution_id,
            step.lease.fence,
            step.lease.worker_id,
            step.name,
            step.result,
        )
        for n, step in enumerate(steps)
    ]
    return _as_text(rows, doing="store a step")


def encode_rows(rows: Sequence[object]) -> str:
    """Return rows that a statement takes apart; what users wrote in them is checked here."""
    return _as_text(list(rows), doing="store a run")


def encode_strings(strings: Sequence[str]) -> str:
    return _as_text(list(strings), doing="pass a list of names")


def _outcome_row(n: int, outcome: Outcome) -> _OutcomeRow:
    lease = outcome.lease
    event, state = _LEADS_TO[type(outcome)]
    row = _OutcomeRow(
        n,
        lease.execution_id,
        lease.fence,
        lease.worker_id,
        event,
        state,
        microseconds_at(outcome.started_at),
    )
    match outcome:
        case Completed(result=result, writes=writes):
            row.result = result
            row.writes = writes
        case Failed(error=error):
            row.error = error
            row.data = f'{{"error":{error}}}'
        case RetryScheduled(error=error, delay=delay):
            row.error = error
            row.delay_us = microseconds_in(delay)
            row.data = f'{{"error":{error},"delay":{delay.total_seconds()}}}'
        case DeferredFor(delay=delay, reason=reason):
            row.gives_back = True
            row.delay_us = microseconds_in(delay)
            row.data = event_data(deferred=True, delay=delay.total_seconds(), reason=reason)
        case Suspended(awaits=awaits):
            row.gives_back = True
            row.awaits = awaits
            row.data = event_data(awaits=awaits)
        case SuspendedFor(awaits=awaits, timeout=timeout):
            row.gives_back = True
            row.awaits = awaits
            row.delay_us = microseconds_in(timeout)
            row.data = event_data(deferred=True, delay=timeout.total_seconds(), awaits=awaits)
        case Released(reason=reason):
            row.gives_back = True
            row.data = event_data(reason=reason)
        case Cancelled(reason=reason):
            row.data = event_data(reason=reason)
        case _:
            assert_never(outcome)
    return row


def event_data(**facts: object) -> str | None:
    """Return the facts that are known as JSON text, or None when there are none."""
    known = {name: fact for name, fact in facts.items() if fact is not None}
    return _encode(known).decode() if known else None


@overload
def microseconds_at(moment: datetime) -> int: ...
@overload
def microseconds_at(moment: None) -> None: ...
def microseconds_at(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def microseconds_in(delay: timedelta | None) -> int | None:
    return None if delay is None else delay // _MICROSECOND


def moment_at(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND  # half the time that it takes to make a timedelta


def _as_text(rows: object, *, doing: str) -> str:
    try:
        text = _encode(rows).decode()
    except UnicodeEncodeError as error:
        raise StoreRefused(doing, because=error) from error
    if "\\u0000" in text:
        _refuse_text("".join(_strings_in(rows)), doing=doing)
    return text


def _refuse_text(text: str, *, doing: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise StoreRefused(doing, because=error) from error
    # PostgreSQL keeps no NUL in text; SQLite would, and then the two would differ.
    if "\x00" in text:
        raise StoreRefused(doing, because=ValueError("text with a NUL character in it"))


def _strings_in(rows: object) -> Iterable[str]:
    if isinstance(rows, str):
        yield rows
    elif isinstance(rows, list | tuple):
        for row in rows:
            yield from _strings_in(row)
    elif isinstance(rows, dict):
        yield from _strings_in([*rows, *rows.values()])
    elif isinstance(rows, msgspec.Struct):
        yield from (value for value in msgspec.structs.astuple(rows) if isinstance(value, str))
