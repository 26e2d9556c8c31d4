"""Handing out tasks on SQLite.

A claim looks first, without the write lock: an idle poll disturbs nobody, and the walk
over rows that this worker cannot run, however long, holds nobody up. Only when there is
something to take does it take the lock.
"""

import codecs
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from penstock.model.executions import Claimed, Lease
from penstock.store import low_water
from penstock.store.batches import encode_strings, moment_at
from penstock.store.low_water import Lane
from penstock.store.scripts import Row
from penstock.store.sqlite.transaction import Transaction, encode_json

_decode_rows = msgspec.json.Decoder(list[tuple[Any, ...]]).decode

HEAD = 256  # rows that are always looked at: cheap, and enough unless others' work piles up
MOST_STEPS = 20_000

_SPELT_OUT = "penstock.spelt_out"


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(f"\\\\x{byte:02x}" for byte in wrong), error.end


codecs.register_error(_SPELT_OUT, _spell_out)


class Wanted(NamedTuple):
    """What a worker asks for."""

    worker_id: str
    queues: Sequence[str]
    tasks: frozenset[str]
    limit: int
    suspects: bool


class _Mark(NamedTuple):
    """Where a lane with a long head of unknown tasks begins, and until when to believe it."""

    low_water: int
    good_until: float


class _Head(NamedTuple):
    """The first rows of a lane: where the tasks begin in them, and where they end."""

    lane: Lane
    first: int | None
    end: int | None  # None: the lane has no more rows than these

    @property
    def is_conclusive(self) -> bool:
        return self.first is not None or self.end is None


class Scanner:
    """Remembers where each lane begins for the tasks that a worker knows.

    SQLite leaves no dead rows behind, so only rows of unknown tasks can make a look from
    zero slow. Marks are used where more of them than a head have gathered: there, work that
    another process gives back at an old place is seen when the marks are next renewed.
    """

    _MOST = 64

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._by_tasks: dict[frozenset[str], dict[Lane, _Mark]] = {}

    def remembers(self, tasks: frozenset[str]) -> bool:
        """Whether there are lanes of which a glance cannot say where they begin for these tasks."""
        return bool(self._by_tasks.get(tasks))

    def forget(self) -> None:
        """Look from zero next time: something has come back to an old place."""
        self._by_tasks = {}

    def look(self, transaction: Transaction, wanted: Wanted) -> list[tuple[Lane, int]]:
        """Return the lanes that have something for this worker, in order, and where it begins."""
        tasks = encode_strings(sorted(wanted.tasks))
        heads = _heads(transaction, wanted, tasks)
        # One at a time: threads that come together need not all do the same slow walk.
        with self._lock:
            marks = self._marks_of(wanted.tasks)
            first = [(head.lane, self._first(transaction, head, tasks, marks)) for head in heads]
        return [(lane, seq) for lane, seq in first if seq is not None]

    def _first(
        self, transaction: Transaction, head: _Head, tasks: str, marks: dict[Lane, _Mark]
    ) -> int | None:
        if head.end is None or head.is_conclusive:
            return head.first
        return self._first_beyond(transaction, head.lane, tasks, marks, head.end)

    def _first_beyond(
        self, transaction: Transaction, lane: Lane, tasks: str, marks: dict[Lane, _Mark], end: int
    ) -> int | None:
        begun = self._monotonic()
        mark = marks.get(lane)
        if mark is not None and begun >= mark.good_until:
            mark = None
        begin = end if mark is None else max(end, mark.low_water)
        rows = transaction.rows("first_in_lane", **lane._asdict(), low_water=begin, tasks=tasks)
        first: int | None = rows[0][0] if rows else None
        if first is None:
            ((newest,),) = transaction.rows("newest_seq")
            begin = newest + 1
        else:
            begin = first
        if mark is None:
            ended = self._monotonic()
            pause = max(low_water.RESCAN_EVERY, low_water.RESCAN_SHARE * (ended - begun))
            mark = _Mark(begin, ended + pause)
        marks[lane] = mark._replace(low_water=begin)
        return first

    def _marks_of(self, tasks: frozenset[str]) -> dict[Lane, _Mark]:
        if tasks not in self._by_tasks and len(self._by_tasks) >= self._MOST:
            self._by_tasks = {}
        return self._by_tasks.setdefault(tasks, {})


def glance(view: Transaction, wanted: Wanted) -> list[tuple[Lane, int]] | None:
    """Return what `Scanner.look` does, in one statement; None if there is more to look at."""
    heads = _heads(view, wanted, encode_strings(sorted(wanted.tasks)))
    if not all(head.is_conclusive for head in heads):
        return None
    return [(head.lane, head.first) for head in heads if head.first is not None]


