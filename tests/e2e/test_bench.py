"""`penstock bench` measures on the user's own database and leaves nothing of itself there."""

import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from penstock.cli import measuring
from penstock.cli.measuring import NotFinished
from penstock.store.postgres.deadlines import WatchedConnection
from penstock.testing import proxy_to, schemas
from tests.e2e.command_line import CommandLine, wait_until


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "ONE_BY_ONE", 20)
    monkeypatch.setattr(measuring, "AT_ONCE", 100)
    monkeypatch.setattr(measuring, "MOST_AT_ONCE", 200)
    monkeypatch.setattr(measuring, "TICKS", 10)


def test_it_tells_four_figures_and_what_follows_from_them(penstock: CommandLine) -> None:
    answer = penstock("bench")
    assert answer.status == 0
    for what in ("enqueue, one transaction each", "many in one", "one worker process", "ms"):
        assert what in answer.out
    assert "\n- enqueue_many writes tasks" in answer.out


def test_progress_goes_where_the_answer_does_not(penstock: CommandLine) -> None:
    answer = penstock("bench", "--json")
    assert "measuring" in answer.err
    assert answer.json["tasks_per_second"] > 0
    assert answer.json["latency_ms"]["p50"] <= answer.json["latency_ms"]["p95"]
    assert answer.json["advice"]


def test_the_users_own_tables_see_nothing_of_it(penstock: CommandLine) -> None:
    assert penstock("admin", "migrate").status == 0
    execution = penstock.enqueue("add")
    assert penstock("bench").status == 0
    with penstock.store() as store:
        assert [one.id for one in store.find()] == [execution]
        assert sum(store.counts().values()) == 1


def test_no_file_is_left_beside_the_users_own(on_sqlite: CommandLine) -> None:
    before = sorted(Path(on_sqlite.directory).iterdir())
    assert on_sqlite("bench").status == 0
    assert sorted(Path(on_sqlite.directory).iterdir()) == before


def test_no_schema_is_left_in_the_users_database(on_postgres: CommandLine) -> None:
    assert on_postgres("bench").status == 0
    assert schemas_of_benches(on_postgres) == []


def schemas_of_benches(penstock: CommandLine) -> list[str]:
    with psycopg.connect(penstock.url) as connection:
        found = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'penstock\\_bench\\_%'"
        )
        return [name for (name,) in found]


@pytest.mark.usefixtures("small")
def test_a_worker_that_gets_nowhere_is_told_and_cleaned_up_after(
    on_sqlite: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "DRAIN_PATIENCE", 0.0)
    before = sorted(Path(on_sqlite.directory).iterdir())
    answer = on_sqlite("bench")
    assert answer.status == 1
    assert "tasks that do nothing ran within 0 s" in answer.err
    assert sorted(Path(on_sqlite.directory).iterdir()) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_stops_it_finds_nothing_of_it_left(on_sqlite: CommandLine, number: int) -> None:
    before = sorted(Path(on_sqlite.directory).iterdir())
    bench = on_sqlite.start("bench")
    wait_until(lambda: any(on_sqlite.directory.glob("penstock_bench_*.db")))

    bench.send_signal(number)
    _, told = bench.communicate(timeout=30)

    assert bench.returncode == 1
    assert told.endswith("Stopped. The next run begins anew.\n")
    assert sorted(Path(on_sqlite.directory).iterdir()) == before


def test_whoever_stops_it_again_and_again_finds_nothing_of_it_left(on_sqlite: CommandLine) -> None:
    before = sorted(Path(on_sqlite.directory).iterdir())
    for _ in range(3):
        bench = on_sqlite.start("bench")
        wait_until(lambda: any(on_sqlite.directory.glob("penstock_bench_*.db")))
        time.sleep(random.uniform(0.2, 0.8))  # at any of the things that it does

        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            bench.send_signal(number)
            time.sleep(random.uniform(0, 0.02))
        _, told = bench.communicate(timeout=30)

        assert told.endswith("Stopped. The next run begins anew.\n")
        assert "Traceback" not in told
        assert sorted(Path(on_sqlite.directory).iterdir()) == before


