"""With a lease and a fence, a claimer that dies or stalls loses nothing and spoils nothing."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess

import pytest
from sqlalchemy import Engine, String, insert, text
from sqlalchemy.orm import Mapped, Session, mapped_column
from sqlalchemy.orm.exc import StaleDataError

from penstock.claiming import PathName, claim
from penstock.claiming.request import request_of
from penstock.claiming.target import target_of
from tests.claiming.leasing import (
    BATCH,
    LEASE,
    MAX_TRIES,
    START,
    Delivery,
    claim_and_wait,
    finish,
    free,
    take,
)
from tests.claiming.tables import Base

ALL = list(range(1, 6))
SECOND = timedelta(seconds=1)


class Document(Base):
    """Guarded against lost updates by a version, as SQLAlchemy does it."""

    __tablename__ = "documents"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[str] = mapped_column(String(20))
    version: Mapped[int] = mapped_column()

    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012


@pytest.fixture
def deliveries(engine: Engine) -> Engine:
    with Session(engine) as session, session.begin():
        session.add_all([Delivery(id=number) for number in ALL])
    return engine


@contextmanager
def claimer(engine: Engine, path: PathName | None) -> Iterator[tuple[BaseProcess, Pipe]]:
    """A process that has claimed everything, and waits before it does the work."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    url = engine.url.render_as_string(hide_password=False)
    process = context.Process(target=claim_and_wait, args=(url, path, theirs), daemon=True)
    process.start()
    assert ours.poll(60)
    assert ours.recv() == ALL
    yield process, ours
    process.kill()
    process.join()
    process.close()
    ours.close()
    theirs.close()


def test_the_rows_of_a_killed_claimer_come_back_after_the_lease(
    deliveries: Engine, path: PathName | None
) -> None:
    with claimer(deliveries, path) as (process, _):
        process.kill()
        process.join()

    assert take(deliveries, START + LEASE - SECOND, path=path) == []
    again = take(deliveries, START + LEASE, path=path)

    assert [(row.id, row.fence, row.tries) for row in again] == [(n, 2, 2) for n in ALL]


def test_the_late_update_of_a_stalled_claimer_is_refused(
    deliveries: Engine, path: PathName | None
) -> None:
    late = START + LEASE
    with claimer(deliveries, path) as (process, pipe):
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        again = take(deliveries, late, path=path)
        os.kill(process.pid, signal.SIGCONT)
        pipe.send(late)
        assert pipe.poll(60)
        assert pipe.recv() == [False] * len(ALL)

    assert [finish(deliveries, row, late) for row in again] == [True] * len(ALL)


def test_a_row_that_kills_its_claimers_is_left_alone_in_the_end(deliveries: Engine) -> None:
    """A crash counts, because the claim itself counts the tries."""
    now = START
    for _ in range(MAX_TRIES):
        assert len(take(deliveries, now)) == len(ALL)
        now += LEASE
    assert take(deliveries, now) == []


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_partial_index_of_the_recipe_is_used(
    request: pytest.FixtureRequest, database: str
) -> None:
    engine: Engine = request.getfixturevalue(database)
    rows = [{"id": n, "finished_at": START if n > BATCH else None} for n in range(1, 3_000)]
    with engine.begin() as connection:
        connection.execute(insert(Delivery), rows)
    with engine.connect() as connection:
        connection.execute(text("ANALYZE"))
        connection.commit()
        if database == "postgres":
            # The plan that is kept for many calls knows no parameter, so nothing but the shape of
            # the criteria can match the index.
            connection.execute(text("SET LOCAL plan_cache_mode = force_generic_plan"))
        wanted = request_of(target_of(Delivery), values={"fence": 1}, **free(START))
        compiled = wanted.candidates().compile(engine)
        prefix = {"sqlite": "EXPLAIN QUERY PLAN ", "postgres": "EXPLAIN "}[database]
        given = tuple(str(compiled.params[name]) for name in compiled.positiontup or ())
        plan = connection.exec_driver_sql(
            prefix + str(compiled), given or dict(compiled.params)
        ).all()
    assert any("deliveries_free" in str(row) for row in plan), plan


def test_a_claim_that_counts_the_version_up_stops_those_who_read_before(
    engine: Engine, path: PathName | None
) -> None:
    with Session(engine) as session, session.begin():
        session.add(Document(id=1, state="new"))
    with Session(engine, expire_on_commit=False) as session:
        read = session.get_one(Document, 1)
        session.commit()
        (claimed,) = claim(
            engine,
            Document,
            where=Document.state == "new",
            values={"state": "claimed", "version": Document.version + 1},
            limit=1,
            path=path,
        )
        read.state = "overwritten"
        with pytest.raises(StaleDataError):
            session.commit()
    with Session(engine) as session:
        session.add(claimed)
        claimed.state = "done"
        session.commit()
        assert (claimed.state, claimed.version) == ("done", 3)
