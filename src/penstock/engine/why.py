"""Why an execution is where it is, in sentences, from the facts that the claim looks at.

Pure: the same facts give the same reasons. The first reason is the one that counts most; a
reason that follows would hold the execution back as well.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import assert_never

from penstock.engine.endings import why_ended
from penstock.engine.handing_out import why_nobody_takes_it, why_not_handed_out
from penstock.engine.reasons import Code, Reason
from penstock.engine.why_awaits import why_it_awaits
from penstock.engine.why_runs import why_task_waits, why_task_was_skipped
from penstock.model.events import EventType
from penstock.model.payloads import decode
from penstock.model.states import FINAL, State, SubState
from penstock.model.telling import count, error_line, moment, span
from penstock.model.waiting import Standing, Waiting

# Events that leave the state as it is.
_WITHIN = frozenset(
    {EventType.STARTED, EventType.DEFERRED, EventType.RESUMED, EventType.CANCEL_REQUESTED}
)


def explain(facts: Waiting, *, lease: timedelta) -> list[Reason]:
    """Return why the execution is in its state, never nothing.

    A worker without a heartbeat for longer than `lease` is taken for silent, not for alive.
    """
    state = facts.state
    match state:
        case State.SCHEDULED | State.WAITING:
            return _why_not_ready(facts, lease)
        case State.READY:
            return list(why_not_handed_out(facts, lease))
        case State.RUNNING:
            return list(_why_running(facts, lease))
        case State.COMPLETED | State.FAILED | State.SKIPPED | State.CANCELLED:
            if facts.run is not None and state is State.SKIPPED:
                return [why_task_was_skipped(facts, facts.run)]
            return [why_ended(facts)]
        case _:
            assert_never(state)


def _why_not_ready(facts: Waiting, lease: timedelta) -> list[Reason]:
    if (awaits := facts.snapshot.awaits) is not None:
        return [why_it_awaits(facts, awaits)]
    if facts.state is State.SCHEDULED:
        because = _why_scheduled(facts)
    else:
        because = why_task_waits(facts, facts.run) if facts.run else _why_waiting(facts)
    return [because, *why_nobody_takes_it(facts, lease)]


def in_state_since(facts: Waiting) -> datetime:
    """When the execution entered the state that it is in."""
    if facts.state in FINAL and facts.snapshot.finished_at is not None:
        return facts.snapshot.finished_at
    entered = [event.at for event in facts.history if event.type not in _WITHIN]
    return entered[-1] if entered else facts.snapshot.created_at


# --- scheduled ----------------------------------------------------------------------------


def _why_scheduled(facts: Waiting) -> Reason:
    because, due_in = _who_scheduled_it(facts), facts.due_in or timedelta()
    if due_in <= timedelta():
        return Reason(
            Code.DUE,
            f"{because}; it has been due for {span(due_in)}, and a worker makes it ready with its "
            "next look.",
            "Ask again in a moment; if it is still scheduled then, look for a live worker with "
            "`penstock workers`.",
        )
    run_at = facts.snapshot.run_at or facts.at + due_in
    return Reason(
        Code.NOT_DUE,
        f"{because}; it is not due until {moment(run_at)}, in {span(due_in)}.",
        f"Wait, or `penstock rerun {facts.snapshot.id}` to run it now, or `penstock cancel "
        f"{facts.snapshot.id}` if it should not run any more.",
    )


def _who_scheduled_it(facts: Waiting) -> str:
    for event in reversed(facts.history):
        if event.type == EventType.RETRY_SCHEDULED:
            failed = error_line(event.data.get("error")).rstrip(".")
            return f"Attempt {facts.snapshot.attempt} ended with {failed}; it is to be retried"
        if event.type == EventType.SCHEDULED and event.data.get("deferred"):
            reason = event.data.get("reason")
            return f"The task deferred itself{f' ({reason})' if reason else ''}"
        # Any other time it was scheduled is how it began, or how it went on after a pause.
    return "It was enqueued to run later"


# --- waiting ------------------------------------------------------------------------------


def _why_waiting(facts: Waiting) -> Reason:
    one = facts.snapshot
    if facts.predecessor is None or facts.head is None:
        return Reason(
            Code.TO_BE_RELEASED,
            "Nothing that lives is ahead of it any more; a worker releases it with its next look.",
            "Ask again in a moment; if it still waits then, look for a live worker with "
            "`penstock workers`.",
        )
    ahead = f"{_stands(facts.predecessor, facts.at)} is ahead of it"
    if facts.ahead_in_serial > 1:
        ahead = (
            f"{count(facts.ahead_in_serial, 'execution')} are ahead of it; the first, "
            f"{_stands(facts.head, facts.at)}; the last, {_stands(facts.predecessor, facts.at)}"
        )
    return Reason(
        Code.BEHIND,
        f"It waits for its turn in the serial {one.serial!r}: {ahead}.",
        f"The serial goes on when the first has ended: `penstock why {facts.head.id}` says what "
        "that one waits for.",
    )


def _stands(other: Standing, at: datetime) -> str:
    since = "" if other.since is None else f" for {span(at - other.since)}"
    return f"{other.task} {other.id} ({other.state}{since})"


# --- running ------------------------------------------------------------------------------


def _why_running(facts: Waiting, lease: timedelta) -> Iterator[Reason]:
    one = facts.snapshot
    owner = next((peer for peer in facts.workers if peer.info.id == one.worker_id), None)
    others = any(peer is not owner and facts.at - peer.beat_at <= lease for peer in facts.workers)
    recovery = (
        "Another live worker recovers it by itself."
        if others
        else "Start a worker: it recovers what this one has left."
    )
    if owner is None:
        yield Reason(
            Code.WORKER_GONE,
            f"Its worker {one.worker_id} is not there any more, and nobody has recovered it yet.",
            recovery,
        )
        return
    silence = facts.at - owner.beat_at
    if silence > lease:
        yield Reason(
            Code.WORKER_SILENT,
            f"Its worker {owner.info.name or owner.info.id} has not sent a heartbeat for "
            f"{span(silence)}: it is dead, stopped or out of reach.",
            recovery,
        )
    if one.cancel_requested:
        yield Reason(
            Code.CANCEL_REQUESTED,
            "Somebody has asked it to stop, and it has not stopped yet.",
            "A task stops where it asks `handle.raise_if_cancelled()` or awaits something; one "
            "that does neither goes on to its end.",
        )
    where = f"on {owner.info.name or owner.info.id}, whose last heartbeat was {span(silence)} ago"
    if one.sub_state is SubState.DEFERRED:
        yield _why_deferred(facts, where)
    elif one.started_at is None:
        yield Reason(
            Code.CLAIMED,
            f"It was claimed {span(facts.at - (one.claimed_at or facts.at))} ago and is about to "
            f"begin, {where}.",
            "Ask again in a moment.",
        )
    else:
        stop = "" if one.cancel_requested else f", or `penstock cancel {one.id}` asks it to stop"
        yield Reason(
            Code.RUNNING,
            f"Attempt {one.attempt} has been running since {moment(one.started_at)}, for "
            f"{span(facts.at - one.started_at)}{_progress(facts)}, {where}.",
            f"Wait{stop}.",
        )
    if one.suspect:
        yield Reason(
            Code.SUSPECT,
            "It was running when a worker died, so its start was recorded before it began: if this "
            f"worker dies too, that is crash {one.crashes + 1} of {one.max_crashes}.",
            f"`penstock history {one.id}` names the workers that were lost.",
        )


def _why_deferred(facts: Waiting, where: str) -> Reason:
    one = facts.snapshot
    deferred = [event for event in facts.history if event.type == EventType.DEFERRED]
    since = f" for {span(facts.at - deferred[-1].at)}" if deferred else ""
    reason = deferred[-1].data.get("reason") if deferred else None
    return Reason(
        Code.DEFERRED,
        f"Attempt {one.attempt} has been deferred{since}, without a slot, "
        f"{f'for this reason: {reason}' if reason else 'for a reason that it did not give'}; it is "
        f"{where}.",
        f"It goes on when its condition comes true; `penstock cancel {one.id}` ends it.",
    )


def _progress(facts: Waiting) -> str:
    told = None if facts.snapshot.progress is None else decode(facts.snapshot.progress)
    match told:
        case {"fraction": float(fraction) | int(fraction), "note": note}:
            return f", {fraction:.0%} done{f' ({note})' if note else ''}"
        case _:
            return ""
