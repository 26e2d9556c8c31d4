"""Deep tables, written straight into them: through the store it would take minutes."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from penstock.model.ids import new_id
from penstock.store.batches import microseconds_at
from penstock.store.contract import Store
from tests.contract.databases import TABLES, Database
from tests.contract.support import QUEUE, TASK, claim, enqueue, ids, worker

TOMORROW = timedelta(days=1)
GONE = "worker-that-is-gone"
LINE = "line"  # the serial that all the finished executions and two live ones have
KEY = "order-0"
LIVE = {"ready": 2, "running": 3, "scheduled": 2}


def fill_finished(database: Database, count: int) -> None:
    """Write executions that have just completed, and an event for each."""
    now = _literal(database, datetime.now(UTC))
    _fill(
        database,
        count,
        TASK,
        {
            "state": "'completed'",
            "attempt": "1",
            "fence": "2",
            "settled_fence": "1",
            "key": "'order-' || n",
            "serial": f"'{LINE}'",
            "serial_place": "n",
            "result": "'null'",
            "claimed_at": now,
            "started_at": now,
            "finished_at": now,
        },
    )
    database.query(
        "INSERT INTO execution_events (root_id, task_execution_id, type, at) "
        "SELECT id, id, 'task.completed', finished_at FROM task_executions "
        "WHERE state = 'completed' ORDER BY id"
    )


def fill_scheduled(database: Database, count: int) -> None:
    """Write executions for tomorrow, a microsecond apart."""
    tomorrow = _literal(database, datetime.now(UTC) + TOMORROW)
    step = "n" if database.dialect == "sqlite" else "n * interval '1 microsecond'"
    _fill(database, count, TASK, {"state": "'scheduled'", "run_at": f"{tomorrow} + {step}"})


def fill_ready(database: Database, count: int, *, task: str = TASK) -> None:
    """Write executions that are ready, behind all that are in the outbox already."""
    first = _fill(database, count, task, {"state": "'ready'"})
    database.query(
        "INSERT INTO task_outbox (task_execution_id, queue, priority, task) "
        f"SELECT id, queue, priority, task FROM task_executions WHERE id >= '{first}' ORDER BY id"
    )


def add_live(store: Store, database: Database) -> dict[str, list[str]]:
    """Add seven live executions; return their ids: ready, running, orphan, due and scheduled."""
    worker(store)
    worker(store, GONE)
    orphan = [enqueue(store)]
    assert ids(claim(store, GONE)) == orphan
    store.unregister(GONE)
    running = [enqueue(store, serial=LINE), enqueue(store)]
    assert ids(claim(store)) == running
    ready = [enqueue(store, key=KEY), enqueue(store)]
    due = [enqueue(store, delay=TOMORROW)]
    database.query("UPDATE task_executions SET run_at = created_at WHERE state = 'scheduled'")
    scheduled = [enqueue(store, delay=TOMORROW)]
    return {
        "ready": ready,
        "running": running,
        "orphan": orphan,
        "due": due,
        "scheduled": scheduled,
    }


def gather_statistics(database: Database) -> None:
    for table in TABLES:
        database.query(f"ANALYZE {table}")


def _fill(database: Database, count: int, task: str, columns: Mapping[str, str]) -> str:
    """Write executions with rising ids; return the lowest.

    `columns` are expressions of `n`, which goes from 1 to `count`.
    """
    prefix = new_id()[:24]
    if database.dialect == "sqlite":
        series = (
            "(WITH RECURSIVE line (n) AS "
            f"(SELECT 1 UNION ALL SELECT n + 1 FROM line WHERE n < {count}) SELECT n FROM line)"
        )
        id_ = f"'{prefix}' || printf('%012x', n)"
    else:
        series = f"generate_series(1, {count}) AS line (n)"
        id_ = f"('{prefix}' || lpad(to_hex(n), 12, '0'))::uuid"
    written = {
        "id": id_,
        "root_id": id_,
        "task": f"'{task}'",
        "queue": f"'{QUEUE}'",
        "priority": "0",
        "args": "'{}'",
        "max_crashes": "3",
        "created_at": _literal(database, datetime.now(UTC)),
        **columns,
    }
    database.query(
        f"INSERT INTO task_executions ({', '.join(written)}) "
        f"SELECT {', '.join(written.values())} FROM {series} ORDER BY n"
    )
    return f"{prefix}{1:012x}"


def _literal(database: Database, moment: datetime) -> str:
    if database.dialect == "sqlite":
        return str(microseconds_at(moment))
    return f"'{moment.isoformat()}'::timestamptz"
