"""Rows of SQLite that somebody has written past the library: they stop nobody else's."""

import sqlite3

import pytest

from penstock.store.sqlite.store import SqliteStore
from tests.contract.databases import SqliteDatabase
from tests.contract.support import claim, enqueue, ids, worker

BY_HAND = {
    "arguments as bytes": "args = x'7b7d'",
    "arguments as bytes that are no text": "args = x'7bff7d'",
    "arguments in Latin-1": "args = CAST(x'7b226e616d65223a22e9227d' AS TEXT)",
    "a trace as bytes": "trace = x'7b7d'",
    "a trace in Latin-1": "trace = CAST(x'e9' AS TEXT)",
    "a serial as bytes": "serial = x'61'",
    "an attempt as text": "attempt = 'abc'",
    "a fence as text": "fence = 'abc'",
    "a date as text": "created_at = '2030-01-01'",
    "a moment that no calendar has": "run_at = 9223372036854775807",
}


@pytest.mark.parametrize("spoilt", BY_HAND)
def test_a_row_written_by_hand_does_not_stop_those_beside_it(
    sqlite: SqliteDatabase, spoilt: str
) -> None:
    store = sqlite.open()
    worker(store)
    before, middle, after = (enqueue(store) for _ in range(3))
    sqlite.query(f"UPDATE task_executions SET {BY_HAND[spoilt]} WHERE id = :id", {"id": middle})

    claimed = claim(store)

    assert ids(claimed) == [before, middle, after]
    assert [one.args for one in claimed if one.lease.execution_id != middle] == ["{}", "{}"]
    store.close()


def test_an_id_that_json_cannot_carry_is_left_where_it_is(sqlite: SqliteDatabase) -> None:
    """Handed out, it would be so for ever: what is written then would find no row."""
    store = sqlite.open()
    worker(store)
    before, middle, after = (enqueue(store) for _ in range(3))
    for table, column in (("task_executions", "id"), ("task_outbox", "task_execution_id")):
        change = f"UPDATE {table} SET {column} = CAST(x'62ff' AS TEXT) WHERE {column} = :id"
        sqlite.query(change, {"id": middle})

    assert ids(claim(store)) == [before, after]
    assert claim(store) == []

    told = sqlite.query("SELECT root_id FROM execution_events WHERE type = 'task.claimed'")
    assert [row[0] for row in told] == [before, after]
    sqlite.query("UPDATE task_executions SET id = root_id")
    sqlite.query("UPDATE task_outbox SET task_execution_id = :id", {"id": middle})
    assert ids(claim(store)) == [middle]
    store.close()


def test_a_claim_that_raises_has_handed_out_nothing(sqlite: SqliteDatabase) -> None:
    store = sqlite.open()
    worker(store)
    first, second = enqueue(store), enqueue(store)
    sqlite.query(
        "UPDATE task_executions SET run_at = 9223372036854775807 WHERE id = :id", {"id": second}
    )

    try:
        handed_out = ids(claim(store))
    except Exception:  # noqa: BLE001 - whatever it says, nobody has got anything
        handed_out = []

    running = sqlite.query("SELECT id FROM task_executions WHERE state = 'running' ORDER BY id")
    assert [row[0] for row in running] == handed_out
    assert first in handed_out or running == []
    store.close()


def test_what_is_too_much_for_one_value_of_sqlite_is_handed_out_all_the_same(
    sqlite: SqliteDatabase,
) -> None:
    store = SqliteStore(sqlite.path)
    worker(store)
    large = '{"text":"' + "x" * 400_000 + '"}'
    wanted = [enqueue(store, args=large) for _ in range(5)]
    # As 500 executions of 2 MB would be with SQLite's own limit.
    store._file._opened_writer().setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)

    found: list[str] = []
    for _ in wanted:
        found += ids(claim(store))

    assert found == wanted
    store.close()
