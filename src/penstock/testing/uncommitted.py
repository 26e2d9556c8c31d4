"""What has been enqueued on callers' connections and is not committed yet.

Only the connection itself sees it, so the connection is asked: what was rolled back, or lost
with a savepoint, is not there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from penstock.engine.executions import Execution
from penstock.model.payloads import encode
from penstock.store.connections.adapter import Foreign, Shape, shapes_of
from penstock.store.connections.callers import ASYNC, SYNC
from penstock.store.connections.psycopg_driver import TransactionStatus
from penstock.store.scripts import Step
from penstock.store.sql import Statement, in_schema

V = TypeVar("V")

_ON = {
    "sqlite": Statement(
        "enqueued",
        "SELECT id FROM task_executions WHERE id IN (SELECT value FROM json_each(:ids))",
    ),
    "postgresql": Statement(
        "enqueued",
        "SELECT id::text FROM penstock.task_executions"
        " WHERE id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json))",
    ),
}


class _Written(NamedTuple):
    connection: Foreign
    executions: Sequence[Execution[Any]]


class Uncommitted:
    """Remembers which connections have carried executions."""

    def __init__(self, schema: Callable[[], str]) -> None:
        self._schema = schema
        self._written: list[_Written] = []

    def note(self, connection: object, executions: Sequence[Execution[Any]]) -> None:
        """Take in what was just written on a connection."""
        self._written.append(_Written(connection, [one for one in executions if one.created]))

    def seen(self, committed: set[str]) -> list[Execution[Any]]:
        """Those that a plain connection sees and nobody else yet."""
        found: list[Execution[Any]] = []
        for connection, executions in self._pending(committed):
            if (make := _among(SYNC, connection)) is None or not in_transaction(connection):
                continue
            adapter = make(connection)
            adapter.open()
            rows = adapter.execute(self._asking(adapter.dialect, executions))
            found += _those(executions, rows)
        return found

    async def aseen(self, committed: set[str]) -> list[Execution[Any]]:
        """Those that a connection of either colour sees and nobody else yet."""
        found = self.seen(committed)
        for connection, executions in self._pending(committed):
            if (make := _among(ASYNC, connection)) is None or not in_transaction(connection):
                continue
            adapter = make(connection)
            await adapter.open()
            rows = await adapter.execute(self._asking(adapter.dialect, executions))
            found += _those(executions, rows)
        return found

    def _pending(self, committed: set[str]) -> list[_Written]:
        pending = [
            _Written(connection, [one for one in executions if one.id not in committed])
            for connection, executions in self._written
        ]
        return [one for one in pending if one.executions]

    def _asking(self, dialect: str, executions: Sequence[Execution[Any]]) -> Step:
        asking = _ON[dialect]
        if dialect == "postgresql":
            asking = Statement(asking.name, in_schema(asking.sql, self._schema()))
        return Step(asking, {"ids": encode([one.id for one in executions])})


def in_transaction(connection: Foreign) -> bool:
    """Whether a transaction is open, without touching anything: a look must not open one."""
    try:
        for name in ("in_transaction", "is_in_transaction"):  # a property in sqlite3
            if (found := getattr(connection, name, None)) is not None:
                return bool(found() if callable(found) else found)
        status = connection.info.transaction_status
    except Exception:  # noqa: BLE001 - closed, or given back: each library has its own error
        return False
    return bool(status == TransactionStatus.IN_TRANSACTION)


def _among(adapters: Mapping[Shape, V], connection: object) -> V | None:
    return next((adapters[shape] for shape in shapes_of(connection) if shape in adapters), None)


def _those(
    executions: Sequence[Execution[Any]], rows: Sequence[tuple[Any, ...]]
) -> list[Execution[Any]]:
    there = {row[0] for row in rows}
    return [one for one in executions if one.id in there]
