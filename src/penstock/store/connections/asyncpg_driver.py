"""Connections of asyncpg, their own or lent by its pool."""

import sys

from penstock.store.connections.adapter import Foreign, kind_of
from penstock.store.connections.refusals import ConnectionClosed, ConnectionInAutocommit
from penstock.store.scripts import Row, Step


class AsyncpgConnection:
    """An `asyncpg.Connection`, or what stands for one while a pool lends it."""

    dialect = "postgresql"

    def __init__(self, connection: Foreign) -> None:
        self.kind = kind_of(connection)
        self._given = connection

    @property
    def driver_connection(self) -> object:
        # A pool wraps the same connection anew each time; what we know of it stays true.
        return getattr(self._given, "_con", self._given)

    async def open(self) -> None:
        pass

    def check(self) -> Step | None:
        if self.driver_connection is None:
            raise ConnectionClosed(self.kind, how="has been given back to its pool")
        if self._given.is_closed():
            raise ConnectionClosed(self.kind)
        # True in a failed transaction too: that shows only when the first statement is refused.
        if not self._given.is_in_transaction():
            raise ConnectionInAutocommit(
                self.kind, next_step="Enqueue inside `async with connection.transaction():`."
            )
        return None

    async def execute(self, step: Step) -> list[Row]:
        values = [step.parameters[name] for name in step.statement.parameters]
        record = sys.modules["asyncpg"].Record  # the caller may have set another class
        rows = await self._given.fetch(step.statement.dollar, *values, record_class=record)
        return [tuple(row) for row in rows]
