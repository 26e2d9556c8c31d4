"""`penstock verify` finds what somebody did to the tables by hand, and says what to do."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest

from penstock.engine.verifying import verify
from penstock.model.ids import new_id
from penstock.model.outcomes import Completed, Failed
from penstock.model.workers import WorkerInfo
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase
from tests.e2e.command_line import ESCAPE, CommandLine, on_terminal, run
from tests.e2e.corruptions import CORRUPTIONS

BROKEN = '{"type":"ValueError","message":"boom"}'
UNKNOWN = "0197a000-0000-7000-8000-00000000beef"
STATEMENT = re.compile(r"\b(?:UPDATE|DELETE FROM|INSERT INTO) .*")


@pytest.fixture
def tables(penstock: CommandLine) -> Iterator[Database]:
    """A way past the store to what the command line will see."""
    database: Database
    if penstock.schema is None:
        database = SqliteDatabase(Path(penstock.url.removeprefix("sqlite:///")))
    else:
        database = PostgresDatabase(penstock.url, penstock.schema)
    yield database
    database.close()


@pytest.fixture
def ids(penstock: CommandLine) -> dict[str, str]:
    """An execution of every kind, by what it is."""
    found: dict[str, str] = {}
    for name in ("completed", "failed", "running", "rerun"):
        found[name] = penstock.enqueue("add")
    with penstock.store() as store:
        store.register(WorkerInfo(id="w1", queues=["default"], tasks=["add"]))
        claims = store.claim("w1", queues=["default"], tasks=["add"], limit=4)
        leases = [claimed.lease for claimed in claims]
        store.start(leases[:3])
        store.settle([Completed(lease=leases[0])])
        store.settle([Failed(lease=lease, error=BROKEN) for lease in (leases[1], leases[3])])
        store.rerun([found["rerun"]])
    found["ready"] = penstock.enqueue("add", priority=3, key="k")
    found["scheduled"] = penstock.enqueue("add", delay=timedelta(hours=1))
    found["head"] = penstock.enqueue("add", serial="line", queue="elsewhere")
    found["behind"] = penstock.enqueue("add", serial="line", queue="elsewhere")
    return found


def test_nothing_is_found_where_nothing_is_wrong(
    penstock: CommandLine, ids: dict[str, str]
) -> None:
    answer = penstock("verify")
    assert (answer.status, answer.err) == (0, "")
    assert answer.out == "Nothing is wrong: verified 8 executions and 27 events.\n"
    assert penstock("verify", "--json").json == {
        "executions": 8,
        "runs": 0,
        "removed": 0,
        "events": 27,
        "complete": True,
        "findings": [],
    }


def test_an_empty_database_is_in_order(penstock: CommandLine) -> None:
    answer = penstock("verify")
    assert (answer.status, answer.out) == (
        0,
        "Nothing is wrong: verified 0 executions and 0 events.\n",
    )


@pytest.fixture
def corrupt(tables: Database, ids: dict[str, str]) -> Callable[[str], set[tuple[str, str]]]:
    """Does what is listed under a name; returns what is to be found, with the ids."""
    known = {**ids, "unknown": UNKNOWN}

    def corrupt(name: str) -> set[tuple[str, str]]:
        done, found = CORRUPTIONS[name]
        for statement in done.split(";"):
            tables.query(statement.format_map(known))
        return {(code, known[whose]) for code, whose in found}

    return corrupt


def by_hand(penstock: CommandLine, statement: str) -> None:
    """Run it as it is told, as a person would who has just opened a shell on the database."""
    if penstock.schema is None:
        with closing(sqlite3.connect(penstock.url.removeprefix("sqlite:///"))) as file, file:
            file.execute(statement)
    else:
        with psycopg.connect(penstock.url) as connection:
            connection.execute(statement.encode())


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_is_found_and_its_remedy_heals_it(
    penstock: CommandLine,
    tables: Database,
    corrupt: Callable[[str], set[tuple[str, str]]],
    name: str,
) -> None:
    expected = corrupt(name)
    answer = penstock("verify", "--json")
    assert answer.status == 1
    findings = answer.json["findings"]
    assert {(one["code"], one["execution_id"]) for one in findings} == expected

    remedies = [STATEMENT.search(one["remedy"]) for one in findings]
    for statement in filter(None, remedies):
        by_hand(penstock, statement.group())
    if None not in remedies:
        left = penstock("verify", "--json").json["findings"]
        # Out of the outbox is half way: then it is to be put back as it should be.
        assert {one["code"] for one in left} <= {"not-in-outbox"}
        for one in left:
            by_hand(penstock, one["remedy"].partition(": ")[2])
        assert penstock("verify").status == 0


def test_a_running_task_without_a_worker_comes_back_after_its_remedy(
    penstock: CommandLine,
    tables: Database,
    ids: dict[str, str],
    corrupt: Callable[[str], set[tuple[str, str]]],
) -> None:
    corrupt("a running execution lost its worker")
    (finding,) = penstock("verify", "--json").json["findings"]
    by_hand(penstock, finding["remedy"].partition(": ")[2])
    with penstock.store() as store:
        store.reconcile("w1", [])
        assert [one.state for one in store.get([ids["running"]])] == ["ready"]
    assert penstock("verify").status == 0


def test_a_serial_without_its_row_is_found_where_serials_have_one(
    on_postgres: CommandLine,
) -> None:
    on_postgres("admin", "migrate")
    head = on_postgres.enqueue("add", serial="line")
    assert on_postgres.schema is not None
    tables = PostgresDatabase(on_postgres.url, on_postgres.schema)
    tables.query("DELETE FROM serials")
    (finding,) = on_postgres("verify", "--json").json["findings"]
    assert (finding["code"], finding["execution_id"]) == ("serial-unknown", head)
    by_hand(on_postgres, finding["remedy"].partition(": ")[2])
    assert on_postgres("verify").status == 0
    tables.close()


def test_a_place_in_the_outbox_that_two_rows_hold_is_found(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    twice = on_sqlite.enqueue("add")
    tables = SqliteDatabase(Path(on_sqlite.url.removeprefix("sqlite:///")))
    tables.query("DROP INDEX task_outbox_execution")
    tables.query("CREATE INDEX task_outbox_execution ON task_outbox (task_execution_id)")
    tables.query(
        "INSERT INTO task_outbox (task_execution_id, queue, priority, task)"
        " SELECT task_execution_id, queue, priority, task FROM task_outbox"
    )
    (finding,) = on_sqlite("verify", "--json").json["findings"]
    assert (finding["code"], finding["execution_id"]) == ("twice-in-outbox", twice)


# --- how it is told -------------------------------------------------------------------


def test_people_are_told_what_is_wrong_and_what_to_do(
    penstock: CommandLine, tables: Database
) -> None:
    execution_id = penstock.enqueue("add")
    tables.query("DELETE FROM task_outbox")
    answer = penstock("verify")
    assert answer.status == 1
    wrong, remedy, summary = answer.out.splitlines()
    assert wrong == (
        f"{execution_id}  not-in-outbox: is ready and not in the outbox: no worker can find it"
    )
    where = "" if penstock.schema is None else f"{penstock.schema}."
    assert remedy.startswith(f"    Give it a place: INSERT INTO {where}task_outbox")
    assert summary == "Verified 1 execution and 2 events: 1 finding."


def test_it_stops_after_so_many_findings_and_says_so(
    penstock: CommandLine, tables: Database
) -> None:
    for _ in range(5):
        penstock.enqueue("add")
    tables.query("DELETE FROM task_outbox")
    answer = penstock("verify", "--limit", "3")
    assert answer.status == 1
    assert answer.out.count("not-in-outbox") == 3
    assert "--limit" in answer.err
    cut = penstock("verify", "--limit", "3", "--json").json
    assert (len(cut["findings"]), cut["complete"]) == (3, False)
    assert penstock("verify", "--json").json["complete"] is True


def test_what_retention_removed_is_counted_and_no_finding(penstock: CommandLine) -> None:
    penstock.enqueue("add")
    with penstock.store() as store:
        store.register(WorkerInfo(id="w1", queues=["default"], tasks=["add"]))
        (claimed,) = store.claim("w1", queues=["default"], tasks=["add"], limit=1)
        store.settle([Completed(lease=claimed.lease)])
        assert store.sweep(older_than=timedelta(0)).removed == 1
    answer = penstock("verify")
    assert answer.status == 0
    assert "the histories of removed executions" in answer.out
    assert penstock("verify", "--json").json["removed"] == 1


def test_a_pipe_is_told_how_far_it_is_on_standard_error(
    penstock: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        penstock.enqueue("add")
    one_by_one = partial(verify, stretch=1)
    monkeypatch.setattr("penstock.cli.verifying.verify", one_by_one)
    answer = penstock("verify", "--json")
    assert answer.json["executions"] == 4
    assert answer.err.splitlines() == [f"verifying executions: {n} of 4" for n in (1, 2, 3)]


def test_a_terminal_sees_a_bar(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    on_sqlite.enqueue("add")
    shown = on_terminal("-m", "penstock", "verify", *on_sqlite.database)
    assert "verifying" in shown
    assert f"{ESCAPE}[32mNothing is wrong" in shown


def test_verify_makes_no_file(on_sqlite: CommandLine) -> None:
    answer = run("-m", "penstock", "verify", *on_sqlite.database)
    assert answer.status == 1
    assert "There is no SQLite file" in answer.err


def test_ids_of_findings_can_be_passed_on(penstock: CommandLine, tables: Database) -> None:
    stuck = penstock.enqueue("add", serial="line"), penstock.enqueue("add", serial="line")
    tables.query(f"DELETE FROM task_executions WHERE id = '{stuck[0]}'")
    tables.query("DELETE FROM task_outbox")
    tables.query(f"DELETE FROM execution_events WHERE root_id = '{stuck[0]}'")
    (finding,) = penstock("verify", "--json").json["findings"]
    assert finding["code"] == "stuck-serial"
    for command in ("cancel", "rerun"):
        assert penstock(command, finding["execution_id"]).status == 0
    assert penstock("verify").status == 0
    assert penstock("show", stuck[1], "--json").json["state"] == "ready"
    assert penstock("show", new_id()).status == 1
