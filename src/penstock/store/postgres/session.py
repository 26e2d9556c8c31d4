"""What the operations of the store speak with: named statements on one connection."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime

import msgspec
import psycopg

from penstock.store.postgres.deadlines import WatchedConnection
from penstock.store.scripts import Row, Step
from penstock.store.sql import Statement


class Session(msgspec.Struct, frozen=True):
    """A connection in autocommit mode, and how this store was told to use it."""

    connection: WatchedConnection
    statements: Mapping[str, Statement]
    now: datetime | None  # None: the database's own clock
    notify: bool

    def rows(self, name: str, /, **parameters: object) -> list[Row]:
        return self.connection.answer(self.statements[name].pyformat, parameters)

    def send(self, name: str, /, **parameters: object) -> psycopg.Cursor[Row]:
        """Run a statement; in a pipeline nobody waits for it before its rows are asked for."""
        return self.connection.execute(self.statements[name].pyformat, parameters)

    def execute(self, step: Step) -> list[Row]:
        return self.rows(step.statement.name, **step.parameters)

    def transaction(self) -> AbstractContextManager[psycopg.Transaction]:
        return self.connection.transaction()
