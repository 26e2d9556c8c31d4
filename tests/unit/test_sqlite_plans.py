"""The oldest SQLite that we promise takes MATERIALIZED for a mere word, and plans without it."""

import re
import sqlite3
from pathlib import Path

import pytest

from penstock.store.sqlite.store import SqliteStore

ALL_THE_TIME = (
    "look_at_lane", "hand_out", "tell_claimed", "leave_outbox", "tell_completed",
    "settle_completed", "settle",
)  # fmt: skip
GROWING = "task|task_executions|place|task_outbox|execution_events"


@pytest.mark.parametrize("name", ALL_THE_TIME)
def test_no_plan_of_the_hot_path_rests_on_a_hint_that_sqlite_3_35_overlooks(
    store: SqliteStore, tmp_path: Path, name: str
) -> None:
    sql = store.statements[name].sql.replace(" AS MATERIALIZED (", " AS (")
    parameters = dict.fromkeys(re.findall(r":(\w+)", sql), "[]")
    connection = sqlite3.connect(tmp_path / "penstock.db")

    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]

    connection.close()
    walks = rf"SCAN (TABLE )?({GROWING})( AS \w+)?$"
    assert [step for step in steps if re.match(walks, step)] == []
