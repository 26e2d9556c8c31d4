"""asyncpg's connections give `aenqueue`, whether the checker reads its types or takes them for Any.

asyncpg says nothing to mypy about its types, and pyright reads what its source says.
"""

import asyncpg  # type: ignore[import-untyped]

from penstock import App, AsyncTaskHandle, Execution

app = App()


@app.task(queue="mail")
async def send(handle: AsyncTaskHandle, order_id: int, to: str) -> str:
    return f"{handle.attempt}: sent {order_id} to {to}"


async def on_a_connection(url: str) -> str:
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        execution = await send.using(connection=connection, key="42").aenqueue(42, to="x")
        with app.using(connection=connection):
            await send.aenqueue(42, to="x")
            await app.aenqueue_many([send.request(n, to="x") for n in range(10)])
    return str(execution.state)


async def on_a_borrowed_one(pool: asyncpg.Pool) -> None:
    async with pool.acquire() as connection, connection.transaction():
        await send.using(connection=connection).aenqueue(42, to="x")


async def on_a_parameter(connection: asyncpg.Connection) -> Execution[str]:
    bound = send.using(connection=connection)
    found: Execution[str] = await bound.aenqueue(42, to="x")
    return found
