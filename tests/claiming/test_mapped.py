"""Claims on mapped classes, and on whatever binds SQLAlchemy's users have at hand."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, inspect, select
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from penstock.claiming import PathName, claim
from tests.claiming.tables import NEW, SENDING, Job, Report, count_of, fill, invoices

FREE = Job.state == "new"
TAKEN = {"state": "running", Job.fence: Job.fence + 1}


@pytest.fixture
def jobs(engine: Engine) -> Engine:
    with Session(engine) as session, session.begin():
        session.add_all([Job(id=1, title="one"), Report(id=2, title="two"), Job(id=3)])
    return engine


def test_an_engine_gives_detached_instances_that_are_loaded(
    jobs: Engine, path: PathName | None
) -> None:
    first, second = claim(jobs, Job, where=FREE, values=TAKEN, limit=2, path=path)
    assert inspect(first).detached
    assert (first.id, first.state, first.fence, first.title) == (1, "running", 1, "one")
    assert (type(first), type(second)) == (Job, Report)


def test_a_session_gives_its_own_instances_and_is_left_without_a_transaction(
    jobs: Engine, path: PathName | None
) -> None:
    with Session(jobs) as session:
        known = session.get_one(Job, 1)
        session.commit()
        rows = claim(session, Job, where=FREE, values=TAKEN, limit=2, path=path)
        assert rows[0] is known
        assert [(row.state, row.fence) for row in rows] == [("running", 1)] * 2
        assert not session.in_transaction()
        rows[0].state = "done"
        session.commit()
        assert session.expire_on_commit
    with Session(jobs) as session:
        assert session.get_one(Job, 1).state == "done"


def test_a_class_that_shares_its_table_claims_its_own_rows(
    jobs: Engine, path: PathName | None
) -> None:
    rows = claim(
        jobs, Report, where=Report.state == "new", values={"state": "x"}, limit=9, path=path
    )
    assert [row.id for row in rows] == [2]
    with Session(jobs) as session:
        assert session.scalars(select(Job.id).where(FREE).order_by(Job.id)).all() == [1, 3]


def test_attributes_order_rows(jobs: Engine, path: PathName | None) -> None:
    rows = claim(jobs, Job, where=FREE, values=TAKEN, limit=2, order_by=Job.id.desc(), path=path)
    assert [row.id for row in rows] == [3, 2]


def test_a_session_gives_rows_of_tables_too(engine: Engine, path: PathName | None) -> None:
    fill(engine, 2)
    with Session(engine) as session:
        rows = claim(session, invoices, where=NEW, values=SENDING, limit=9, path=path)
        assert [row.id for row in rows] == [1, 2]
        assert not session.in_transaction()
    assert count_of(engine, "sending") == 2


def test_a_scoped_session_is_a_session(engine: Engine) -> None:
    fill(engine, 1)
    shared = scoped_session(sessionmaker(engine))
    assert len(claim(shared, invoices, where=NEW, values=SENDING, limit=9)) == 1
    shared.remove()


def test_a_connection_is_given_back_as_it_came(engine: Engine, path: PathName | None) -> None:
    fill(engine, 2)
    with engine.connect() as connection:
        level = connection.get_isolation_level()
        rows = claim(connection, invoices, where=NEW, values=SENDING, limit=1, path=path)
        assert [row.id for row in rows] == [1]
        assert not connection.in_transaction()
        assert connection.get_isolation_level() == level
    with engine.connect() as connection:
        (row,) = claim(connection, invoices, where=NEW, values=SENDING, limit=1, path=path)
        assert row.id == 2


@pytest.fixture(params=["AUTOCOMMIT", "SERIALIZABLE"])
def unusual(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Engine]:
    unusual = create_engine(engine.url, isolation_level=request.param)
    yield unusual
    unusual.dispose()


def test_an_engine_of_another_isolation_level_will_do(
    unusual: Engine, path: PathName | None
) -> None:
    fill(unusual, 3)
    rows = claim(unusual, invoices, where=NEW, values=SENDING, limit=2, path=path)
    assert [row.id for row in rows] == [1, 2]
    with Session(unusual) as session:
        rows = claim(session, invoices, where=NEW, values=SENDING, limit=2, path=path)
        assert [row.id for row in rows] == [3]
    with unusual.connect() as connection:
        level = connection.get_isolation_level()
        assert claim(connection, invoices, where=NEW, values=SENDING, limit=2, path=path) == []
        assert connection.get_isolation_level() == level


def test_a_session_on_a_connection_will_do(jobs: Engine, path: PathName | None) -> None:
    with jobs.connect() as connection, Session(connection) as session:
        rows = claim(session, Job, where=FREE, values=TAKEN, limit=2, path=path)
        assert [row.id for row in rows] == [1, 2]
    with jobs.connect() as connection:
        (row,) = claim(connection, Job, where=FREE, values=TAKEN, limit=2, path=path)
        assert inspect(row).detached
        assert row.id == 3
