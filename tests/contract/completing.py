"""Handlers that complete in a transaction of their own, for every kind of connection."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import pytest

from penstock.model.executions import Lease
from penstock.model.runs import NewRun
from penstock.store.contract import Store
from tests.contract.callers import ON_POSTGRES, ON_SQLITE, AsyncCaller, Opening, PlainCaller
from tests.contract.databases import Database, PostgresDatabase

Body = Callable[[PlainCaller], Awaitable[None]]
Handler = Callable[[Body], None]
Kind = tuple[str, str]  # the fixture with the database, and the kind of connection


def _on(database: str, openings: dict[str, Opening]) -> list[object]:
    marks = [pytest.mark.postgres] if "postgres" in database else []
    return [pytest.param((database, name), id=name, marks=marks) for name in openings]


ALL_KINDS = _on("sqlite", ON_SQLITE) + _on("emptied_postgres", ON_POSTGRES)
PLAIN_KINDS = _on("sqlite", {"sqlite3": ON_SQLITE["sqlite3"]}) + _on(
    "emptied_postgres", {"psycopg": ON_POSTGRES["psycopg"]}
)


def with_connection(kind: Kind, database: Database) -> Handler:
    """Return what runs a handler with a connection that it has just opened."""
    open_for = (ON_SQLITE | ON_POSTGRES)[kind[1]]

    async def use(body: Body) -> None:
        async with open_for(database) as caller:
            await body(caller)

    return lambda body: asyncio.run(use(body))


def effects_table(database: Database) -> str:
    """Make a table for the effects of handlers; return the name by which they find it."""
    database.query("CREATE TABLE effects (execution TEXT)")
    return f"{database.schema}.effects" if isinstance(database, PostgresDatabase) else "effects"


def drop_effects(database: Database) -> None:
    database.query("DROP TABLE IF EXISTS effects")
    database.query("DELETE FROM once_ledger")


async def take_effect(handler: PlainCaller, effects: str, lease: Lease) -> None:
    await handler.write(f"INSERT INTO {effects} VALUES ('{lease.execution_id}')")


async def complete(
    store: Store,
    handler: PlainCaller,
    lease: Lease,
    *,
    result: str = '"done"',
    started_at: datetime | None = None,
    writes: str | None = None,
) -> None:
    on = handler.connection
    if isinstance(handler, AsyncCaller):
        await store.acomplete_on(on, lease, result=result, started_at=started_at, writes=writes)
    else:
        store.complete_on(on, lease, result=result, started_at=started_at, writes=writes)


async def start_runs(store: Store, handler: PlainCaller, runs: Sequence[NewRun]) -> None:
    if isinstance(handler, AsyncCaller):
        await store.astart_runs_on(handler.connection, runs)
    else:
        store.start_runs_on(handler.connection, runs)


async def once(store: Store, handler: PlainCaller, lease: Lease, name: str = "charge") -> bool:
    if isinstance(handler, AsyncCaller):
        return await store.aonce_on(handler.connection, lease, name)
    return store.once_on(handler.connection, lease, name)
