"""Connections of psycopg 3, plain and async."""

import sys
from enum import IntEnum

from penstock.store.connections.adapter import Foreign, kind_of
from penstock.store.connections.refusals import (
    ConnectionBusy,
    ConnectionClosed,
    ConnectionInAutocommit,
    PipelineOpen,
    TransactionAborted,
)
from penstock.store.scripts import Row, Step


class TransactionStatus(IntEnum):
    """What libpq knows of the transaction; psycopg and psycopg2 hand out its numbers."""

    IDLE = 0
    ACTIVE = 1
    IN_TRANSACTION = 2
    IN_ERROR = 3
    UNKNOWN = 4


class _Psycopg:
    dialect = "postgresql"
    _block: str

    def __init__(self, connection: Foreign) -> None:
        self.kind = kind_of(connection)
        self.driver_connection = connection

    def check(self) -> Step | None:
        connection = self.driver_connection
        if connection.closed:
            raise ConnectionClosed(self.kind)
        # Older versions of libpq have no pipelines, and not even the question.
        if sys.modules["psycopg"].Pipeline.is_supported() and connection.pgconn.pipeline_status:
            raise PipelineOpen(self.kind)
        match TransactionStatus(connection.info.transaction_status):
            case TransactionStatus.IN_ERROR:
                raise TransactionAborted(self.kind)
            case TransactionStatus.IN_TRANSACTION:
                return None
            case TransactionStatus.ACTIVE if connection.autocommit:
                raise ConnectionBusy(self.kind)
            case _ if connection.autocommit:
                raise ConnectionInAutocommit(
                    self.kind,
                    next_step=f"Enqueue inside `{self._block} connection.transaction():`, or "
                    "connect without `autocommit=True`.",
                )
        return None  # psycopg itself begins before the first statement

    def _cursor(self, cursor_class: str) -> Foreign:
        """Make a cursor that reads and writes as psycopg does before anyone changes it."""
        # Not connection.cursor(): its class may be one that takes other parameter styles.
        psycopg, types = sys.modules["psycopg"], sys.modules["psycopg.types"]
        cursor = getattr(psycopg, cursor_class)(
            self.driver_connection, row_factory=sys.modules["psycopg.rows"].tuple_row
        )
        cursor.adapters.register_dumper(str, types.string.StrDumper)
        cursor.adapters.register_dumper(type(None), types.none.NoneDumper)
        cursor.adapters.register_loader("text", types.string.TextLoader)
        cursor.adapters.register_loader("bool", types.bool.BoolLoader)
        for integer in ("int4", "int8"):
            cursor.adapters.register_loader(integer, types.numeric.IntLoader)
        return cursor


class PsycopgConnection(_Psycopg):
    """A `psycopg.Connection`."""

    _block = "with"

    def open(self) -> None:
        pass

    def execute(self, step: Step) -> list[Row]:
        with self._cursor("Cursor") as cursor:
            cursor.execute(step.statement.pyformat, step.parameters)
            return cursor.fetchall() if cursor.description else []


class PsycopgAsyncConnection(_Psycopg):
    """A `psycopg.AsyncConnection`."""

    _block = "async with"

    async def open(self) -> None:
        pass

    async def execute(self, step: Step) -> list[Row]:
        async with self._cursor("AsyncCursor") as cursor:
            await cursor.execute(step.statement.pyformat, step.parameters)
            return await cursor.fetchall() if cursor.description else []
