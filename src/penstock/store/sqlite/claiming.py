"""Handing out tasks on SQLite.

A claim looks first, without the write lock: an idle poll disturbs nobody, and the walk
over rows that this worker cannot run, however long, holds nobody up. Only when there is
something to take does it take the lock.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.model.events import EventType
from penstock.model.executions import Claimed, Lease
from penstock.store.batches import encode_strings, moment_at
from penstock.store.low_water import RESCAN_EVERY, RESCAN_SHARE, Lane
from penstock.store.scripts import Row
from penstock.store.sqlite.transaction import EventRow, Transaction, encode_list

CHEAP_SCAN = 0.002
MOST_STEPS = 20_000


class Wanted(NamedTuple):
    """What a worker asks for."""

    worker_id: str
    queues: Sequence[str]
    tasks: frozenset[str]
    limit: int
    suspects: bool


class _Marks:
    """Where the lanes begin for one set of tasks, once looking from zero has become slow."""

    def __init__(self) -> None:
        self.low_water: dict[Lane, int] = {}
        self.good_until = float("-inf")


class Scanner:
    """Remembers where each lane begins for the tasks that a worker knows.

    SQLite leaves no dead rows behind, so a look from zero costs nothing unless rows of
    unknown tasks have gathered at the head. Only then are marks worth their price: work
    that another process gives back at an old place is seen when they are next renewed.
    """

    _MOST = 64

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._by_tasks: dict[frozenset[str], _Marks] = {}

    def forget(self) -> None:
        """Look from zero next time: something has come back to an old place."""
        self._by_tasks = {}

    def look(self, transaction: Transaction, wanted: Wanted) -> list[tuple[Lane, int]]:
        """Return the lanes that have something for this worker, in order, and where it begins."""
        if not transaction.rows("is_alive", worker_id=wanted.worker_id):
            return []
        lanes = list(_lanes(transaction, wanted))
        if not lanes:
            return []
        # One at a time: threads that come together need not all do the same slow walk.
        with self._lock:
            marks = self._marks_of(wanted.tasks)
            return list(self._first_rows(transaction, wanted, marks, lanes))

    def _first_rows(
        self, transaction: Transaction, wanted: Wanted, marks: _Marks, lanes: Sequence[Lane]
    ) -> Iterator[tuple[Lane, int]]:
        begun = self._monotonic()
        thorough = begun >= marks.good_until
        if thorough:
            marks.low_water = {}
        tasks = encode_strings(sorted(wanted.tasks))
        for lane in lanes:
            rows = transaction.rows(
                "first_in_lane",
                **lane._asdict(),
                low_water=marks.low_water.get(lane, 0),
                tasks=tasks,
            )
            if rows:
                marks.low_water[lane] = rows[0][0]
                yield lane, rows[0][0]
            else:
                ((newest,),) = transaction.rows("newest_seq")
                marks.low_water[lane] = newest + 1
        if thorough:
            ended = self._monotonic()
            spent = ended - begun
            cheap = spent < CHEAP_SCAN
            marks.good_until = ended if cheap else ended + max(RESCAN_EVERY, RESCAN_SHARE * spent)

    def _marks_of(self, tasks: frozenset[str]) -> _Marks:
        if tasks not in self._by_tasks and len(self._by_tasks) >= self._MOST:
            self._by_tasks = {}
        return self._by_tasks.setdefault(tasks, _Marks())


def _lanes(transaction: Transaction, wanted: Wanted) -> Iterator[Lane]:
    queues = encode_strings(list(dict.fromkeys(wanted.queues)))
    turn = {queue: place for place, queue in reversed(list(enumerate(wanted.queues)))}
    found = transaction.rows("lanes", queues=queues)
    for queue, priority in sorted(found, key=lambda row: (turn[row[0]], -row[1])):
        if wanted.suspects:
            yield Lane(queue, priority, suspect=True)
        yield Lane(queue, priority, suspect=False)


def claim(
    transaction: Transaction, wanted: Wanted, lanes: Sequence[tuple[Lane, int]]
) -> list[Claimed]:
    """Hand out what is in these lanes, in their order. Runs under the write lock."""
    # Declared dead while it waited for the lock, perhaps.
    if not transaction.rows("is_alive", worker_id=wanted.worker_id):
        return []
    taken = _take(transaction, wanted, lanes)
    if not taken:
        return []
    moved = {
        row[0]: row
        for row in transaction.rows(
            "hand_out",
            taken=encode_list(taken),
            worker_id=wanted.worker_id,
            now=transaction.now,
        )
    }
    rows = [moved[id_] for _, id_ in taken if id_ in moved]
    transaction.tell(
        [
            EventRow(
                root_id,
                id_,
                EventType.CLAIMED,
                f'{{"attempt":{attempt}}}',
                wanted.worker_id,
                transaction.now,
            )
            for id_, root_id, *_, attempt, _, _, _, _ in rows
        ]
    )
    return [_claimed(row, wanted.worker_id, transaction.now) for row in rows]


def _take(
    transaction: Transaction, wanted: Wanted, lanes: Sequence[tuple[Lane, int]]
) -> list[tuple[int, str]]:
    taken: list[tuple[int, str]] = []
    tasks = encode_strings(sorted(wanted.tasks))
    has_suspect = False
    for lane, low_water in lanes:
        left = wanted.limit - len(taken)
        if left == 0:
            break
        if lane.suspect and has_suspect:
            continue
        rows = transaction.rows(
            "take_from_outbox",
            **lane._asdict(),
            low_water=low_water,
            tasks=tasks,
            limit=1 if lane.suspect else left,
            most_steps=MOST_STEPS,
        )
        has_suspect = has_suspect or (lane.suspect and bool(rows))
        taken += sorted((seq, id_) for seq, id_ in rows)
    return taken


def _claimed(row: Row, worker_id: str, now: int) -> Claimed:
    (
        id_, _, fence, task, args, queue, priority, seq, attempt, retries, crashes, suspect, serial,
    ) = row  # fmt: skip
    return Claimed(
        lease=Lease(id_, fence, worker_id),
        task=task,
        args=args,
        queue=queue,
        priority=priority,
        seq=seq,
        attempt=attempt,
        retries=retries,
        crashes=crashes,
        suspect=bool(suspect),
        serial=serial,
        claimed_at=moment_at(now),
    )
