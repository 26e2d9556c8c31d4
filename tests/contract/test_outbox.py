"""The outbox is the only way to a worker."""

import sqlite3
from datetime import timedelta

import psycopg
import pytest

from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database, SqliteDatabase, count
from tests.contract.support import MINUTE, claim, enqueue, enqueue_many, finish, ids, worker


def test_a_row_set_ready_by_hand_is_never_claimed(
    store: Store, database: Database, clock: ManualClock
) -> None:
    worker(store)
    task_id = enqueue(store, delay=MINUTE)
    by_hand = "UPDATE task_executions SET state = :state WHERE id = :id"
    database.query(by_hand, {"state": "ready", "id": task_id})

    assert claim(store) == []
    clock.advance("1h")
    assert store.promote().promoted == 0
    assert claim(store) == []

    # Set right again, it runs: only its place in the outbox was missing.
    database.query(by_hand, {"state": "scheduled", "id": task_id})
    assert store.promote().promoted == 1
    assert ids(claim(store)) == [task_id]


def test_a_second_place_in_the_outbox_is_refused(store: Store, database: Database) -> None:
    task_id = enqueue(store)

    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
        database.query(
            "INSERT INTO task_outbox (task_execution_id, queue, priority, task)"
            " SELECT task_execution_id, queue, priority, task FROM task_outbox"
        )

    assert count(database, "task_outbox") == 1
    worker(store)
    assert ids(claim(store)) == [task_id]


def test_a_place_in_the_outbox_does_not_hand_out_a_running_task(
    store: Store, database: Database
) -> None:
    worker(store)
    task_id = enqueue(store)
    (running,) = claim(store)
    database.query(
        "INSERT INTO task_outbox (task_execution_id, queue, priority, task)"
        " SELECT id, queue, priority, task FROM task_executions WHERE id = :id",
        {"id": task_id},
    )

    assert claim(store) == []

    assert store.settle([finish(running)]) == []
    database.query("DELETE FROM task_outbox")


def test_arguments_written_as_bytes_stop_nobody_s_claim(sqlite: SqliteDatabase) -> None:
    store = sqlite.open()
    worker(store)
    wanted = enqueue_many(store, 3)
    sqlite.query(
        "UPDATE task_executions SET args = CAST('{}' AS blob) WHERE id = :id", {"id": wanted[1]}
    )

    claimed = claim(store)

    assert ids(claimed) == wanted
    assert claimed[1].args == "{}"
    store.settle([finish(one) for one in claimed])
    store.close()


def test_the_sequence_does_not_start_again_when_the_outbox_is_empty(store: Store) -> None:
    worker(store)
    sequence = []
    for _ in range(3):
        enqueue_many(store, 2)
        sequence += [claimed.seq for claimed in claim(store)]

    assert sequence == sorted(set(sequence))


def test_the_sequence_does_not_start_again_when_the_history_is_removed(
    store: Store, database: Database, clock: ManualClock
) -> None:
    worker(store)
    sequence = []
    for remove in (_sweep, _dismiss, _remove_by_hand):
        enqueue_many(store, 2)
        claimed = claim(store)
        sequence += [one.seq for one in claimed]
        store.settle(
            [finish(one, "failed" if remove is _dismiss else "completed") for one in claimed]
        )
        clock.advance("30d")
        remove(store, database, ids(claimed))
        assert count(database, "execution_events") == 0
    enqueue_many(store, 2)
    sequence += [one.seq for one in claim(store)]

    assert sequence == sorted(set(sequence))


def _sweep(store: Store, database: Database, executions: list[str]) -> None:
    del database, executions
    store.sweep(older_than=timedelta(days=1))
    store.sweep_events(older_than=timedelta(days=1))


def _dismiss(store: Store, database: Database, executions: list[str]) -> None:
    del database
    store.dismiss(executions)


def _remove_by_hand(store: Store, database: Database, executions: list[str]) -> None:
    del store, executions
    database.query("DELETE FROM execution_events")


def test_each_place_is_behind_those_that_were_given_before(
    store: Store, clock: ManualClock
) -> None:
    worker(store)
    later = enqueue_many(store, 3, delay=MINUTE)
    wanted = [enqueue(store), *enqueue_many(store, 3), enqueue(store), *enqueue_many(store, 2)]
    clock.advance(MINUTE)
    store.promote()
    wanted += [*later, enqueue(store)]

    claimed = claim(store, limit=100)

    sequence = [one.seq for one in claimed]
    assert ids(claimed) == wanted
    assert sequence == sorted(set(sequence))


def test_the_outbox_holds_due_work_alone(
    store: Store, database: Database, clock: ManualClock
) -> None:
    worker(store)
    enqueue_many(store, 3)
    enqueue_many(store, 5, delay=MINUTE)
    enqueue_many(store, 4, serial="line")
    assert count(database, "task_outbox") == 3 + 1

    store.settle([finish(one, "retry") for one in claim(store, limit=2)])
    assert count(database, "task_outbox") == 2

    clock.advance(MINUTE)
    assert store.promote().promoted == 5 + 2
    assert count(database, "task_outbox") == 2 + 5 + 2
