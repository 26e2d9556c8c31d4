"""Behind a real PgBouncer in session mode, set up as the page about it says."""

import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from penstock import App
from penstock.model.health import Level
from penstock.store.postgres.connecting import SESSION
from tests.ops.pooling import pooled

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "operate" / "run-behind-pgbouncer.md"
ROLE_SETTINGS = re.findall(r"^ *ALTER ROLE tasks SET (.+);$", PAGE.read_text("utf-8"), re.MULTILINE)


@pytest.fixture
def behind(postgres_url: str, tmp_path: Path) -> Iterator[str]:
    """A database of its own behind PgBouncer, whose role has the settings of the page."""
    name = sql.Identifier(f"penstock_pooled_{uuid.uuid4().hex[:8]}")
    parts = urlsplit(postgres_url)
    direct = urlunsplit(parts._replace(path=f"/{name._obj[0]}", query=""))
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
        with pooled(direct, tmp_path, mode="session", ignored="options") as url:
            yield url
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def test_the_page_sets_all_that_connections_of_ours_ask_for() -> None:
    asked = set(re.findall(r"-c (\w+)=", SESSION))
    assert {setting.partition(" ")[0] for setting in ROLE_SETTINGS} == asked


def test_work_is_done_and_heard_of_in_session_mode(behind: str) -> None:
    with closing(App(behind, migrate=True)) as app:

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        for number in range(50):
            app.enqueue("add", {"a": number, "b": 1})
        with app.worker() as worker:
            worker.wait_until_idle()
        assert app.counts()["completed"] == 50
        findings = app.store.inspect()
        assert [one for one in findings if one.level is Level.PROBLEM] == []
        (isolation,) = [one for one in findings if one.check == "isolation"]
        (listening,) = [one for one in findings if one.check == "LISTEN"]
        assert isolation.level is Level.OK
        assert listening.level is Level.OK
