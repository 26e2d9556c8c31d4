"""On the oldest server that is installed here: the wheel brings a new one, and most people do not.

Debian's has a compiler for statements too, which the wheel's lacks.
"""

import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from penstock.store.postgres.inspecting import HOT, explain_hot
from penstock.store.postgres.store import PostgresStore
from tests.e2e.command_line import Answer, CommandLine, run
from tests.support.postgres import OWN_SERVER, temporary_cluster

INSTALLED = Path("/usr/lib/postgresql")
OLDEST = 13  # that we promise to work on
CONTRACT = Path(__file__).parents[1] / "contract"
# What differs between versions is how statements are planned and locked: these are the widest.
ASKED = ("claim", "create", "promote", "recover", "runs", "schema", "serials", "settle", "waits")


@pytest.fixture(scope="module")
def older_server() -> Iterator[str]:
    installed = {int(path.parts[-3]): path.parent for path in INSTALLED.glob("*/bin/initdb")}
    supported = [version for version in installed if version >= OLDEST]
    if not supported:
        pytest.skip(f"there is no server in {INSTALLED}: it comes with Debian's package postgresql")
    with temporary_cluster(installed[min(supported)]) as url:
        yield url


@pytest.fixture
def on_older(older_server: str, tmp_path: Path) -> CommandLine:
    """The command line on a database with tables; the first test makes them."""
    penstock = CommandLine(tmp_path, older_server)
    assert penstock("admin", "migrate").status == 0
    return penstock


@pytest.fixture
def compiling(on_older: CommandLine) -> CommandLine:
    """The same with a URL that asks for compiled statements."""
    penstock = replace(on_older, url=f"{on_older.url}?options=-c%20jit%3Don")
    with psycopg.connect(penstock.url) as connection:
        if connection.execute("SELECT pg_jit_available()").fetchone() != (True,):
            pytest.skip("this server has no compiler for statements")
    return penstock


def found(answer: Answer, check: str) -> tuple[str, str]:
    (one,) = [one for one in answer.json["findings"] if one["check"] == check]
    return one["level"], one["message"]


def compiled(url: str) -> list[str]:
    """Which of the hot statements the server would compile before it runs them, for us."""
    with closing(PostgresStore(url)) as store:
        explained = store._run("look", lambda session: list(explain_hot(session)))
    assert len(explained) == len(HOT)
    return [name for name, plan in explained if "JIT" in plan]


def test_no_hot_statement_is_compiled(on_older: CommandLine) -> None:
    assert compiled(on_older.url) == []


def test_without_our_setting_a_claim_would_be(compiling: CommandLine) -> None:
    assert "claim_ready" in compiled(compiling.url)


def test_doctor_finds_nothing_wrong(on_older: CommandLine) -> None:
    answer = on_older("doctor", "--json")
    assert answer.status == 0, answer.out
    assert found(answer, "isolation")[0] == "ok"
    assert found(answer, "indexes")[0] == "ok"


def test_doctor_tells_of_a_compiler_that_the_url_asks_for(compiling: CommandLine) -> None:
    level, message = found(compiling("doctor", "--json"), "isolation")
    assert (level, "jit is on" in message) == ("warning", True)


def test_a_worker_does_its_work_and_verify_agrees(on_older: CommandLine) -> None:
    on_older.open_shop()
    done = [on_older.enqueue("add", f'{{"a":{n},"b":1}}') for n in range(50)]
    broken = on_older.enqueue("break_down", '{"what":"on purpose"}')
    answer = on_older.alone("worker", "shop:app", "--until-idle")
    assert answer.status == 0, answer.err
    states = {one: on_older("show", one, "--json").json["state"] for one in [*done, broken]}
    assert states == {**dict.fromkeys(done, "completed"), broken: "failed"}
    assert on_older("verify").status == 0


def test_the_contract_holds(older_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN_SERVER, older_server)
    monkeypatch.chdir(CONTRACT.parents[1])
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)  # ours are about this run
    files = [str(CONTRACT / f"test_{name}.py") for name in ASKED]
    answer = run("-m", "pytest", "-q", "-k", "postgres", "-p", "no:cacheprovider", *files)
    assert answer.status == 0, answer.out
    passed = re.search(r"(\d+) passed", answer.out)
    assert passed is not None
    assert int(passed[1]) > 200