def _heads(transaction: Transaction, wanted: Wanted, tasks: str) -> list[_Head]:
    """Return the heads of all lanes of these queues, in the order in which to take from them."""
    turn = {queue: place for place, queue in reversed(list(enumerate(wanted.queues)))}
    ((found,),) = transaction.rows(
        "lanes",
        queues=encode_strings(list(turn)),
        tasks=tasks,
        kinds="[1,0]" if wanted.suspects else "[0]",
        head=HEAD,
    )
    heads = [
        _Head(Lane(queue, priority, suspect=bool(suspect)), first, end)
        for queue, priority, suspect, first, end in _decode_rows(found)
    ]
    return sorted(
        heads,
        key=lambda head: (turn[head.lane.queue], -head.lane.priority, not head.lane.suspect),
    )


class HandedOut(NamedTuple):
    """What a claim has taken, as it was before, and when.

    Others wait while it is written; what the worker gets is made of it when they no longer do.
    """

    places: list[Row]
    worker_id: str
    at: int

    def claimed(self) -> list[Claimed]:
        claimed_at = moment_at(self.at)
        return [_claimed(place, self.worker_id, claimed_at) for place in self.places]


def claim(transaction: Transaction, wanted: Wanted, lanes: Sequence[tuple[Lane, int]]) -> HandedOut:
    """Hand out what is in these lanes, in their order. Runs under the write lock."""
    places = _look_at(transaction, wanted, lanes)
    found = [place for place in places if place[2] is not None]
    if found:
        found = _hand_out(transaction, wanted.worker_id, found)
    if places:
        # Also those that stand for nothing: nobody could ever take them.
        transaction.rows("leave_outbox", ids=_ids(places))
    return HandedOut(found, wanted.worker_id, transaction.now)


def _hand_out(transaction: Transaction, worker_id: str, found: list[Row]) -> list[Row]:
    """Return those that are the worker's now; nearly always all of them, so nobody asks which.

    An id that was written by hand, and is no text that JSON can carry, stays where it is.
    """
    ids = _ids(found)
    whose = {"worker_id": worker_id, "now": transaction.now}
    if transaction.count("hand_out", ids=ids, **whose) < len(found):
        moved = {id_ for (id_,) in transaction.rows("handed_out", ids=ids, **whose)}
        found = [place for place in found if place[1] in moved]
    transaction.rows("tell_claimed", batch=_attempts(found), **whose)
    return found


def _ids(places: Sequence[Row]) -> str:
    return encode_json([place[1] for place in places])


def _attempts(places: Sequence[Row]) -> str:
    """Return for each id the attempt that begins; with the run's id for what is part of one."""
    begun: dict[str, object] = {}
    for place in places:
        id_, root_id, attempt = place[1], place[2], place[8]
        begun[id_] = attempt if root_id == id_ else (root_id, attempt)
    return encode_json(begun)


def _look_at(
    transaction: Transaction, wanted: Wanted, lanes: Sequence[tuple[Lane, int]]
) -> list[Row]:
    places: list[Row] = []
    tasks = encode_strings(sorted(wanted.tasks))
    has_suspect = False
    for lane, begin in lanes:
        left = wanted.limit - len(places)
        if left == 0:
            break
        if lane.suspect and has_suspect:
            continue
        limit = 1 if lane.suspect else left
        asked = {**lane._asdict(), "low_water": begin, "worker_id": wanted.worker_id}
        in_lane = _look_at_lane(transaction, {**asked, "tasks": tasks}, limit)
        has_suspect = has_suspect or (lane.suspect and bool(in_lane))
        places += in_lane
    return places


def _look_at_lane(transaction: Transaction, asked: dict[str, object], limit: int) -> list[Row]:
    while True:
        try:
            ((found,),) = transaction.rows(
                "look_at_lane", **asked, limit=limit, most_steps=MOST_STEPS
            )
        except sqlite3.DataError:  # more than SQLite holds in one value
            if limit == 1:
                raise
            limit //= 2
        else:
            return _read_places(found)


def _read_places(found: bytes) -> list[Row]:
    try:
        return _decode_rows(found)
    except (UnicodeDecodeError, msgspec.DecodeError):
        # Not UTF-8: then it is made something that is no JSON, so that its task fails alone.
        return _decode_rows(found.decode(errors=_SPELT_OUT))


def _claimed(place: Row, worker_id: str, claimed_at: datetime) -> Claimed:
    """Return what the worker gets."""
    (
        seq, id_, root_id, fence, task, args, queue, priority, attempt, retries, crashes, suspect,
        serial, follow_ups, due_at, trace,
    ) = place  # fmt: skip
    return Claimed(
        Lease(id_, fence, worker_id),
        task,
        args,
        queue,
        priority,
        seq,
        attempt,
        retries,
        crashes,
        bool(suspect),
        serial,
        follow_ups is not None,
        claimed_at,
        None if root_id == id_ else root_id,
        None if due_at is None else moment_at(due_at),
        trace,
    )
