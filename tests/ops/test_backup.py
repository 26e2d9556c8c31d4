"""A backup that was taken while workers were busy can be restored, and work goes on from there."""

import os
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from penstock.model.states import State
from tests.e2e.command_line import CommandLine, wait_until
from tests.ops.tools import run
from tests.support.postgres import installed_programs

TASKS = 300


@contextmanager
def busy(penstock: CommandLine) -> Iterator[None]:
    """A worker in the middle of it: it is killed at the end, as if the machine had gone."""
    penstock.open_shop()
    for _ in range(TASKS):
        penstock.enqueue("add", '{"a": 1, "b": 2}')
    penstock.enqueue("nap", queue="slow")
    worker = penstock.start("worker", "shop:app")
    try:
        wait_until((penstock.directory / "napping").exists)
        yield
    finally:
        worker.kill()
        worker.communicate()


def assert_work_goes_on(restored: CommandLine) -> None:
    assert restored.alone("verify").status == 0
    with restored.store() as store:
        ((nap,)) = store.find(task="nap")
        assert nap.state is State.RUNNING  # of a worker that is no more
        worker = restored.start("worker", "shop:app", "--queue", "default")
        try:
            wait_until(lambda: store.counts()[State.COMPLETED] == TASKS, within=60)
            wait_until(lambda: store.get([nap.id])[0].state is State.READY, within=60)
        finally:
            worker.terminate()
            worker.communicate(timeout=30)
    assert restored.alone("verify").status == 0


def test_a_copy_that_sqlite_makes_of_a_busy_file_is_whole(tmp_path: Path) -> None:
    penstock = CommandLine(tmp_path, f"sqlite:///{tmp_path}/shop.db")
    assert penstock("admin", "migrate").status == 0
    with (
        busy(penstock),
        closing(sqlite3.connect(tmp_path / "shop.db")) as source,
        closing(sqlite3.connect(tmp_path / "copy.db")) as target,
    ):
        source.backup(target)
    assert_work_goes_on(CommandLine(tmp_path, f"sqlite:///{tmp_path}/copy.db"))


@pytest.fixture
def databases(postgres_url: str) -> Iterator[tuple[str, str]]:
    """Two empty databases: one to back up, one to restore into."""
    names = [f"penstock_backup_{uuid.uuid4().hex[:8]}" for _ in range(2)]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name in names:
            try:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            except psycopg.errors.InsufficientPrivilege:
                pytest.skip("the user of this server may not create databases")
        first, second = (
            urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}", query="")) for name in names
        )
        yield first, second
        for name in names:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
            connection.execute(drop)


def test_a_dump_of_a_busy_database_is_whole(databases: tuple[str, str], tmp_path: Path) -> None:
    programs = installed_programs()
    path = os.pathsep.join([*([str(programs)] if programs else []), os.environ["PATH"]])
    pg_dump, pg_restore = (shutil.which(name, path=path) for name in ("pg_dump", "pg_restore"))
    if pg_dump is None or pg_restore is None:
        pytest.skip("there is no pg_dump here: it comes with Debian's package postgresql-client")
    source, target = databases
    penstock = CommandLine(tmp_path, source)
    assert penstock("admin", "migrate").status == 0
    with busy(penstock):
        dumped = run(pg_dump, "--format=custom", f"--file={tmp_path}/backup", source)
    assert dumped.returncode == 0, dumped.stderr
    restored = run(pg_restore, "--exit-on-error", f"--dbname={target}", tmp_path / "backup")
    assert restored.returncode == 0, restored.stderr
    assert_work_goes_on(CommandLine(tmp_path, target))
