# pyright: strict
"""SQLAlchemy's connections and sessions: sync ones give `enqueue`, async ones `aenqueue`."""

from typing import assert_type

from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from penstock import App, Execution, TaskHandle

app = App()


@app.task
def send(handle: TaskHandle, order_id: int, to: str) -> str:
    return f"{handle.attempt}: sent {order_id} to {to}"


engine = create_engine("sqlite:///orders.db")

with engine.begin() as opened:
    assert_type(send.using(connection=opened).enqueue(42, to="x"), Execution[str])

with Session(engine) as begun, begun.begin():
    assert_type(send.using(connection=begun, key="42").enqueue(42, to="x"), Execution[str])
    with app.using(connection=begun):
        send.enqueue(42, to="x")
        app.enqueue_many([send.request(n, to="x") for n in range(10)])

with sessionmaker(engine).begin() as made:
    send.using(connection=made).enqueue(42, to="x")

shared = scoped_session(sessionmaker(engine))
assert_type(send.using(connection=shared).enqueue(42, to="x"), Execution[str])


def pass_along(connection: Connection, session: Session) -> list[Execution[str]]:
    return [
        send.using(connection=connection).enqueue(1, to="x"),
        send.using(connection=session).enqueue(2, to="x"),
    ]


async def on_a_loop(connection: AsyncConnection, session: AsyncSession) -> None:
    assert_type(await send.using(connection=connection).aenqueue(42, to="x"), Execution[str])
    assert_type(await send.using(connection=session).aenqueue(42, to="x"), Execution[str])
    with app.using(connection=session):
        await send.aenqueue(42, to="x")
    async_engine = create_async_engine("postgresql+asyncpg://localhost/orders")
    async with async_engine.begin() as opened_later:
        await send.using(connection=opened_later, priority=5).aenqueue(42, to="x")
    async with async_sessionmaker(async_engine).begin() as begun_later:
        await send.using(connection=begun_later).aenqueue(42, to="x")
