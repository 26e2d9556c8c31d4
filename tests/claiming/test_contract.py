"""What every path promises, on every database."""

import time
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import Engine, Table, and_, exists, func, insert, or_, select, text, update

from penstock.claiming import PathName, claim
from tests.claiming.tables import NEW, SENDING, count_of, fill, invoices, lines


def ids(rows: list[Any]) -> list[int]:
    return [row.id for row in rows]


def test_rows_come_back_as_they_are_after_the_claim(engine: Engine, path: PathName | None) -> None:
    fill(engine, 3)
    rows = claim(engine, invoices, where=NEW, values=SENDING, limit=2, path=path)
    assert [tuple(row) for row in rows] == [(1, "sending", 0, 1), (2, "sending", 0, 1)]
    assert rows[0]._mapping[invoices.c.state] == rows[0].state == "sending"


def test_a_claim_is_committed_when_it_returns(engine: Engine, path: PathName | None) -> None:
    fill(engine, 3)
    claim(engine, invoices, where=NEW, values=SENDING, limit=2, path=path)
    assert count_of(engine, "sending") == 2
    assert count_of(engine, "new") == 1


def test_the_next_caller_gets_the_next_rows(engine: Engine, path: PathName | None) -> None:
    fill(engine, 5)
    batches = [
        ids(claim(engine, invoices, where=NEW, values=SENDING, limit=2, path=path))
        for _ in range(4)
    ]
    assert batches == [[1, 2], [3, 4], [5], []]


def test_rows_come_in_the_order_asked_and_ties_by_primary_key(
    engine: Engine, path: PathName | None
) -> None:
    fill(engine, 8, priorities=(1, 3, 2))
    rows = claim(
        engine,
        invoices,
        where=NEW,
        values=SENDING,
        limit=6,
        order_by=[invoices.c.priority.desc()],
        path=path,
    )
    assert ids(rows) == [1, 4, 7, 2, 5, 8]


def test_the_order_is_that_before_the_claim(engine: Engine, path: PathName | None) -> None:
    """Otherwise setting the column that rows are ordered by would turn the batch around."""
    fill(engine, 4, priorities=(1, 2, 3, 4))
    rows = claim(
        engine,
        invoices,
        where=NEW,
        values={"state": "sending", "priority": -invoices.c.priority},
        limit=3,
        order_by=invoices.c.priority,
        path=path,
    )
    assert [(row.id, row.priority) for row in rows] == [(4, -1), (1, -2), (2, -3)]


def test_a_limit_of_none_gives_none(engine: Engine, path: PathName | None) -> None:
    fill(engine, 1)
    assert claim(engine, invoices, where=NEW, values=SENDING, limit=0, path=path) == []
    assert count_of(engine, "new") == 1


def test_a_large_limit_takes_all_in_order(engine: Engine, path: PathName | None) -> None:
    fill(engine, 1_203)
    rows = claim(engine, invoices, where=NEW, values=SENDING, limit=100_000, path=path)
    assert ids(rows) == list(range(1, 1_204))


def test_values_may_be_expressions_and_columns_may_be_keys(
    engine: Engine, path: PathName | None
) -> None:
    fill(engine, 1, priorities=(7,))
    (row,) = claim(
        engine,
        invoices,
        where=NEW,
        values={
            invoices.c.state: func.upper("sent"),
            "tries": invoices.c.priority * 2 + invoices.c.tries,
        },
        limit=1,
        path=path,
    )
    assert (row.state, row.tries) == ("SENT", 14)