@pytest.mark.parametrize("when", ["before", "while it is dropped"])
def test_a_server_that_hangs_does_not_keep_it(
    on_postgres: CommandLine, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(schemas, "CONNECTED_WITHIN", 2)
    monkeypatch.setattr(schemas, "_LONGEST_ANSWER", 2.0)
    connect = WatchedConnection.connect
    with proxy_to(on_postgres.url) as proxy:

        def connect_and_hang(*what: Any, **how: Any) -> object:  # noqa: ANN401
            connection = connect(*what, **how)
            proxy.swallows_replies = "connect_timeout" in how
            return connection

        def stop(*_: object) -> NoReturn:
            if when == "before":
                proxy.swallows_replies = True
            else:
                monkeypatch.setattr(WatchedConnection, "connect", connect_and_hang)
            raise NotFinished(0, 1)

        monkeypatch.setattr(measuring, "_time_to_answer", stop)
        begun = time.monotonic()
        answer = replace(on_postgres, url=proxy.url(on_postgres.url))("bench")

    assert time.monotonic() - begun < 15
    assert answer.status == 1
    (name,) = schemas_of_benches(on_postgres)
    assert f"The schema {name} is left behind" in answer.err
    drop(on_postgres, name)


@pytest.mark.parametrize("directory", ["what?", "100%41", "a#b c", os.fsdecode(b"latin-\xe9")])
def test_it_stays_out_of_files_whose_names_look_alike(tmp_path: Path, directory: str) -> None:
    (tmp_path / directory).mkdir()
    url = f"sqlite:///{quote(os.fsencode(tmp_path / directory))}/app.db"
    answer = CommandLine(tmp_path, url)("bench")
    assert answer.status == 0
    assert [*tmp_path.iterdir()] == [tmp_path / directory]
    assert [*(tmp_path / directory).iterdir()] == []


def test_workers_that_are_to_serve_some_queues_do_not_hold_it_up(
    penstock: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_WORKER_QUEUES", "mail")
    assert penstock("bench").status == 0


def test_whoever_stops_it_finds_no_schema_of_it_left(on_postgres: CommandLine) -> None:
    bench = on_postgres.start("bench")
    wait_until(lambda: schemas_of_benches(on_postgres) != [])

    bench.terminate()
    bench.communicate(timeout=30)

    assert schemas_of_benches(on_postgres) == []


def test_a_schema_that_cannot_be_dropped_is_named(
    on_postgres: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "_PATIENCE", "10ms")
    with psycopg.connect(on_postgres.url) as reader:

        def hold(*_: object) -> NoReturn:
            (name,) = schemas_of_benches(on_postgres)
            reader.execute(sql.SQL("SELECT FROM {}.workers").format(sql.Identifier(name)))
            raise NotFinished(0, 1)

        monkeypatch.setattr(measuring, "_time_to_answer", hold)
        answer = on_postgres("bench")

    (name,) = schemas_of_benches(on_postgres)
    assert answer.status == 1
    assert "0 of 1 tasks" in answer.err
    assert f"To remove it: DROP SCHEMA {name} CASCADE;" in answer.err
    drop(on_postgres, name)


def drop(penstock: CommandLine, schema: str) -> None:
    with psycopg.connect(penstock.url) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def test_a_server_that_takes_no_writes_is_told_once(on_postgres: CommandLine) -> None:
    options = "options=-c%20default_transaction_read_only%3Don"
    answer = replace(on_postgres, url=f"{on_postgres.url}?{options}")("bench")
    assert answer.status == 1
    assert "takes no writes" in answer.err
    assert "left behind" not in answer.err
    assert schemas_of_benches(on_postgres) == []


def test_a_database_without_notifications_is_told_what_that_costs(
    on_postgres: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_NOTIFY", "false")
    answer = on_postgres("bench", "--json")
    assert answer.status == 0
    assert "`notify` is off" in "".join(answer.json["advice"])


def test_a_database_in_memory_is_refused(tmp_path: Path) -> None:
    answer = CommandLine(tmp_path, "sqlite:///:memory:")("bench")
    assert answer.status == 1
    assert "seen by its own process alone" in answer.err
