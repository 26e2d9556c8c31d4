# pyright: strict
"""psycopg's connections, whatever rows they make: sync give `enqueue`, async `aenqueue`."""

from typing import Any, assert_type

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from penstock import App, Execution

app = App()


@app.task
def send(order_id: int, to: str) -> str:
    return f"sent {order_id} to {to}"


with psycopg.connect("postgresql://localhost/orders") as opened:
    assert_type(send.using(connection=opened).enqueue(42, to="x"), Execution[str])
    with app.using(connection=opened):
        send.enqueue(42, to="x")

with psycopg.Connection[DictRow].connect("dbname=orders", row_factory=dict_row) as with_dicts:
    assert_type(send.using(connection=with_dicts, key="42").enqueue(42, to="x"), Execution[str])

with ConnectionPool("postgresql://localhost/orders") as pool, pool.connection() as borrowed:
    assert_type(send.using(connection=borrowed).enqueue(42, to="x"), Execution[str])


def pass_along(connection: psycopg.Connection[Any]) -> Execution[str]:
    return send.using(connection=connection).enqueue(42, to="x")


async def on_a_loop(connection: psycopg.AsyncConnection[DictRow]) -> None:
    assert_type(await send.using(connection=connection).aenqueue(42, to="x"), Execution[str])
    async with (
        AsyncConnectionPool("postgresql://localhost/orders") as pool,
        pool.connection() as borrowed,
    ):
        assert_type(await send.using(connection=borrowed).aenqueue(42, to="x"), Execution[str])