def test_rows_with_a_key_of_two_columns_are_told_apart(
    engine: Engine, path: PathName | None
) -> None:
    rows = [
        {"invoice": invoice, "number": number, "state": "new", "weight": weight}
        for invoice, number, weight in [(1, "a", 3), (1, "b", 1), (2, "a", 2), (2, "b", 4)]
    ]
    with engine.begin() as connection:
        connection.execute(insert(lines), rows)
    claimed = claim(
        engine,
        lines,
        where=lines.c.state == "new",
        values={"state": "packed"},
        limit=3,
        order_by=lines.c.weight,
        path=path,
    )
    assert [(row.invoice, row.number) for row in claimed] == [(1, "b"), (2, "a"), (1, "a")]
    with engine.connect() as connection:
        left = select(lines.c.invoice, lines.c.number).where(lines.c.state == "new")
        assert [tuple(row) for row in connection.execute(left)] == [(2, "b")]


def test_criteria_may_ask_other_tables_in_a_query_of_their_own(
    engine: Engine, path: PathName | None
) -> None:
    fill(engine, 3)
    with engine.begin() as connection:
        connection.execute(
            insert(lines), [{"invoice": 2, "number": "a", "state": "new", "weight": 1}]
        )
    heavy = exists(select(lines.c.invoice).where(lines.c.invoice == invoices.c.id))
    rows = claim(engine, invoices, where=and_(NEW, heavy), values=SENDING, limit=5, path=path)
    assert ids(rows) == [2]


def test_criteria_may_be_text_or_alternatives(engine: Engine, path: PathName | None) -> None:
    fill(engine, 4)
    either = or_(invoices.c.id == 4, invoices.c.id == 2)
    rows = claim(engine, invoices, where=and_(NEW, either), values=SENDING, limit=5, path=path)
    assert ids(rows) == [2, 4]
    spelled: Any = text("state = 'new' AND id > 2")
    rows = claim(engine, invoices, where=spelled, values=SENDING, limit=5, path=path)
    assert ids(rows) == [3]


def test_rows_that_somebody_has_locked_are_stepped_over(postgres_or_mariadb: Engine) -> None:
    engine = postgres_or_mariadb
    fill(engine, 3)
    assert claim.explain(engine).steps_over_locked_rows
    with engine.begin() as other:
        other.execute(select(invoices).where(invoices.c.id == 1).with_for_update())
        rows = claim(engine, invoices, where=NEW, values=SENDING, limit=2)
    assert ids(rows) == [2, 3]


def test_on_the_floor_a_lost_race_is_a_skip(postgres_or_mariadb: Engine) -> None:
    """The floor waits for a row that another caller is taking, and then leaves it alone."""
    engine = postgres_or_mariadb
    fill(engine, 2)
    claimed: list[Any] = []

    def lose() -> None:
        claimed.extend(claim(engine, invoices, where=NEW, values=SENDING, limit=2, path="portable"))

    with engine.begin() as other:
        other.execute(update(invoices).values(state="taken").where(invoices.c.id == 1))
        loser = Thread(target=lose)
        loser.start()
        wait_until_somebody_waits(engine)
    loser.join(timeout=30)
    assert ids(claimed) == [2]
    assert count_of(engine, "taken") == 1


@pytest.fixture(params=["postgres", "mariadb"])
def postgres_or_mariadb(request: pytest.FixtureRequest) -> Engine:
    """The databases that lock rows, and not the whole file."""
    engine: Engine = request.getfixturevalue(request.param)
    return engine


def wait_until_somebody_waits(engine: Engine) -> None:
    waiting = {
        "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
        "mariadb": "SELECT variable_value FROM information_schema.global_status "
        "WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
    }[engine.dialect.name]
    deadline = time.monotonic() + 30
    with engine.connect() as connection:
        while not int(connection.execute(text(waiting)).scalar_one()):
            assert time.monotonic() < deadline, "nobody waits"


@pytest.mark.parametrize("table", [invoices, lines], ids=str)
def test_an_empty_table_gives_nothing(engine: Engine, path: PathName | None, table: Table) -> None:
    taken = {"state": "sending"}
    assert (
        claim(engine, table, where=table.c.state == "new", values=taken, limit=9, path=path) == []
    )
