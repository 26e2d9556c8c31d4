"""Which path is taken where, why, and what it sends."""

import re
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import (
    ClauseElement,
    Dialect,
    Engine,
    bindparam,
    create_engine,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.pool import NullPool

from penstock.claiming import PathUnavailable, claim
from penstock.claiming.keyed import past_locked, skipping_locked, with_output
from penstock.claiming.paths import explain
from penstock.claiming.request import Request, request_of
from penstock.claiming.target import target_of
from tests.claiming.tables import NEW, count_of, fill, invoices, lines

# A plan that looks at the subquery once for every row of the table.
NESTED_LOOPS = (
    "hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize", "indexscan", "bitmapscan",
)  # fmt: skip


def dialect(name: str, *version: int) -> Dialect:
    """A dialect with what it knows after its first connection."""
    made = make_url(f"{name}://").get_dialect()()
    made.server_version_info = version
    return made


def mariadb(*version: int) -> Dialect:
    made = dialect("mysql", *version)
    made.is_mariadb = True  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (dialect("postgresql", 12), "postgresql"),
        (dialect("postgresql", 11, 22), "portable"),
        (dialect("sqlite", 3, 35, 0), "sqlite"),
        (dialect("sqlite", 3, 34, 1), "portable"),
        (mariadb(10, 6, 0), "mariadb"),
        (mariadb(10, 5, 28), "portable"),
        (dialect("mysql", 8, 0, 1), "mysql"),
        (dialect("mysql", 5, 7, 44), "portable"),
        (dialect("mssql", 15, 0, 2000), "mssql"),
        (dialect("oracle", 23), "portable"),
    ],
)
def test_the_path_goes_by_database_and_version(given: Dialect, path: str) -> None:
    assert explain(given).path == path


def test_the_explanation_says_which_path_and_why() -> None:
    assert str(explain(dialect("postgresql", 17, 2))) == (
        "postgresql 17.2 takes the path 'postgresql': one statement: rows are picked with SKIP "
        "LOCKED in a materialised CTE, updated and returned."
    )
    old = str(explain(mariadb(10, 5, 28)))
    assert old.startswith(
        "mariadb 10.5.28 takes the path 'portable': the faster one needs 10.6 or newer. It reads"
    )
    assert "there is no faster one for it" in str(explain(dialect("oracle", 23)))


def test_the_explanation_says_what_the_tests_have_not_run() -> None:
    unproven = [dialect("mysql", 8, 4), dialect("mssql", 16)]
    for one in unproven:
        assert str(explain(one)).endswith("compiles this path, and has not run it.")
    assert explain(mariadb(11, 4)).run_in_tests


def test_an_engine_is_connected_to_be_explained(engine: Engine) -> None:
    fresh = create_engine(engine.url)
    assert claim.explain(fresh).path == engine.dialect.name
    assert claim.explain(fresh, path="portable").path == "portable"
    fresh.dispose()


def test_a_path_of_another_database_is_refused(sqlite: Engine) -> None:
    fill(sqlite, 1)
    with pytest.raises(PathUnavailable, match="Possible here: 'sqlite', 'portable'"):
        claim(sqlite, invoices, where=NEW, values={"state": "sending"}, limit=1, path="postgresql")
    assert count_of(sqlite, "new") == 1


# --- what is only compiled --------------------------------------------------------------------


def sent(statement: ClauseElement, server: Dialect) -> str:
    compiled = statement.compile(dialect=server, compile_kwargs={"literal_binds": True})
    return re.sub(r"\s+", " ", str(compiled))


@pytest.fixture
def request_for_two() -> Request:
    wanted: dict[str, Any] = {"where": lines.c.state == "new", "values": {"state": "packed"}}
    return request_of(target_of(lines), **wanted, limit=2, order_by=lines.c.weight.desc())


def test_sql_server_locks_with_hints_and_returns_with_output(request_for_two: Request) -> None:
    server = dialect("mssql")
    assert sent(past_locked(request_for_two), server) == (
        "SELECT TOP 2 lines.invoice, lines.number FROM lines WITH (UPDLOCK, READPAST, ROWLOCK) "
        "WHERE lines.state = 'new' ORDER BY lines.weight DESC, lines.invoice, lines.number"
    )
    assert sent(with_output(request_for_two, [(1, "a"), (2, "b")]), server) == (
        "UPDATE lines SET state='packed' OUTPUT inserted.invoice, inserted.number, "
        "inserted.state, inserted.weight WHERE lines.invoice = 1 AND lines.number = 'a' "
        "OR lines.invoice = 2 AND lines.number = 'b'"
    )


def test_mysql_locks_rows_that_nobody_holds(request_for_two: Request) -> None:
    assert sent(skipping_locked(request_for_two), dialect("mysql", 8, 0, 36)) == (
        "SELECT `lines`.invoice, `lines`.number FROM `lines` WHERE `lines`.state = 'new' "
        "ORDER BY `lines`.weight DESC, `lines`.invoice, `lines`.number LIMIT 2 "
        "FOR UPDATE SKIP LOCKED"
    )


# --- the plan that claims too many ------------------------------------------------------------


def test_a_nested_loop_plan_never_claims_more_than_the_limit(postgres: Engine) -> None:
    fill(postgres, 200)
    candidates = select(invoices.c.id).where(NEW).order_by(invoices.c.id).limit(bindparam("n"))
    naive = (
        update(invoices)
        .values(state="sending")
        .where(invoices.c.id.in_(candidates.with_for_update(skip_locked=True)))
    )
    # Of its own, not of the pool: the settings would stay with the connection.
    alone = create_engine(postgres.url, poolclass=NullPool)
    with alone.connect() as connection:
        for setting in NESTED_LOOPS:
            connection.execute(text(f"SET enable_{setting} = off"))
        connection.commit()
        # The statement that most people write shows that this plan is the dangerous one.
        assert connection.execute(naive, {"n": 5}).rowcount == 200
        connection.rollback()

        rows = claim(connection, invoices, where=NEW, values={"state": "sending"}, limit=5)

        assert [row.id for row in rows] == [1, 2, 3, 4, 5]
    assert count_of(postgres, "sending") == 5


def test_without_sqlalchemy_the_import_says_what_to_install() -> None:
    hidden = "import sys; sys.modules['sqlalchemy'] = None; import penstock.claiming"
    finished = subprocess.run(
        [sys.executable, "-c", hidden], capture_output=True, text=True, check=False
    )
    assert 'pip install "penstock[sqlalchemy]"' in finished.stderr


def test_importing_the_package_needs_no_greenlet() -> None:
    hidden = "import sys; sys.modules['greenlet'] = None; import penstock.claiming"
    subprocess.run([sys.executable, "-c", hidden], check=True)
