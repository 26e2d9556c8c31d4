"""A mistake of the user's, or a database that is not as it should be: one sentence, what next."""

import os
import signal
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import errors, sql

from penstock.testing.proxy import proxy_to
from tests.e2e.command_line import Answer, CommandLine, wait_until

NOBODY = 65534


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """A SQLite file in a directory that everybody may look into, and only we may write to."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "data"
        directory.mkdir()
        for one in (directory, directory.parent):
            one.chmod(0o755)
        monkeypatch.chdir(name)
        public = CommandLine(directory, f"sqlite:///{directory}/shop.db")
        assert public("admin", "migrate").status == 0
        yield public
        directory.chmod(0o755)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights that root has over every file; everybody else has lost none to lose."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def one_sentence(answer: Answer, *, status: int = 1) -> str:
    assert answer.status == status
    assert answer.out == ""
    (line,) = answer.err.splitlines()
    assert "Traceback" not in line
    assert line.endswith(".")
    return line


# --- files ------------------------------------------------------------------------------


def test_a_file_that_may_not_be_read_says_whose_it_should_be(public: CommandLine) -> None:
    (public.directory / "shop.db").chmod(0)
    with as_nobody():
        told = one_sentence(public("list"))
    assert "shop.db' cannot be used: you may not read it." in told
    assert "Run the command as the user whose workers use it" in told


def test_a_file_that_may_not_be_written_to_can_be_told_from_one_that_can(
    public: CommandLine,
) -> None:
    (public.directory / "shop.db").chmod(0o444)
    public.directory.chmod(0o555)
    with as_nobody():
        told = one_sentence(public("pause", "mail"))
    assert "you may not write to it" in told


def test_a_directory_that_may_not_be_looked_into_is_named(public: CommandLine) -> None:
    public.directory.chmod(0)
    with as_nobody():
        told = one_sentence(public("list"))
    assert "its directory may not be looked into" in told


def test_a_file_that_is_something_else_is_told_so(on_sqlite: CommandLine) -> None:
    (on_sqlite.directory / "shop.db").write_text("shopping list\n" * 99, "utf-8")
    assert "shop.db' is not a SQLite database." in one_sentence(on_sqlite("status"))


def test_a_directory_is_no_file(on_sqlite: CommandLine) -> None:
    (on_sqlite.directory / "shop.db").mkdir()
    assert "that is a directory. Name a file in it." in one_sentence(on_sqlite("status"))


def test_a_file_in_a_directory_that_is_not_there_is_told_so(on_sqlite: CommandLine) -> None:
    on_sqlite.directory.rmdir()
    told = one_sentence(on_sqlite("admin", "migrate"))
    assert f"the directory {on_sqlite.directory} does not exist. Make the directory" in told


# --- servers ----------------------------------------------------------------------------


def execute(penstock: CommandLine, script: str) -> None:
    if penstock.schema is None:
        with closing(sqlite3.connect(penstock.directory / "shop.db")) as connection:
            connection.executescript(script)
    else:
        with psycopg.connect(penstock.url, autocommit=True) as connection:
            connection.execute(sql.SQL("SET search_path = {}").format(_schema(penstock)))
            connection.execute(script.encode())


def _schema(penstock: CommandLine) -> sql.Identifier:
    assert penstock.schema is not None
    return sql.Identifier(penstock.schema)


@pytest.mark.parametrize("arguments", [("status",), ("why", str(uuid.uuid4())), ("pause", "mail")])
def test_tables_of_a_later_version_ask_for_an_upgrade(
    penstock: CommandLine, arguments: tuple[str, ...]
) -> None:
    columns = "version, name, checksum, min_compatible, database_id, applied_at"
    copied = "999, name, checksum, 999, database_id, applied_at"
    execute(
        penstock,
        f"INSERT INTO schema_version ({columns}) SELECT {copied} FROM schema_version LIMIT 1",
    )
    told = one_sentence(penstock(*arguments))
    assert "have version 999" in told
    assert told.endswith("Upgrade Penstock here.")


@pytest.fixture
def stranger(on_postgres: CommandLine) -> Iterator[CommandLine]:
    """The same database for a role that has no right to our tables."""
    role, password = f"stranger_{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    name = sql.Identifier(role)
    assert on_postgres("admin", "migrate").status == 0
    with psycopg.connect(on_postgres.url, autocommit=True) as connection:
        try:
            connection.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(password))
            )
        except errors.InsufficientPrivilege:
            pytest.skip("the user of this server may not create roles")
        parts = urlsplit(on_postgres.url)
        host = parts.netloc.rpartition("@")[2]
        url = urlunsplit(parts._replace(netloc=f"{role}:{password}@{host}"))
        yield replace(on_postgres, url=url)
        connection.execute(sql.SQL("DROP ROLE {}").format(name))


def test_a_benchmark_where_no_file_can_be_made_says_so(public: CommandLine) -> None:
    public.directory.chmod(0o555)
    with as_nobody():
        told = one_sentence(public("bench"))
    assert "you may not write to its directory" in told


def test_a_benchmark_by_a_role_that_may_make_no_schema_says_so(stranger: CommandLine) -> None:
    told = one_sentence(stranger("bench"))
    assert "may not: permission denied for database" in told
    assert "GRANT CREATE ON DATABASE" in told
    assert (urlsplit(stranger.url).password or "") not in told


def test_a_role_without_rights_is_told_what_it_may_not_do(stranger: CommandLine) -> None:
    told = one_sentence(stranger("status"))
    assert "may not do this: permission denied for schema" in told
    assert "grant it what docs/how-to/operate/grant-privileges.md lists" in told
    assert (urlsplit(stranger.url).password or "") not in told


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_worker_without_rights_is_told_so_in_one_sentence(
    stranger: CommandLine, log_format: str
) -> None:
    stranger.open_shop()
    quiet = ("--log-level", "error", "--log-format", log_format)
    told = one_sentence(stranger.alone("worker", "shop:app", *quiet))
    assert "may not do this: permission denied" in told
    assert told.endswith("or use a role that has it.")


def test_who_enqueues_without_rights_is_told_so_in_one_sentence(stranger: CommandLine) -> None:
    stranger.open_shop()
    told = one_sentence(stranger.alone("enqueue", "shop:app", "add", '{"a": 1, "b": 2}'))
    assert "may not do this: permission denied" in told


@pytest.mark.parametrize(
    ("arguments", "denied"),
    [
        (("pause", "mail"), "table paused_queues"),
        (("worker", "shop:app", "--log-level", "error"), "table workers"),
        (("enqueue", "shop:app", "linger"), "table task_executions"),
    ],
)
def test_a_role_that_may_only_read_learns_of_the_grants_where_it_writes(
    stranger: CommandLine, on_postgres: CommandLine, arguments: tuple[str, ...], denied: str
) -> None:
    stranger.open_shop()
    role = sql.Identifier(urlsplit(stranger.url).username or "")
    with psycopg.connect(on_postgres.url, autocommit=True) as owner:
        in_schema = sql.SQL("SCHEMA {} TO {}").format(_schema(on_postgres), role)
        owner.execute(sql.SQL("GRANT USAGE ON ") + in_schema)
        owner.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN ") + in_schema)
        told = one_sentence(stranger.alone(*arguments))
        owner.execute(sql.SQL("DROP OWNED BY {}").format(role))
    assert f"permission denied for {denied}" in told
    assert "grant it what docs/how-to/operate/grant-privileges.md lists" in told


def test_a_role_that_may_not_migrate_is_sent_to_the_owner(stranger: CommandLine) -> None:
    told = one_sentence(replace(stranger, schema="other")("admin", "migrate"))
    assert "permission denied for database" in told
    assert "Only the owner of the tables can change them" in told


UNREACHABLE = ("status",), ("worker", "shop:app"), ("enqueue", "shop:app", "linger")


@pytest.mark.parametrize("arguments", UNREACHABLE)
def test_a_login_that_the_server_refuses_is_told_alike_by_every_command(
    on_postgres: CommandLine, arguments: tuple[str, ...]
) -> None:
    parts = urlsplit(on_postgres.url)
    host = parts.netloc.rpartition("@")[2]
    url = urlunsplit(parts._replace(netloc=f"nobody_here:wrong@{host}"))
    on_postgres.open_shop()
    answer = replace(on_postgres, url=url).alone(*arguments)
    assert answer.status == 1
    told = answer.err.splitlines()[-1]
    assert told.startswith(f"The database {url.replace(':wrong@', ':***@')} does not answer: ")
    assert "nobody_here" in told.partition("does not answer")[2]
    assert "Check the URL" in told
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("arguments", UNREACHABLE)
def test_a_server_that_is_not_there_is_told_alike_by_every_command(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    nowhere = CommandLine(tmp_path, "postgresql://me:secret@localhost:1/shop")
    nowhere.open_shop()
    answer = nowhere.alone(*arguments)
    assert answer.status == 1
    told = answer.err.splitlines()[-1]
    assert told.startswith("The database postgresql://me:***@localhost:1/shop does not answer: ")
    assert told.endswith("Check the URL, and whether the server runs.")
    assert "secret" not in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("arguments", UNREACHABLE)
def test_a_server_that_takes_no_more_connections_is_not_said_to_be_down(
    stranger: CommandLine, on_postgres: CommandLine, arguments: tuple[str, ...]
) -> None:
    role = sql.Identifier(urlsplit(stranger.url).username or "")
    with psycopg.connect(on_postgres.url, autocommit=True) as owner:
        owner.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT 0").format(role))
    stranger.open_shop()
    answer = stranger.alone(*arguments)
    assert answer.status == 1
    told = answer.err.splitlines()[-1]
    assert "takes no more connections: " in told
    assert "Check the URL" not in told


def test_ctrl_c_ends_a_command_without_a_traceback(on_postgres: CommandLine) -> None:
    with proxy_to(on_postgres.url) as proxy:
        proxy.stall()
        process = replace(on_postgres, url=proxy.url(on_postgres.url)).start("list")
        wait_until(lambda: proxy.tries > 0)
        process.send_signal(signal.SIGINT)
        out, told = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert told.strip().startswith("Stopped.")
    assert "Traceback" not in told


def test_a_workflow_is_told_from_a_task_that_nobody_knows(on_sqlite: CommandLine) -> None:
    module = (
        "from penstock import App\napp = App()\ndaily = app.workflow('daily')\n"
        "@daily.task\ndef fetch(): ...\n"
    )
    (on_sqlite.directory / "flowing.py").write_text(module, "utf-8")
    answer = on_sqlite.alone("enqueue", "flowing:app", "daily")
    assert (answer.status, answer.out) == (2, "")
    assert "'daily' is a workflow of flowing:app" in answer.err
    assert ".start(" in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--task", "\udcff"),
        ("list", "--queue", "\udcff"),
        ("list", "--workflow", "\udcff"),
        ("cancel", "--state", "ready", "--task", "\udcff"),
        ("rerun", "--state", "failed", "--queue", "\udcff"),
        ("dismiss", "--state", "failed", "--workflow", "\udcff"),
        ("cancel", "0197a000-0000-7000-8000-000000000000", "--reason", "\udcff"),
        ("enqueue", "shop:app", "add", '{"a":"\udcff"}'),
        ("pause", "\udcff"),
    ],
    ids=" ".join,
)
def test_what_is_not_utf_8_is_told_so_on_every_database(
    new_database: CommandLine, arguments: tuple[str, ...]
) -> None:
    """A shell's $'\\xff' comes as half of a surrogate pair; nothing is asked of the database."""
    told = one_sentence(new_database(*arguments), status=2)
    assert r"\udcff" in told
    assert "is not possible: it " in told
