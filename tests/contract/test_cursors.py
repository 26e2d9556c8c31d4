"""A connection of ours between statements: it keeps a few cursors, and nothing large in them."""

from collections.abc import Iterator, Mapping

import psycopg
import pytest

from penstock.store.postgres.deadlines import (
    LONGEST_TEXT,
    MOST_CURSORS,
    MOST_ROWS,
    WatchedConnection,
)

pytestmark = pytest.mark.postgres

ECHO = "SELECT %(text)s::text"
COUNT = "SELECT n FROM generate_series(1, %(most)s::integer) AS n"


@pytest.fixture
def connection(postgres_url: str) -> Iterator[WatchedConnection]:
    with WatchedConnection.connect(postgres_url, autocommit=True) as connection:
        yield connection


def test_each_statement_gets_its_own_answer(connection: WatchedConnection) -> None:
    assert connection.answer(ECHO, {"text": "first"}) == [("first",)]
    assert connection.answer(COUNT, {"most": 2}) == [(1,), (2,)]
    assert connection.answer("SET application_name = 'penstock'", {}) == []
    assert connection.answer(ECHO, {"text": None}) == [(None,)]


def test_a_statement_that_is_repeated_has_its_cursor_again(connection: WatchedConnection) -> None:
    connection.answer(ECHO, {"text": "first"})
    kept = connection._cursors[ECHO]
    connection.answer(COUNT, {"most": MOST_ROWS})
    connection.answer(ECHO, {"text": "second"})
    assert connection._cursors[ECHO] is kept is not connection._cursors[COUNT]


def test_only_the_cursors_of_the_last_statements_are_kept(connection: WatchedConnection) -> None:
    connection.answer(ECHO, {"text": "the oldest"})
    connection.answer(COUNT, {"most": 1})
    connection.answer(ECHO, {"text": "and used again"})
    others = [f"SELECT {number}" for number in range(MOST_CURSORS - 1)]
    for one in others:
        connection.answer(one, {})
    assert list(connection._cursors) == [ECHO, *others]


@pytest.mark.parametrize(
    ("statement", "parameters"),
    [(ECHO, {"text": "x" * (LONGEST_TEXT + 1)}), (COUNT, {"most": MOST_ROWS + 1})],
    ids=["sent", "got"],
)
def test_what_is_large_is_let_go(
    connection: WatchedConnection, statement: str, parameters: Mapping[str, object]
) -> None:
    connection.answer(statement, dict.fromkeys(parameters, 1))
    assert statement in connection._cursors
    assert connection.answer(statement, parameters)
    assert statement not in connection._cursors


def test_a_statement_after_an_error_is_answered(connection: WatchedConnection) -> None:
    divide = "SELECT 1 / %(text)s::integer"
    connection.answer(divide, {"text": "1"})
    with pytest.raises(psycopg.DataError):
        connection.answer(divide, {"text": "0"})
    assert connection.answer(ECHO, {"text": "next"}) == [("next",)]
    assert connection.answer(divide, {"text": "1"}) == [(1,)]
