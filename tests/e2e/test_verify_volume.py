"""`penstock verify` needs little memory, however much there is to verify."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase
from tests.e2e.command_line import CommandLine, run

EVENTS = 150_000
EVENTS_OF_ONE = 5
MOST_MEMORY = 200  # megabytes

# The peak of this very process: what its parent had before it began does not count.
MEASURED = """
import re
from pathlib import Path
from penstock.cli import commands
commands({arguments!r}, standalone_mode=False)
(peak,) = re.findall(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(int(peak) // 1024)
"""

FIELDS = "root_id, task_execution_id, type, data, worker_id, at"
HISTORY = """
SELECT 1 AS n, 'task.created' AS type, NULL AS data, NULL AS worker_id
UNION ALL SELECT 2, 'task.marked_ready', NULL, NULL
UNION ALL SELECT 3, 'task.claimed', '{"attempt":1}', 'w1'
UNION ALL SELECT 4, 'task.started', NULL, 'w1'
UNION ALL SELECT 5, 'task.completed', NULL, 'w1'
"""


@contextmanager
def past_the_store(penstock: CommandLine) -> Iterator[Database]:
    database: Database
    if penstock.schema is None:
        database = SqliteDatabase(Path(penstock.url.removeprefix("sqlite:///")))
    else:
        database = PostgresDatabase(penstock.url, penstock.schema)
    yield database
    database.close()


def series(database: Database, count: int) -> str:
    if database.dialect == "sqlite":
        return (
            "(WITH RECURSIVE line (n) AS "
            f"(SELECT 1 UNION ALL SELECT n + 1 FROM line WHERE n < {count}) SELECT n FROM line)"
        )
    return f"generate_series(1, {count}) AS line (n)"


def fill(database: Database, executions: int) -> None:
    """Write completed executions, each with its whole history."""
    prefix = "0197a000-0000-7000-8000-"
    if database.dialect == "sqlite":
        id_, at = f"'{prefix}' || printf('%012x', n)", "1750000000000000"
    else:
        id_ = f"('{prefix}' || lpad(to_hex(n), 12, '0'))::uuid"
        at = "'2025-06-15T15:06:40Z'::timestamptz"
    database.query(
        "INSERT INTO task_executions (id, root_id, task, queue, priority, args, state, attempt,"
        " max_crashes, fence, settled_fence, result, created_at, claimed_at, started_at,"
        " finished_at)"
        f" SELECT {id_}, {id_}, 'add', 'default', 0, '{{}}', 'completed', 1, 3, 2, 1, 'null',"
        f" {at}, {at}, {at}, {at} FROM {series(database, executions)}"
    )
    database.query(
        f"INSERT INTO execution_events ({FIELDS})"
        " SELECT task.id, task.id, told.type, told.data, told.worker_id, task.created_at"
        f" FROM task_executions AS task CROSS JOIN ({HISTORY}) AS told ORDER BY task.id, told.n"
    )


def lengthen_one(database: Database, penstock: CommandLine, events: int) -> None:
    """Let an execution that waits for its serial be rerun and cancelled again and again."""
    head, behind = (penstock.enqueue("add", serial="line") for _ in range(2))
    assert head < behind
    line = series(database, events // 2) + (" AS line" if database.dialect == "sqlite" else "")
    database.query(
        f"INSERT INTO execution_events ({FIELDS})"
        " SELECT task.id, task.id, told.type, NULL, NULL, task.created_at"
        f" FROM {line} CROSS JOIN task_executions AS task CROSS JOIN ("
        "SELECT 1 AS step, 'task.cancelled' AS type UNION ALL SELECT 2, 'task.rerun') AS told"
        f" WHERE task.id = '{behind}' ORDER BY line.n, told.step"
    )


def measured(penstock: CommandLine) -> tuple[str, int]:
    """Verify in a process of its own; return what it said, and its peak in megabytes."""
    answer = run("-c", MEASURED.format(arguments=["verify", *penstock.database]))
    assert answer.status == 0, answer.out + answer.err
    said, peak = answer.out.splitlines()
    return said, int(peak)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of one process")
def test_many_executions_take_little_memory(penstock: CommandLine) -> None:
    with past_the_store(penstock) as database:
        fill(database, EVENTS // EVENTS_OF_ONE)
    said, peak = measured(penstock)
    assert said == (
        f"Nothing is wrong: verified {EVENTS // EVENTS_OF_ONE} executions and {EVENTS} events."
    )
    assert peak < MOST_MEMORY


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak of one process")
def test_one_long_history_takes_little_memory(penstock: CommandLine) -> None:
    with past_the_store(penstock) as database:
        lengthen_one(database, penstock, EVENTS)
    said, peak = measured(penstock)
    assert said.startswith("Nothing is wrong: verified 2 executions and ")
    assert peak < MOST_MEMORY
