"""How an execution ended, and what went wrong on the way, from its history."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from penstock.engine.reasons import Code, Reason
from penstock.model.events import Event, EventType
from penstock.model.payloads import decode
from penstock.model.states import State
from penstock.model.telling import count, error_line, moment
from penstock.model.waiting import Waiting

_WITH_ERROR = frozenset({EventType.RETRY_SCHEDULED, EventType.FAILED})
_WITH_LOSS = frozenset({EventType.RECOVERED, EventType.ABANDONED})


class AttemptError(NamedTuple):
    """What went wrong in one attempt."""

    attempt: int
    at: datetime
    worker_id: str | None
    line: str  # type and message, on one line


def reason_of_end(history: Sequence[Event]) -> str | None:
    """Return what was said when it was cancelled or skipped.

    Of one that ran: what whoever asked it to stop said, rather than what the task said then.
    """
    since = _since_rerun(history)
    told = (
        event.data.get("reason")
        for kinds in ({EventType.CANCEL_REQUESTED}, {EventType.CANCELLED, EventType.SKIPPED})
        for event in reversed(since)
        if event.type in kinds
    )
    return next((str(reason) for reason in told if reason), None)


def errors_of(history: Sequence[Event]) -> list[AttemptError]:
    """Return what went wrong since the execution was enqueued, or last rerun, in order."""
    return list(_errors(_since_rerun(history)))


def _since_rerun(history: Sequence[Event]) -> Sequence[Event]:
    reruns = [n for n, event in enumerate(history) if event.type == EventType.RERUN]
    return history[reruns[-1] :] if reruns else history


def _errors(history: Sequence[Event]) -> Iterator[AttemptError]:
    attempt, worker_id = 0, None
    for event in history:
        if event.type == EventType.CLAIMED:
            told = event.data.get("attempt")
            attempt = told if isinstance(told, int) else attempt + 1
            worker_id = event.worker_id
        elif event.type in _WITH_ERROR:
            yield AttemptError(attempt, event.at, worker_id, error_line(event.data.get("error")))
        elif event.type in _WITH_LOSS and event.data.get("started"):
            lost, crash = event.data.get("lost_worker"), event.data.get("crashes")
            line = f"worker {lost} died (crash {crash})"
            yield AttemptError(attempt, event.at, worker_id, line)


def why_ended(facts: Waiting) -> Reason:
    """Return the reason for a final state."""
    state, rerun = facts.state, f"`penstock rerun {facts.snapshot.id}`"
    if state is State.COMPLETED:
        return Reason(
            Code.COMPLETED,
            f"It completed at {_when(facts)}, in attempt {facts.snapshot.attempt}"
            f"{_on_whom(facts, EventType.COMPLETED)}.",
            f"Nothing; {rerun} would run it again.",
        )
    if state is State.CANCELLED:
        return _why_cancelled(facts, rerun)
    if state is State.SKIPPED:
        reason = _last(facts, EventType.SKIPPED).get("reason")
        return Reason(
            Code.SKIPPED,
            f"It was skipped at {_when(facts)}{f': {reason}' if reason else ''}.",
            f"Nothing; {rerun} would run it after all.",
        )
    return _why_failed(facts, rerun)


def _why_failed(facts: Waiting, rerun: str) -> Reason:
    one = facts.snapshot
    if facts.history and facts.history[-1].type == EventType.ABANDONED:
        return Reason(
            Code.ABANDONED,
            f"It was given up at {_when(facts)}: {count(one.crashes, 'worker')} died while running "
            f"it, and its max_crashes is {one.max_crashes}.",
            "Look in the logs of those workers and of the system (out of memory, a crash in native "
            f"code), mend the cause, then {rerun}.",
        )
    error = error_line(None if one.error is None else decode(one.error)).rstrip(".")
    return Reason(
        Code.FAILED,
        f"It failed for good at {_when(facts)}, in attempt {one.attempt}: {error}.",
        f"`penstock show {one.id}` has the traceback; mend the cause, then {rerun}. What nobody "
        f"needs any more goes with `penstock dismiss {one.root_id}`.",
    )


def _why_cancelled(facts: Waiting, rerun: str) -> Reason:
    last = _last(facts, EventType.CANCELLED)
    reason = reason_of_end(facts.history)
    given = f"with this reason: {reason}" if reason else "without a reason on record"
    if lost := last.get("lost_worker"):
        how = f"its worker {lost} died after somebody had asked it to stop"
    elif by := _on_whom(facts, EventType.CANCELLED):
        how = f"somebody asked it to stop while it ran{by}, and it stopped"
    else:
        had_begun = any(event.type == EventType.STARTED for event in facts.history)
        how = f"somebody cancelled it before it {'went on' if had_begun else 'began'}"
    return Reason(
        Code.CANCELLED,
        f"It was cancelled at {_when(facts)}: {how}, {given}. Who it was is not recorded.",
        f"{rerun} gives it a new life.",
    )


def _last(facts: Waiting, kind: EventType) -> Mapping[str, object]:
    return next((event.data for event in reversed(facts.history) if event.type == kind), {})


def _on_whom(facts: Waiting, kind: EventType) -> str:
    for event in reversed(facts.history):
        if event.type == kind:
            return f" on worker {event.worker_id}" if event.worker_id else ""
    return ""


def _when(facts: Waiting) -> str:
    return moment(facts.snapshot.finished_at or facts.at)
