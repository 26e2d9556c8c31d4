"""A connection of ours between two statements: it keeps a cursor, but nothing large with it."""

from collections.abc import Iterator, Mapping

import psycopg
import pytest

from penstock.store.postgres.deadlines import LONGEST_KEPT, MOST_KEPT, WatchedConnection

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


def test_statements_share_a_cursor(connection: WatchedConnection) -> None:
    connection.answer(ECHO, {"text": "first"})
    kept = connection._answering
    connection.answer(COUNT, {"most": MOST_KEPT})
    assert connection._answering is kept is not None


@pytest.mark.parametrize(
    ("statement", "parameters"),
    [(ECHO, {"text": "x" * (LONGEST_KEPT + 1)}), (COUNT, {"most": MOST_KEPT + 1})],
    ids=["sent", "got"],
)
def test_what_is_large_is_let_go(
    connection: WatchedConnection, statement: str, parameters: Mapping[str, object]
) -> None:
    connection.answer(ECHO, {"text": "small"})
    assert connection.answer(statement, parameters)
    assert connection._answering is None


def test_a_statement_after_an_error_is_answered(connection: WatchedConnection) -> None:
    with pytest.raises(psycopg.DataError):
        connection.answer("SELECT 1 / %(text)s::integer", {"text": "0"})
    assert connection.answer(ECHO, {"text": "next"}) == [("next",)]
