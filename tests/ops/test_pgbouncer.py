"""Behind a real PgBouncer in both modes, set up as the page about it says."""

import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from penstock import App
from penstock.model.health import Level
from penstock.model.verifying import findings_in
from penstock.store.postgres.connecting import SESSION
from tests.e2e.command_line import wait_until
from tests.ops.pooling import pooled

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "operate" / "run-behind-pgbouncer.md"
ROLE_SETTINGS = re.findall(r"^ *ALTER ROLE tasks SET (.+);$", PAGE.read_text("utf-8"), re.MULTILINE)


THREADS, EACH, RUNS = 8, 50, 3
MANY = 5_000


@pytest.fixture
def direct(postgres_url: str) -> Iterator[str]:
    """A database of its own, in which the role has the settings of the page."""
    name = sql.Identifier(f"penstock_pooled_{uuid.uuid4().hex[:8]}")
    parts = urlsplit(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        try:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
        except psycopg.errors.InsufficientPrivilege:
            pytest.skip("the user of this server may not create databases")
        for setting in ROLE_SETTINGS:
            connection.execute(
                sql.SQL("ALTER ROLE CURRENT_USER IN DATABASE {} SET ").format(name)
                + sql.SQL(setting)
            )
        yield urlunsplit(parts._replace(path=f"/{name._obj[0]}", query=""))
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def test_the_page_sets_all_that_connections_of_ours_ask_for() -> None:
    asked = set(re.findall(r"-c (\w+)=", SESSION))
    assert {setting.partition(" ")[0] for setting in ROLE_SETTINGS} == asked


def work_hard(app: App) -> None:
    """Let threads enqueue and start runs while a worker of many slots is at work."""
    add = app.task(name="add")(_add)
    flow = app.workflow("flow")

    @flow.task
    def first() -> int:
        return 1

    @flow.task
    def second(n: int = first.output) -> int:
        return n + 1

    def enqueue() -> None:
        for number in range(EACH):
            add.enqueue(number, 1)
        for _ in range(RUNS):
            flow.start()

    with app.worker(slots=THREADS) as worker, ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(enqueue) for _ in range(THREADS)]:
            done.result()
        worker.wait_until_idle()
    assert app.counts()["completed"] == THREADS * (EACH + 2 * RUNS)


def _add(a: int, b: int) -> int:
    return a + b


def test_work_is_done_and_heard_of_in_session_mode(direct: str, tmp_path: Path) -> None:
    with (
        pooled(direct, tmp_path, mode="session", ignored="options") as behind,
        closing(App(behind, migrate=True)) as app,
    ):
        work_hard(app)
        findings = app.store.inspect()
        assert [one for one in findings if one.level is Level.PROBLEM] == []
        (isolation,) = [one for one in findings if one.check == "isolation"]
        (listening,) = [one for one in findings if one.check == "LISTEN"]
        assert isolation.level is Level.OK
        assert listening.level is Level.OK


def test_work_is_done_and_heard_of_in_transaction_mode_with_a_listener_past_the_pooler(
    direct: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer sessions than threads: hardly a transaction is in the session of the one before."""
    monkeypatch.setenv("PENSTOCK_DATABASE_LISTEN_URL", direct)
    with (
        pooled(direct, tmp_path, mode="transaction", ignored="options", size=5) as behind,
        closing(App(behind, migrate=True)) as app,
    ):
        work_hard(app)
        findings = app.store.inspect()
        assert [one for one in findings if one.level is Level.PROBLEM] == []
        with app.worker(slots=1, poll=600):
            execution = app.enqueue("add", {"a": 1, "b": 1})
            assert execution.result(timeout=30) == 2


def test_thousands_are_enqueued_at_once_in_transaction_mode(direct: str, tmp_path: Path) -> None:
    """Many statements without waiting for answers, and every transaction in whichever session."""
    with (
        pooled(direct, tmp_path, mode="transaction", ignored="options", size=2) as behind,
        closing(App(behind, migrate=True)) as app,
    ):
        add = app.task(name="add")(_add)
        requests = [add.request(number, 1) for number in range(MANY)]

        def enqueue() -> int:
            return sum(one.created for one in app.enqueue_many(requests))

        with ThreadPoolExecutor(THREADS) as pool:
            # All of them at once, as after lost replies: there is still one of each.
            tries = [pool.submit(enqueue) for _ in range(3)]
            assert [one.result() for one in tries] == [MANY] * 3
        assert app.counts()["ready"] == MANY
        assert list(findings_in(app.store.examine(limit=2 * MANY))) == []


def test_a_worker_that_cannot_hear_in_transaction_mode_polls_and_says_so(
    direct: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        pooled(direct, tmp_path, mode="transaction", ignored="options", size=5) as behind,
        closing(App(behind, migrate=True)) as app,
    ):
        app.task(name="add")(_add)
        with app.worker(slots=1, poll=600) as worker:
            worker.wait_until_idle()
            wait_until(lambda: "database.listen_url" in caplog.text)
            execution = app.enqueue("add", {"a": 1, "b": 1})
            assert execution.result(timeout=30) == 2
        (listening,) = [one for one in app.store.inspect() if one.check == "LISTEN"]
        assert listening.level is Level.PROBLEM
