"""A connection of ours between statements: it keeps a few cursors, and nothing large in them."""

import gc
import weakref
from collections.abc import Iterator

import psycopg
import pytest

from penstock.store.postgres.deadlines import (
    LONGEST_VALUE,
    MOST_CURSORS,
    MOST_ROWS,
    WatchedConnection,
)

pytestmark = pytest.mark.postgres

ECHO = "SELECT %(given)s::text"
COUNT = "SELECT n FROM generate_series(1, %(given)s::integer) AS n"


@pytest.fixture
def connection(postgres_url: str) -> Iterator[WatchedConnection]:
    with WatchedConnection.connect(postgres_url, autocommit=True) as connection:
        yield connection


def test_each_statement_gets_its_own_answer(connection: WatchedConnection) -> None:
    assert connection.answer(ECHO, {"given": "first"}) == [("first",)]
    assert connection.answer(COUNT, {"given": 2}) == [(1,), (2,)]
    assert connection.answer("SET application_name = 'penstock'", {}) == []
    assert connection.answer(ECHO, {"given": None}) == [(None,)]


def test_a_statement_that_is_repeated_has_its_cursor_again(connection: WatchedConnection) -> None:
    connection.answer(ECHO, {"given": "first"})
    kept = connection._cursors[ECHO]
    connection.answer(COUNT, {"given": MOST_ROWS})
    connection.answer(ECHO, {"given": "second"})
    assert connection._cursors[ECHO] is kept is not connection._cursors[COUNT]


def test_only_the_cursors_of_the_last_statements_are_kept(connection: WatchedConnection) -> None:
    connection.answer(ECHO, {"given": "the oldest"})
    connection.answer(COUNT, {"given": 1})
    connection.answer(ECHO, {"given": "and used again"})
    others = [f"SELECT {number}" for number in range(MOST_CURSORS - 1)]
    for one in others:
        connection.answer(one, {})
    assert list(connection._cursors) == [ECHO, *others]


@pytest.mark.parametrize(
    ("statement", "small", "large"),
    [
        (ECHO, "x", "x" * (LONGEST_VALUE + 1)),
        ("SELECT cardinality(%(given)s::integer[])", [1], [1] * (LONGEST_VALUE + 1)),
        (COUNT, MOST_ROWS, MOST_ROWS + 1),
        ("SELECT repeat('x', %(given)s::integer)", LONGEST_VALUE, LONGEST_VALUE + 1),
    ],
    ids=["text given", "items given", "rows got", "text got"],
)
def test_what_is_large_is_let_go(
    connection: WatchedConnection, statement: str, small: object, large: object
) -> None:
    connection.answer(statement, {"given": small})
    assert statement in connection._cursors
    assert connection.answer(statement, {"given": large})
    assert statement not in connection._cursors


@pytest.mark.parametrize("end", ["lost", "closed"])
def test_a_connection_that_has_ended_goes_at_once(postgres_url: str, end: str) -> None:
    connection = WatchedConnection.connect(postgres_url, autocommit=True)
    connection.answer(ECHO, {"given": "kept"})
    if end == "lost":
        with pytest.raises(psycopg.OperationalError):
            connection.answer("SELECT pg_terminate_backend(pg_backend_pid())", {})
    else:
        connection.close()
    gone = weakref.ref(connection)
    gc.disable()
    try:
        del connection
        assert gone() is None
    finally:
        gc.enable()


def test_a_statement_after_an_error_is_answered(connection: WatchedConnection) -> None:
    divide = "SELECT 1 / %(given)s::integer"
    connection.answer(divide, {"given": "1"})
    with pytest.raises(psycopg.DataError):
        connection.answer(divide, {"given": "0"})
    assert connection.answer(ECHO, {"given": "next"}) == [("next",)]
    assert connection.answer(divide, {"given": "1"}) == [(1,)]
