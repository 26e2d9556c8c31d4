"""The same claim on SQLAlchemy's asynchronous engines, connections and sessions."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from penstock.claiming import BindRefused, InTransaction, PathName, aclaim
from tests.claiming.tables import NEW, SENDING, Job, count_of, fill, invoices

WANTED: dict[str, Any] = {"where": NEW, "values": SENDING}

Scene = Callable[[AsyncEngine], Awaitable[None]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def shop(request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.getfixturevalue(request.param)
    fill(engine, 6)
    return engine


def play(engine: Engine, scene: Scene) -> None:
    """Run the scene on a loop of its own, with an asynchronous engine on the same tables."""
    url = make_url(engine.url)
    options: dict[str, Any] = {}
    if url.drivername == "sqlite":
        url = url.set(drivername="sqlite+aiosqlite")
    else:
        schema = str(url.query["options"]).rpartition("=")[2]
        url = url.set(drivername="postgresql+asyncpg", query={})
        options["connect_args"] = {"server_settings": {"search_path": schema}}

    async def whole() -> None:
        bind = create_async_engine(url, **options)
        try:
            await scene(bind)
        finally:
            await bind.dispose()

    asyncio.run(whole())


def test_every_asynchronous_bind_claims(shop: Engine, path: PathName | None) -> None:
    async def scene(bind: AsyncEngine) -> None:
        rows = await aclaim(bind, invoices, limit=2, path=path, **WANTED)
        assert [(row.id, row.state) for row in rows] == [(1, "sending"), (2, "sending")]
        async with bind.connect() as connection:
            rows = await aclaim(connection, invoices, limit=2, path=path, **WANTED)
        assert [row.id for row in rows] == [3, 4]
        async with AsyncSession(bind) as session:
            rows = await aclaim(session, invoices, limit=2, path=path, **WANTED)
            assert not session.in_transaction()
        assert [row.id for row in rows] == [5, 6]

    play(shop, scene)
    assert count_of(shop, "sending") == 6


def test_instances_come_back_loaded(shop: Engine, path: PathName | None) -> None:
    async def scene(bind: AsyncEngine) -> None:
        async with AsyncSession(bind) as session:
            session.add_all([Job(id=1), Job(id=2)])
            await session.commit()
            taken = {"state": "running"}
            new = Job.state == "new"
            (mine,) = await aclaim(session, Job, where=new, values=taken, limit=1, path=path)
            assert (mine.id, mine.state, mine in session) == (1, "running", True)
            mine.state = "done"
            await session.commit()
        (other,) = await aclaim(bind, Job, where=new, values=taken, limit=9, path=path)
        assert (other.id, other.state) == (2, "running")

    play(shop, scene)


def test_callers_on_one_loop_never_share_a_row(shop: Engine) -> None:
    async def scene(bind: AsyncEngine) -> None:
        batches = await asyncio.gather(
            *(aclaim(bind, invoices, limit=2, **WANTED) for _ in range(5))
        )
        given = [row.id for rows in batches for row in rows]
        assert len(given) == len(set(given))

    play(shop, scene)


def test_the_explanation_is_the_same(shop: Engine) -> None:
    async def scene(bind: AsyncEngine) -> None:
        assert (await aclaim.explain(bind)).path == shop.dialect.name

    play(shop, scene)


def test_wrong_use_is_refused(shop: Engine) -> None:
    async def scene(bind: AsyncEngine) -> None:
        async with bind.begin() as connection:
            with pytest.raises(InTransaction):
                await aclaim(connection, invoices, limit=1, **WANTED)
        with pytest.raises(BindRefused, match="it is not connected"):
            await aclaim(bind.connect(), invoices, limit=1, **WANTED)
        synchronous: Any = shop
        with pytest.raises(BindRefused, match="it is synchronous"):
            await aclaim(synchronous, invoices, limit=1, **WANTED)
        nothing: Any = Path()
        with pytest.raises(BindRefused, match="an AsyncConnection or an AsyncSession"):
            await aclaim(nothing, invoices, limit=1, **WANTED)

    play(shop, scene)
    assert count_of(shop, "new") == 6
