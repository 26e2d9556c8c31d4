"""admin migrate and admin sql, and what the other commands do without tables."""

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.e2e.command_line import CommandLine

READING = [("list",), ("workers",), ("status",), ("pause", "mail")]


def execute(command_line: CommandLine, script: str) -> None:
    if command_line.schema is None:
        with closing(sqlite3.connect(command_line.directory / "shop.db")) as connection:
            connection.executescript(script)
    else:
        with psycopg.connect(command_line.url, autocommit=True) as connection:
            connection.execute(script.encode())


def test_migrate_makes_the_tables_once(new_database: CommandLine) -> None:
    first, second = new_database("admin", "migrate"), new_database("admin", "migrate")
    assert (first.status, second.status) == (0, 0)
    assert first.out.startswith("Ran migration 1")
    assert second.out.startswith("Nothing to do")
    assert new_database("list").status == 0


def test_the_printed_sql_leaves_what_migrate_would_leave(new_database: CommandLine) -> None:
    script = new_database("admin", "sql")
    assert script.status == 0
    execute(new_database, script.out)
    assert new_database("admin", "migrate").out.startswith("Nothing to do")
    execution_id = new_database.enqueue("add", key="k", serial="s")
    assert new_database("show", execution_id, "--json").json["state"] == "ready"


def test_sql_touches_no_database(on_sqlite: CommandLine) -> None:
    assert "CREATE TABLE" in on_sqlite("admin", "sql").out
    assert list(on_sqlite.directory.iterdir()) == []
    nowhere = CommandLine(on_sqlite.directory, "postgresql://localhost:1/nowhere", "tenant_a")
    script = nowhere("admin", "sql")
    assert script.status == 0
    assert 'CREATE TABLE "tenant_a".task_executions' in script.out
    assert "penstock.task" not in script.out


@pytest.mark.parametrize("arguments", READING)
def test_postgres_without_tables_is_left_as_it_is(
    on_postgres: CommandLine, arguments: tuple[str, ...]
) -> None:
    answer = on_postgres(*arguments)
    assert answer.status == 1
    assert "penstock admin migrate" in answer.err
    with psycopg.connect(on_postgres.url) as connection:
        schemas = connection.execute(
            "SELECT count(*) FROM pg_namespace WHERE nspname = %s", [on_postgres.schema]
        ).fetchone()
    assert schemas == (0,)


@pytest.mark.parametrize("arguments", READING)
def test_a_sqlite_file_that_is_not_there_is_not_made(
    on_sqlite: CommandLine, arguments: tuple[str, ...]
) -> None:
    answer = on_sqlite(*arguments)
    assert answer.status == 1
    assert "There is no SQLite file" in answer.err
    assert list(on_sqlite.directory.iterdir()) == []


def test_a_database_in_memory_is_nothing_to_look_at(tmp_path: Path) -> None:
    answer = CommandLine(tmp_path, "sqlite:///:memory:")("list")
    assert answer.status == 1
    assert "seen by its own process alone" in answer.err


def test_a_server_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    answer = CommandLine(tmp_path, "postgresql://me:secret@localhost:1/shop")("list")
    assert answer.status == 1
    assert "postgresql://me:***@localhost:1/shop does not answer" in answer.err
    assert "secret" not in answer.err
    assert len(answer.err.splitlines()) == 1
