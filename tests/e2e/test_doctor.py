"""doctor finds each planted problem on the database where it can be, and nothing on a well one."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from penstock import App, all_done
from penstock.model.ids import new_id
from penstock.model.outcomes import Failed
from penstock.model.workers import WorkerInfo
from penstock.store.contract import Store
from penstock.store.postgres import inspecting as inspecting_postgres
from penstock.store.sqlite import inspecting as inspecting_sqlite
from tests.e2e.command_line import Answer, CommandLine
from tests.e2e.flows import work

FIXED = (3, 51, 3)
INDEX = "task_executions_due"


@pytest.fixture(autouse=True)
def newest_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine's library is must not decide whether all is well."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", FIXED)


@pytest.fixture
def postgres(on_postgres: CommandLine) -> CommandLine:
    assert on_postgres("admin", "migrate").status == 0
    return on_postgres


@pytest.fixture
def sqlite(on_sqlite: CommandLine) -> CommandLine:
    assert on_sqlite("admin", "migrate").status == 0
    return on_sqlite


def findings(answer: Answer, level: str) -> dict[str, str]:
    """What was found, by check; each but ok says what to do."""
    found = [one for one in answer.json["findings"] if one["level"] == level]
    assert level == "ok" or all(one["remedy"] for one in found)
    return {one["check"]: one["message"] for one in found}


def execute(penstock: CommandLine, *statements: str) -> None:
    """Run what both databases understand; tables have no schema."""
    if penstock.schema is None:
        with closing(sqlite3.connect(penstock.directory / "shop.db")) as file, file:
            for statement in statements:
                file.execute(statement)
        return
    options = f"-c search_path={penstock.schema}"
    with psycopg.connect(penstock.url, autocommit=True, options=options) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def register(store: Store, worker_id: str = "w", *, tasks: tuple[str, ...] = ("add",)) -> None:
    store.register(WorkerInfo(id=worker_id, queues=("default",), tasks=tasks, slots=1))


def days_ago(penstock: CommandLine, days: int) -> str:
    """An expression for that moment."""
    if penstock.schema is None:
        return str(int((datetime.now(UTC) - timedelta(days=days)).timestamp() * 1_000_000))
    return f"now() - interval '{days} days'"


# --- a well one -------------------------------------------------------------------------


def test_nothing_is_found_where_nothing_has_happened_yet(penstock: CommandLine) -> None:
    answer = penstock("doctor", "--json")
    assert answer.status == 0
    assert (answer.json["problems"], answer.json["warnings"]) == (0, 0)
    assert len(answer.json["findings"]) > 8


def test_nothing_is_found_where_work_is_being_done(penstock: CommandLine) -> None:
    with penstock.store() as store:
        register(store)
        penstock.enqueue("add")
        (claimed,) = store.claim("w", queues=["default"], tasks=["add"], limit=1)
        store.settle([Failed(lease=claimed.lease, error='{"type":"E","message":"m"}')])
        penstock.enqueue("add")
    answer = penstock("doctor")
    assert answer.status == 0
    assert answer.out.splitlines()[-1].startswith("0 problems, 0 warnings, ")
    assert "1 task ready, the oldest for 0s." in answer.out


# --- the tables -------------------------------------------------------------------------


def test_tables_that_are_missing_are_a_problem_and_stay_missing(on_postgres: CommandLine) -> None:
    answer = on_postgres("doctor", "--json")
    assert answer.status == 1
    assert "no Penstock tables" in findings(answer, "problem")["schema version"]
    assert on_postgres("doctor", "--json").status == 1


def test_a_file_without_tables_is_told_from_one_with(on_sqlite: CommandLine) -> None:
    with closing(sqlite3.connect(on_sqlite.directory / "shop.db")) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    assert "schema version" in findings(on_sqlite("doctor", "--json"), "warning")


def test_tables_of_a_version_to_come_are_a_problem(penstock: CommandLine) -> None:
    execute(
        penstock,
        "UPDATE schema_version SET version = 99, min_compatible = 99 "
        "WHERE version = (SELECT max(version) FROM schema_version)",
    )
    answer = penstock("doctor", "--json")
    assert answer.status == 1
    assert "version 99" in findings(answer, "problem")["schema version"]


def test_an_index_that_is_missing_is_named_with_what_is_slow_without_it(
    penstock: CommandLine,
) -> None:
    execute(penstock, f"DROP INDEX {INDEX}")
    answer = penstock("doctor", "--json")
    assert answer.status == 1
    assert INDEX in findings(answer, "problem")["indexes"]


def test_an_index_without_which_the_work_cannot_be_looked_at_is_named(sqlite: CommandLine) -> None:
    execute(sqlite, "DROP INDEX execution_events_root")
    found = findings(sqlite("doctor", "--json"), "problem")
    assert "execution_events_root missing" in found["indexes"]
    assert "no such index: execution_events_root" in found["work"]


def test_a_statement_that_reads_a_whole_table_is_found_by_its_plan(
    postgres: CommandLine,
) -> None:
    execute(
        postgres,
        f"DROP INDEX {INDEX}",
        f"CREATE INDEX {INDEX} ON task_executions (run_at) WHERE state = 'ready'",
    )
    found = findings(postgres("doctor", "--json"), "problem")
    assert "promote reads all of task_executions" in found["indexes"]


def test_a_sqlite_statement_that_reads_a_whole_table_is_found_by_its_plan(
    sqlite: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting_sqlite, "HOT", ("promote", "counts"))
    found = findings(sqlite("doctor", "--json"), "problem")
    assert found["indexes"] == "counts reads all of task_executions."


# --- the server -------------------------------------------------------------------------


def test_another_isolation_is_a_problem(postgres: CommandLine) -> None:
    options = "options=-c%20default_transaction_isolation%3Dserializable"
    strict = replace(postgres, url=f"{postgres.url}?{options}")
    answer = strict("doctor", "--json")
    assert answer.status == 1
    assert "serializable" in findings(answer, "problem")["isolation"]


def test_a_setting_that_does_not_arrive_is_told(postgres: CommandLine) -> None:
    answer = replace(postgres, url=f"{postgres.url}?options=-c%20enable_sort%3Don")(
        "doctor", "--json"
    )
    assert answer.status == 0
    assert "do not arrive" in findings(answer, "warning")["isolation"]


@pytest.mark.parametrize(
    ("minutes", "level", "told"),
    [(0.5, "warning", "behind"), (-0.5, "warning", "ahead of"), (5, "problem", "behind")],
)
def test_a_clock_that_is_off_is_told_with_its_direction(
    postgres: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    minutes: float,
    level: str,
    told: str,
) -> None:
    monkeypatch.setattr(
        inspecting_postgres, "host_now", lambda: datetime.now(UTC) + timedelta(minutes=minutes)
    )
    answer = postgres("doctor", "--json")
    assert answer.status == (1 if level == "problem" else 0)
    assert told in findings(answer, level)["clock"]


def test_a_notification_that_does_not_arrive_is_a_problem(
    postgres: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting_postgres, "NOTIFIED_WITHIN", 0.1)
    elsewhere = urlsplit(postgres.url)._replace(path="/template1")  # notifications stay at home
    monkeypatch.setenv("PENSTOCK_DATABASE_LISTEN_URL", urlunsplit(elsewhere))
    assert "did not arrive" in findings(postgres("doctor", "--json"), "problem")["LISTEN"]


def test_a_server_where_nobody_can_listen_is_a_problem(
    postgres: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_LISTEN_URL", "postgresql://localhost:1/nowhere")
    assert "cannot listen" in findings(postgres("doctor", "--json"), "problem")["LISTEN"]


def test_notifications_that_were_switched_off_are_told(
    postgres: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_NOTIFY", "false")
    assert "switched off" in findings(postgres("doctor", "--json"), "ok")["LISTEN"]


@pytest.mark.parametrize(
    ("limit", "level"), [("LONG_TRANSACTION", "warning"), ("ENDLESS_TRANSACTION", "problem")]
)
def test_a_transaction_that_stays_open_is_told_with_how_to_end_it(
    postgres: CommandLine, monkeypatch: pytest.MonkeyPatch, limit: str, level: str
) -> None:
    monkeypatch.setattr(inspecting_postgres, "LONG_TRANSACTION", timedelta())
    monkeypatch.setattr(inspecting_postgres, limit, timedelta())
    with psycopg.connect(postgres.url, application_name="forgetful") as connection:
        connection.execute("SELECT 1")
        answer = postgres("doctor", "--json")
        (found,) = [one for one in answer.json["findings"] if one["check"] == "open transactions"]
        assert f"pg_terminate_backend({connection.info.backend_pid})" in found["remedy"]
    assert found["level"] == level
    assert "forgetful (idle in transaction)" in found["message"]


def test_dead_rows_that_nobody_removes_are_told(
    postgres: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting_postgres, "MANY_DEAD", 100)
    execute(
        postgres,
        "ALTER TABLE paused_queues SET (autovacuum_enabled = off)",
        "INSERT INTO paused_queues SELECT n::text, now() FROM generate_series(1, 200) AS line (n)",
        "DELETE FROM paused_queues",
    )
    found = findings(postgres("doctor", "--json"), "warning")
    assert "paused_queues has 200 dead rows" in found["dead tuples"]


# --- the file ---------------------------------------------------------------------------


def test_a_sqlite_with_the_wal_reset_bug_is_told(
    sqlite: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 51, 2))
    answer = sqlite("doctor", "--json")
    assert answer.status == 0
    assert "3.51.2 has the WAL-reset bug" in findings(answer, "warning")["SQLite version"]


def test_another_journal_mode_is_a_problem(sqlite: CommandLine) -> None:
    with closing(sqlite3.connect(sqlite.directory / "shop.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    answer = sqlite("doctor", "--json")
    assert answer.status == 1
    assert "'delete'" in findings(answer, "problem")["journal mode"]


def test_a_log_that_a_reader_holds_back_is_told(
    sqlite: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting_sqlite, "LARGE_LOG", 1000)
    with closing(sqlite3.connect(sqlite.directory / "shop.db")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM task_executions").fetchone()
        sqlite.enqueue("add")
        with sqlite.store() as store:
            register(store)
        assert "write-ahead log" in findings(sqlite("doctor", "--json"), "warning")


# --- the work ---------------------------------------------------------------------------


def test_ready_work_without_any_worker_is_a_problem(penstock: CommandLine) -> None:
    penstock.enqueue("add")
    answer = penstock("doctor", "--json")
    assert answer.status == 1
    assert "1 task ready, and no worker is alive." in findings(answer, "problem")["known tasks"]


@pytest.mark.parametrize("options", [{"task": "ad"}, {"task": "add", "queue": "mail"}])
def test_ready_work_that_no_live_worker_takes_is_a_problem(
    penstock: CommandLine, options: dict[str, str]
) -> None:
    penstock.enqueue(**options)
    with penstock.store() as store:
        register(store)
    answer = penstock("doctor", "--json")
    assert answer.status == 1
    named = f"{options['task']} in queue {options.get('queue', 'default')}"
    assert named in findings(answer, "problem")["known tasks"]


def test_a_worker_that_fell_silent_does_not_count(penstock: CommandLine) -> None:
    penstock.enqueue("add")
    with penstock.store() as store:
        register(store)
    execute(penstock, f"UPDATE workers SET beat_at = {days_ago(penstock, 1)}")
    answer = penstock("doctor", "--json")
    assert answer.status == 1
    assert "sent no heartbeat for up to 1d" in findings(answer, "warning")["workers"]
    assert "no worker is alive" in findings(answer, "problem")["known tasks"]


def test_work_that_has_been_ready_for_long_is_told(penstock: CommandLine) -> None:
    penstock.enqueue("add")
    with penstock.store() as store:
        register(store)
    execute(penstock, f"UPDATE execution_events SET at = {days_ago(penstock, 2)}")
    answer = penstock("doctor", "--json")
    assert answer.status == 0
    assert "has been ready for 2d" in findings(answer, "warning")["oldest ready task"]


def test_the_age_of_work_without_a_history_is_that_of_its_row(penstock: CommandLine) -> None:
    penstock.enqueue("add")
    with penstock.store() as store:
        register(store)
    execute(
        penstock,
        "DELETE FROM execution_events",
        f"UPDATE task_executions SET created_at = {days_ago(penstock, 2)}",
    )
    answer = penstock("doctor", "--json")
    assert "has been ready for 2d" in findings(answer, "warning")["oldest ready task"]


def test_work_in_a_paused_queue_is_told_and_not_late(penstock: CommandLine) -> None:
    penstock.enqueue("add")
    with penstock.store() as store:
        store.pause("default")
    execute(penstock, f"UPDATE execution_events SET at = {days_ago(penstock, 2)}")
    answer = penstock("doctor", "--json")
    assert answer.status == 0
    assert list(findings(answer, "warning")) == ["paused queues"]


def test_failures_that_nobody_looked_at_are_told(penstock: CommandLine) -> None:
    penstock.enqueue("add")
    with penstock.store() as store:
        register(store)
        (claimed,) = store.claim("w", queues=["default"], tasks=["add"], limit=1)
        store.settle([Failed(lease=claimed.lease, error='{"type":"E","message":"m"}')])
    execute(penstock, f"UPDATE task_executions SET finished_at = {days_ago(penstock, 8)}")
    found = findings(penstock("doctor", "--json"), "warning")
    assert "1 execution failed more than 7d ago, the first 8d ago" in found["failed executions"]
    (one,) = penstock("list", "--json").json
    assert penstock("dismiss", one["id"]).status == 0
    assert "failed executions" in findings(penstock("doctor", "--json"), "ok")


def test_a_failure_that_its_run_forgave_needs_nobody(penstock: CommandLine) -> None:
    app = App(penstock.url, schema=penstock.schema)
    forgiving, strict = app.workflow("forgiving"), app.workflow("strict")

    @forgiving.task(retry=None)
    def stumble() -> None:
        raise ValueError

    @forgiving.task(after=[stumble], when=all_done)
    def go_on() -> None: ...

    @strict.task(retry=None)
    def fall() -> None:
        raise ValueError

    forgiving.start()
    work(app)
    old = f"UPDATE task_executions SET finished_at = {days_ago(penstock, 8)}"
    execute(penstock, old)
    assert "failed executions" in findings(penstock("doctor", "--json"), "ok")
    strict.start()
    work(app)
    execute(penstock, old)
    app.close()
    found = findings(penstock("doctor", "--json"), "warning")
    assert "1 execution failed more than" in found["failed executions"]


# --- the settings -----------------------------------------------------------------------


def test_a_lease_of_few_heartbeats_is_told(
    penstock: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_WORKER_LEASE", "6s")
    found = findings(penstock("doctor", "--json"), "warning")
    assert "A lease of 6s is 2 heartbeats of 3s" in found["heartbeats"]


def old_id(days: int) -> str:
    """An id that was made so long ago."""
    stamp = f"{int((datetime.now(UTC) - timedelta(days=days)).timestamp() * 1000):012x}"
    return f"{stamp[:8]}-{stamp[8:]}-{new_id()[14:]}"


def test_what_no_worker_removed_in_time_is_told(penstock: CommandLine) -> None:
    execution_id = old_id(40)
    execute(
        penstock,
        "INSERT INTO task_executions (id, root_id, task, queue, priority, args, state, "
        "max_crashes, created_at, finished_at) VALUES "
        f"('{execution_id}', '{execution_id}', 'add', 'default', 0, '{{}}', 'completed', 3, "
        f"{days_ago(penstock, 40)}, {days_ago(penstock, 32)})",
    )
    found = findings(penstock("doctor", "--json"), "warning")
    assert found["retention"].startswith("There are executions that should have been removed")


def test_histories_that_go_before_their_executions_are_told(
    penstock: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_EXECUTION_EVENTS_RETENTION_DAYS", "7")
    found = findings(penstock("doctor", "--json"), "warning")
    assert "without their history" in found["retention"]


# --- an App -----------------------------------------------------------------------------

TASKS = """
from penstock import App, TaskHandle

app = App()

@app.task
def careful(handle: TaskHandle) -> None: ...

@app.task(retry=None)
def once() -> None: ...

@app.task(retry=["1s", "10s"])
def hasty() -> None: ...
"""


def test_tasks_that_give_up_at_once_or_soon_are_told(sqlite: CommandLine) -> None:
    Path("shop_to_check.py").write_text(TASKS, "utf-8")
    found = findings(sqlite.alone("doctor", "shop_to_check:app", "--json"), "warning")
    assert found["retries"] == "Tasks that are never retried: once; given up within 1m: hasty."


def test_tasks_without_a_handle_are_noted_gently(sqlite: CommandLine) -> None:
    Path("shop_to_check.py").write_text(TASKS, "utf-8")
    answer = sqlite.alone("doctor", "shop_to_check:app")
    assert answer.status == 0
    assert "2 of 3 tasks take no handle: hasty, once." in answer.out
    assert "handle.execution_id" in answer.out
    assert "idempotency" not in sqlite("doctor").out
