"""Used wrongly: a clear error, and nothing is claimed."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Engine,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, aliased, sessionmaker
from sqlalchemy.pool import StaticPool

from penstock.claiming import (
    BindRefused,
    ClaimContended,
    ClaimRefused,
    InTransaction,
    InvalidClaim,
    InvalidLimit,
    NoPrimaryKey,
    NotATable,
    PathName,
    PendingChanges,
    UnheldClaim,
    UnknownColumn,
    claim,
)
from penstock.errors import PenstockError
from tests.claiming.tables import NEW, SENDING, Job, count_of, fill, invoices, lines, metadata

WANTED: dict[str, Any] = {"where": NEW, "values": SENDING, "limit": 5}


@pytest.fixture
def shop(engine: Engine) -> Iterator[Engine]:
    """Three new invoices, of which none may be claimed when the test ends."""
    fill(engine, 3)
    yield engine
    assert count_of(engine, "new") == 3


def test_a_connection_inside_a_transaction(shop: Engine, path: PathName | None) -> None:
    with shop.begin() as connection, pytest.raises(InTransaction) as refused:
        claim(connection, invoices, path=path, **WANTED)
    assert str(refused.value) == (
        "The Connection is inside a transaction, and others would not see the claim before that "
        "commits: they would wait for it, or it would be rolled back with the rest. Nothing was "
        "claimed. End the transaction first, or pass the engine."
    )


def test_a_session_inside_a_transaction(shop: Engine) -> None:
    with Session(shop) as session:
        session.execute(text("SELECT 1"))
        with pytest.raises(InTransaction, match="The Session is inside"):
            claim(session, invoices, **WANTED)


def test_a_session_on_a_connection_inside_a_transaction(shop: Engine) -> None:
    with shop.begin() as connection, Session(connection) as session:
        with pytest.raises(InTransaction, match="The Connection is inside"):
            claim(session, invoices, **WANTED)
        assert not session.in_transaction()


def test_a_session_with_pending_changes(shop: Engine) -> None:
    with Session(shop) as session:
        session.add(Job(id=1))
        with pytest.raises(PendingChanges, match="1 new, 0 changed, 0 deleted") as refused:
            claim(session, invoices, **WANTED)
        assert (refused.value.new, refused.value.changed, refused.value.deleted) == (1, 0, 0)


def test_a_transaction_of_somebody_else_on_a_shared_connection() -> None:
    """An in-memory SQLite has one connection, and who has begun on it is not done yet."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    metadata.create_all(engine)
    with engine.connect() as other:
        other.execute(insert(invoices), [{"id": 1, "state": "new"}])
        with pytest.raises(InTransaction):
            claim(engine, invoices, **WANTED)
    engine.dispose()


