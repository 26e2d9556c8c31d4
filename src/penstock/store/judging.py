"""The tables' version, the workers and their work, judged in the same way on every database."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from penstock.errors import SchemaBehind, SchemaError, SchemaMissing
from penstock.model.durations import format_duration
from penstock.model.health import Finding, ok, problem, warning
from penstock.model.telling import count, some_of
from penstock.model.workers import Peer
from penstock.store.migrations import Applied, Migration, check_compatible

LATE = timedelta(minutes=5)
UNSEEN = timedelta(days=7)
SILENT_LEASES = 2

_SCHEMA = "schema version"
_WORKERS = "workers"
_OLDEST = "oldest ready task"
_KNOWN = "known tasks"
_PAUSED = "paused queues"
_FAILED = "failed executions"


class Backlog(NamedTuple):
    """Ready executions of one task in one queue, and how long the first of them has been so."""

    queue: str
    task: str
    ready: int
    oldest: timedelta


def judge_schema(
    migrations: Sequence[Migration],
    applied: Sequence[Applied],
    *,
    where: str,
    migrates_itself: bool = False,
) -> Finding:
    """Judge whether this version fits the tables; anything but ok leaves nothing else to judge."""
    try:
        check_compatible(migrations, applied, where=where)
    except (SchemaMissing, SchemaBehind) as error:
        what, _, remedy = str(error).partition(". ")
        if not migrates_itself:
            return problem(_SCHEMA, f"{what}.", remedy=remedy)
        remedy = "The next command or worker that opens the file brings it up to date."
        return warning(_SCHEMA, f"{what}.", remedy=remedy)
    except SchemaError as error:
        what, _, remedy = str(error).rpartition(". ")
        return problem(_SCHEMA, f"{what}.", remedy=remedy)
    return ok(_SCHEMA, f"The tables in {where} have version {applied[-1].version}.")


def judge_workers(peers: Sequence[Peer], *, now: datetime, lease: timedelta) -> Iterator[Finding]:
    silent = [peer for peer in peers if is_silent(peer, now=now, lease=lease)]
    if silent:
        longest = max(now - peer.beat_at for peer in silent)
        yield warning(
            _WORKERS,
            f"{count(len(silent), 'worker')} of {len(peers)} sent no heartbeat for up to "
            f"{rough(longest)}: {some_of([peer.info.name or peer.info.id for peer in silent])}.",
            remedy="Start a worker, or let one go on: it recovers what they left.",
        )
    else:
        yield ok(_WORKERS, f"{count(len(peers), 'worker')} alive.")


def judge_backlog(
    backlog: Sequence[Backlog], peers: Sequence[Peer], *, paused: Collection[str]
) -> Iterator[Finding]:
    """Say what waits for what; `peers` are the workers that are really alive."""
    waiting = [one for one in backlog if one.queue not in paused]
    held = [one for one in backlog if one.queue in paused]
    if held:
        ready = sum(one.ready for one in held)
        yield warning(
            _PAUSED,
            f"{count(ready, 'ready task')} in paused queues: "
            f"{some_of(sorted({one.queue for one in held}))}.",
            remedy="Run `penstock resume QUEUE` once the reason for the pause is gone.",
        )
    unknown = [one for one in waiting if not _somebody_takes(one, peers)]
    if unknown:
        yield _unknown(unknown, peers)
    else:
        yield ok(_KNOWN, "Every ready task is known to a live worker that serves its queue.")
    oldest = max(waiting, key=lambda one: one.oldest, default=None)
    if oldest is None or oldest.oldest < LATE:
        since = "" if oldest is None else f", the oldest for {rough(oldest.oldest)}"
        ready = sum(one.ready for one in waiting)
        yield ok(_OLDEST, f"{count(ready, 'task')} ready{since}.")
    else:
        yield warning(
            _OLDEST,
            f"A task {oldest.task!r} in queue {oldest.queue!r} has been ready for "
            f"{rough(oldest.oldest)}.",
            remedy="Start more workers for this queue or give them more slots; `penstock why ID` "
            "says what one execution waits for.",
        )


def _somebody_takes(one: Backlog, peers: Sequence[Peer]) -> bool:
    return any(one.queue in peer.info.queues and one.task in peer.info.tasks for peer in peers)


def _unknown(unknown: Sequence[Backlog], peers: Sequence[Peer]) -> Finding:
    ready = sum(one.ready for one in unknown)
    if not peers:
        return problem(
            _KNOWN,
            f"{count(ready, 'task')} ready, and no worker is alive.",
            remedy="Start one with `penstock worker MODULE:APP`.",
        )
    named = some_of(sorted({f"{one.task} in queue {one.queue}" for one in unknown}))
    return problem(
        _KNOWN,
        f"{count(ready, 'ready task')} that no live worker takes: {named}.",
        remedy="Start a worker whose App declares the task and which serves the queue; after a "
        'rename, keep the old name with `aliases=["…"]`.',
    )


def judge_failed(failed: int, oldest: timedelta | None) -> Finding:
    if oldest is None:
        return ok(_FAILED, f"None has been failed for more than {format_duration(UNSEEN)}.")
    return warning(
        _FAILED,
        f"{count(failed, 'execution')} failed more than {format_duration(UNSEEN)} ago, the "
        f"first {rough(oldest)} ago, and nobody has decided about them.",
        remedy="Look with `penstock list --state failed`; `penstock rerun` what should run, and "
        "`penstock dismiss` what nobody needs any more.",
    )


def is_silent(peer: Peer, *, now: datetime, lease: timedelta) -> bool:
    """Whether a worker counts as alive only because nobody has looked."""
    return now - peer.beat_at > SILENT_LEASES * lease


def rough(duration: timedelta) -> str:
    """To the second, or to the minute where hours are told: nobody compares these."""
    unit = timedelta(minutes=1) if duration >= timedelta(hours=1) else timedelta(seconds=1)
    return format_duration(duration // unit * unit)
