"""Why a ready execution has no worker yet: the predicates of the claim, one after the other."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cached_property

import msgspec

from penstock.engine.reasons import Code, Reason
from penstock.errors import nearest
from penstock.model.telling import count, listed, moment, span
from penstock.model.waiting import Load, Waiting
from penstock.model.workers import Peer


class _Workers(msgspec.Struct, frozen=True, dict=True):
    """The workers as one execution sees them: who lives, and who could take it."""

    facts: Waiting
    lease: timedelta

    @cached_property
    def live(self) -> list[Peer]:
        return [peer for peer in self.facts.workers if self.facts.at - peer.beat_at <= self.lease]

    @cached_property
    def knowing(self) -> list[Peer]:
        return [peer for peer in self.live if self.facts.snapshot.task in peer.info.tasks]

    @cached_property
    def takers(self) -> list[Peer]:
        return [peer for peer in self.knowing if self.facts.snapshot.queue in peer.info.queues]

    @cached_property
    def with_room(self) -> list[Peer]:
        return [peer for peer in self.takers if self.free_slots(peer) > 0]

    def loads(self, peer: Peer) -> list[Load]:
        return [load for load in self.facts.loads if load.worker_id == peer.info.id]

    def free_slots(self, peer: Peer) -> int:
        return max(0, peer.info.slots - sum(load.active for load in self.loads(peer)))

    def running_here(self, peer: Peer) -> int:
        """How many of this very task the worker has, deferred ones too, as it counts them."""
        return sum(
            load.running for load in self.loads(peer) if load.task == self.facts.snapshot.task
        )

    def limit(self, peer: Peer) -> int | None:
        return (peer.info.max_running or {}).get(self.facts.snapshot.task)

    def at_limit(self, peer: Peer) -> bool:
        limit = self.limit(peer)
        return limit is not None and self.running_here(peer) >= limit


def why_nobody_takes_it(facts: Waiting, lease: timedelta) -> Iterator[Reason]:
    """Yield what stops every claim, however many slots there are."""
    if facts.paused_at is not None:
        yield _queue_paused(facts)
    workers = _Workers(facts, lease)
    if not facts.workers:
        yield Reason(
            Code.NO_WORKER,
            "No worker is alive.",
            "Start one: `penstock worker MODULE:APP`.",
        )
    elif not workers.live:
        yield _workers_silent(facts)
    elif not workers.knowing:
        yield _task_unknown(facts, workers)
    elif not workers.takers:
        yield _queue_unserved(facts, workers)


def why_not_handed_out(facts: Waiting, lease: timedelta) -> Iterator[Reason]:
    """Yield what a ready execution waits for; if for nothing at all, that."""
    stopped = list(why_nobody_takes_it(facts, lease))
    yield from stopped
    if not stopped:
        yield from _why_not_at_once(facts, _Workers(facts, lease))
    if facts.snapshot.suspect:
        yield _suspect(facts)


# --- what stops every claim ---------------------------------------------------------------


def _queue_paused(facts: Waiting) -> Reason:
    queue, paused_at = facts.snapshot.queue, facts.paused_at or facts.at
    return Reason(
        Code.QUEUE_PAUSED,
        f"Queue {queue!r} has been paused since {moment(paused_at)}, for "
        f"{span(facts.at - paused_at)}: nothing of it is handed out.",
        f"`penstock resume {shlex.quote(queue)}`.",
    )


def _workers_silent(facts: Waiting) -> Reason:
    last = max(facts.workers, key=lambda peer: peer.beat_at)
    return Reason(
        Code.WORKERS_SILENT,
        f"No worker has sent a heartbeat lately; the last that did, {_name(last)}, has been silent "
        f"for {span(facts.at - last.beat_at)}.",
        "Start a worker: `penstock worker MODULE:APP`. It takes over what the silent ones left.",
    )


def _task_unknown(facts: Waiting, workers: _Workers) -> Reason:
    task = facts.snapshot.task
    known = {name for peer in workers.live for name in peer.info.tasks}
    guess = nearest(task, known)
    like = f", but {guess!r} is known, which looks like it" if guess else ""
    return Reason(
        Code.TASK_UNKNOWN,
        f"{_none(workers.live, 'live worker', 'knows', 'does not know')} the task {task!r}{like}.",
        "Start a worker that imports the module which declares it (`penstock worker MODULE:APP "
        "--import MODULE`), or declare the name as one of the task's `aliases`.",
    )


def _queue_unserved(facts: Waiting, workers: _Workers) -> Reason:
    queue, whose = facts.snapshot.queue, f"live worker that knows the task {facts.snapshot.task!r}"
    served = {name for peer in workers.knowing for name in peer.info.queues}
    return Reason(
        Code.QUEUE_UNSERVED,
        f"{_none(workers.knowing, whose, 'serves', 'does not serve')} queue {queue!r}, only "
        f"{listed(served)}.",
        f"Start a worker with `--queue {shlex.quote(queue)}`.",
    )


def _none(peers: Sequence[Peer], whose: str, does: str, does_not: str) -> str:
    if len(peers) == 1:
        return f"The only {whose}, {_name(peers[0])}, {does_not}"
    return f"Of {len(peers)} workers no {whose} {does}"


# --- what makes it wait for its turn ------------------------------------------------------


def _why_not_at_once(facts: Waiting, workers: _Workers) -> Iterator[Reason]:
    if not workers.with_room:
        yield _slots_full(facts, workers)
    elif all(workers.at_limit(peer) for peer in workers.with_room):
        yield _max_running(facts, workers)
    known = {name for peer in workers.takers for name in peer.info.tasks}
    ahead = sum(number for task, number in facts.ahead.items() if task in known)
    stepped_over = sum(facts.ahead.values()) - ahead
    if ahead:
        yield _ahead(facts, workers, ahead, stepped_over)
    elif workers.with_room and not all(workers.at_limit(peer) for peer in workers.with_room):
        yield _next(workers)


def _slots_full(facts: Waiting, workers: _Workers) -> Reason:
    slots = sum(peer.info.slots for peer in workers.takers)
    return Reason(
        Code.SLOTS_FULL,
        f"{_all_of(slots, 'slot')} of {_named(workers.takers)} {'is' if slots == 1 else 'are'} "
        f"taken{_longest(facts, workers.takers)}.",
        "Wait, or start another worker, or give these more `--slots`.",
    )


def _max_running(facts: Waiting, workers: _Workers) -> Reason:
    task = facts.snapshot.task
    full = ", ".join(
        f"{workers.running_here(peer)} of {workers.limit(peer)} run on {_name(peer)}"
        for peer in workers.with_room[:3]
    )
    return Reason(
        Code.MAX_RUNNING,
        f"There are free slots, but as many of {task!r} run as its max_running allows: {full}"
        f"{_longest(facts, workers.with_room, task=task)}.",
        "Wait, or start another worker: max_running counts in each worker by itself.",
    )


def _ahead(facts: Waiting, workers: _Workers, ahead: int, stepped_over: int) -> Reason:
    slots = sum(peer.info.slots for peer in workers.takers)
    free = sum(workers.free_slots(peer) for peer in workers.takers)
    others = (
        f" ({stepped_over} more are of tasks that these workers do not know, and are stepped over)"
        if stepped_over
        else ""
    )
    return Reason(
        Code.AHEAD,
        f"{count(ahead, 'ready execution')} {'comes' if ahead == 1 else 'come'} first in queue "
        f"{facts.snapshot.queue!r}{others}; {_named(workers.takers)} "
        f"{'has' if len(workers.takers) == 1 else 'have'} {count(slots, 'slot')}, {free} free.",
        "Wait, or start another worker; what must not wait is enqueued with a higher `priority`.",
    )


def _next(workers: _Workers) -> Reason:
    taker = max(workers.with_room, key=workers.free_slots)
    untold = any(peer.info.max_running is None for peer in workers.with_room)
    doubt = (
        f" Whether `max_running` keeps it waiting is not known: {_name(taker)} has not stored it."
        if untold and workers.running_here(taker)
        else ""
    )
    return Reason(
        Code.NEXT,
        f"Nothing holds it back: {_name(taker)} has "
        f"{count(workers.free_slots(taker), 'free slot')} and takes it with its next look.{doubt}",
        "Ask again in a moment; if it is still ready then, the log of that worker says more.",
    )


def _suspect(facts: Waiting) -> Reason:
    one = facts.snapshot
    alone = (
        "it is on its last chance, so no other suspect may run beside it"
        if one.crashes + 1 >= one.max_crashes
        else "a claim takes one suspect at a time"
    )
    return Reason(
        Code.SUSPECT,
        f"It was running when a worker died (crash {one.crashes} of {one.max_crashes}), so it is "
        f"suspect: {alone}.",
        f"`penstock history {one.id}` names the workers that were lost; their logs may say why.",
    )


def _longest(facts: Waiting, peers: Sequence[Peer], *, task: str | None = None) -> str:
    names = {peer.info.id: _name(peer) for peer in peers}
    begun = [
        (load.longest_since, load)
        for load in facts.loads
        if load.longest_since is not None and load.worker_id in names and task in {None, load.task}
    ]
    if not begun:
        return ""
    since, load = min(begun, key=lambda one: one[0])
    return (
        f"; the longest by {load.task} {load.longest_id}, for {span(facts.at - since)}, on "
        f"{names[load.worker_id]}"
    )


def _named(takers: Sequence[Peer]) -> str:
    return _name(takers[0]) if len(takers) == 1 else f"the {len(takers)} workers that could take it"


def _all_of(number: int, thing: str) -> str:
    return f"The only {thing}" if number == 1 else f"All {number} {thing}s"


def _name(peer: Peer) -> str:
    return peer.info.name or peer.info.id