@pytest.mark.parametrize(
    ("bind", "said"),
    [
        (sessionmaker(), "makes sessions and is none"),
        ("sqlite://", "builtins.str: it leads to no database"),
        (None, "Pass an Engine, a Connection or a Session"),
        (create_async_engine("sqlite+aiosqlite://"), r"`await aclaim\(…\)` takes it"),
    ],
)
def test_no_bind_at_all(bind: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(BindRefused, match=said) as refused:
        claim(bind, invoices, **WANTED)
    assert isinstance(refused.value, TypeError)


def test_a_closed_connection(shop: Engine) -> None:
    connection = shop.connect()
    connection.close()
    with pytest.raises(BindRefused, match="it is closed"):
        claim(connection, invoices, **WANTED)


def test_a_column_that_is_not_there(shop: Engine) -> None:
    with pytest.raises(UnknownColumn) as refused:
        claim(shop, invoices, where=NEW, values={"sate": "sending"}, limit=5)
    assert str(refused.value) == (
        "Table 'invoices' has no column 'sate'. Nothing was claimed. Did you mean 'state'?"
    )
    with pytest.raises(UnknownColumn, match="It has id, state, priority, tries"):
        claim(shop, invoices, where=NEW, values={lines.c.weight: 1}, limit=5)
    with pytest.raises(UnknownColumn, match="no column 'job_state'"):
        claim(shop, Job, where=Job.state == "new", values={"job_state": "x"}, limit=5)


def test_a_column_that_only_the_database_misses(shop: Engine, path: PathName | None) -> None:
    misspelt: Any = text("sate = 'new'")
    with pytest.raises(DBAPIError, match="sate"):
        claim(shop, invoices, where=misspelt, values=SENDING, limit=5, path=path)


def test_a_table_without_a_primary_key(shop: Engine) -> None:
    bare = Table("bare", MetaData(), Column("state", String(9)))
    with pytest.raises(NoPrimaryKey, match="Table 'bare' has no primary key"):
        claim(shop, bare, where=bare.c.state == "new", values={"state": "x"}, limit=5)


@pytest.mark.parametrize("limit", [-1, 1.5, "5", None, True])
def test_a_limit_that_is_no_number_of_rows(shop: Engine, limit: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidLimit, match="is not a number of rows"):
        claim(shop, invoices, where=NEW, values=SENDING, limit=limit)


@pytest.mark.parametrize(
    "table",
    ["invoices", aliased(Job), Job(id=1), Session],
    ids=["a name", "an alias", "a row", "a session"],
)
def test_what_is_not_a_table(sqlite: Engine, table: Any) -> None:  # noqa: ANN401
    with pytest.raises(NotATable, match="Rows cannot be claimed from"):
        claim(sqlite, table, where=Job.state == "new", values={"state": "x"}, limit=5)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"values": {}}, "there is nothing to set"),
        ({"values": {"id": 7, "state": "x"}}, "'id' is part of the primary key"),
        ({"where": True}, "`where` makes no claim on table 'invoices': True is no expression"),
        ({"where": "state = 'new'"}, "is no expression about the table's columns"),
        ({"where": lines.c.state == "new"}, "it also reads lines"),
        ({"order_by": "priority"}, "'priority' is no expression"),
        ({"order_by": lines.c.weight}, "it also reads lines"),
    ],
)
def test_what_makes_no_claim(shop: Engine, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidClaim, match=said):
        claim(shop, invoices, **{**WANTED, **changed})


def test_values_that_leave_the_rows_free(shop: Engine, path: PathName | None) -> None:
    with pytest.raises(UnheldClaim, match="the next caller would be given it too"):
        claim(shop, invoices, where=NEW, values={"tries": 1}, limit=5, path=path)
    with pytest.raises(UnheldClaim):
        claim(shop, invoices, where=invoices.c.id < 9, values=SENDING, limit=5, path=path)


def test_a_claim_that_the_database_keeps_undoing(postgres: Engine) -> None:
    fill(postgres, 1)
    with postgres.begin() as connection:
        connection.execute(
            text(
                "CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'deadlock_detected'; END $$"
            )
        )
        connection.execute(
            text("CREATE TRIGGER undo BEFORE UPDATE ON invoices EXECUTE FUNCTION undo()")
        )
    undone = 0

    @event.listens_for(postgres, "rollback")
    def count(_connection: object) -> None:
        nonlocal undone
        undone += 1

    with pytest.raises(ClaimContended, match="undone by the database 10 times") as contended:
        claim(postgres, invoices, **WANTED)
    assert undone == contended.value.tries == 10
    assert isinstance(contended.value.__cause__, DBAPIError)
    with postgres.begin() as connection:
        connection.execute(text("DROP FUNCTION undo CASCADE"))


def test_every_refusal_is_one_kind_of_penstock_error() -> None:
    assert issubclass(ClaimRefused, PenstockError)
    kinds = {BindRefused, InTransaction, PendingChanges, NotATable, NoPrimaryKey, UnknownColumn}
    assert kinds | {InvalidLimit, InvalidClaim, UnheldClaim} <= set(ClaimRefused.__subclasses__())
