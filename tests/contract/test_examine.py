"""What `verify` reads: every execution once, each stretch as it was at one moment."""

import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest

from penstock.engine.verifying import verify
from penstock.model.retelling import Wrong
from penstock.model.states import State
from penstock.model.verifying import findings_in
from penstock.store import examining
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database
from tests.contract.support import (
    claim,
    drain,
    enqueue,
    enqueue_many,
    finish,
    run_one,
    worker,
)


def stretches(store: Store, limit: int) -> list[list[str]]:
    found, after, more = [], None, True
    while more:
        examined = store.examine(after, limit=limit)
        found.append([one.id for one in examined.executions])
        after, more = examined.next, examined.next is not None
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_every_execution_is_in_one_stretch(store: Store, limit: int) -> None:
    ids = enqueue_many(store, 7)
    found = stretches(store, limit)
    assert [one for stretch in found for one in stretch] == sorted(ids)
    assert max(map(len, found)) == min(limit, 7)


def test_a_stretch_of_long_histories_is_shorter(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = enqueue_many(store, 3)
    worker(store)
    assert drain(store) == ids
    monkeypatch.setattr(examining, "EVENTS_PER_EXECUTION", 1)
    examined = store.examine(limit=5)  # so five events, and each execution has four
    assert [one.id for one in examined.executions] == ids[:2]
    assert examined.events == 8
    assert examined.next == ids[1]


def test_a_stretch_can_be_read_again(store: Store) -> None:
    enqueue_many(store, 5)
    first = store.examine(limit=2)
    second = store.examine(first.next, limit=2)
    again = store.examine(first.next, until=second.until, limit=1)
    assert again.executions == second.executions
    assert len(again.executions) == 2


def test_row_outbox_and_history_come_together(store: Store) -> None:
    waiting = [enqueue(store, serial="line", priority=2), enqueue(store, serial="line")]
    running = run_one(store, priority=9).lease
    by_id = {one.id: one for one in store.examine().executions}

    head, behind, active = (by_id[one] for one in [*waiting, running.execution_id])
    assert [(place.queue, place.priority) for place in head.places] == [("default", 2)]
    assert (head.ahead, behind.ahead) == (None, head.id)
    assert behind.places == ()
    assert (active.worker_id, active.told.owner) == (running.worker_id, running.worker_id)
    assert active.told.state is State.RUNNING
    assert active.told.events == 3


def test_histories_outlive_their_executions(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed)])
    clock.advance(timedelta(days=2))
    store.sweep(older_than=timedelta(days=1))
    enqueue(store)

    examined = store.examine()
    assert list(examined.remains) == [claimed.lease.execution_id]
    assert examined.remains[claimed.lease.execution_id].state is State.COMPLETED
    assert findings_in(examined) == []


def test_an_event_about_another_execution_is_found(store: Store, database: Database) -> None:
    first, second = enqueue_many(store, 2)
    moved = {"first": first, "second": second}
    database.query(
        "UPDATE execution_events SET root_id = :first"
        " WHERE root_id = :second AND type = 'task.marked_ready'",
        moved,
    )
    found = {(one.code, one.execution_id) for one in findings_in(store.examine())}
    assert (Wrong.FOREIGN_EVENT, first) in found
    assert (Wrong.STATE_DIFFERS, second) in found

    database.query(
        "UPDATE execution_events SET root_id = :second WHERE task_execution_id = :second", moved
    )
    assert findings_in(store.examine()) == []


def test_nothing_is_seen_half_done(store: Store, database: Database) -> None:
    """A thread enqueues, claims and settles all the time; each look finds all in order."""
    worker(store)
    stop, looks = threading.Event(), 0
    other = database.open()

    def work() -> None:
        while not stop.is_set():
            enqueue_many(other, 5, serial="line")
            enqueue_many(other, 5)
            for one in claim(other):
                other.settle([finish(one)])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        while looks < 40:
            assert findings_in(store.examine(limit=50)) == []
            looks += 1
    finally:
        stop.set()
        thread.join()
        other.close()


@pytest.mark.parametrize("passes", [True, False], ids=["passes", "stays"])
def test_only_what_is_still_wrong_at_a_second_look_is_a_finding(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    execution_id = enqueue(store)
    database.query("UPDATE task_executions SET attempt = 1")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if passes:
            database.query("UPDATE task_executions SET attempt = 0")

    monkeypatch.setattr("penstock.engine.verifying.time", SimpleNamespace(sleep=pause))
    (stretch,) = verify(store, look_again_after=3)
    found = [(one.code, one.execution_id) for one in stretch.findings]
    assert found == ([] if passes else [(Wrong.ATTEMPT_DIFFERS, execution_id)])
    assert pauses == [3]
