"""What the operations of the store speak with: named statements on one connection."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

import psycopg

from penstock.store.postgres.connecting import Connection
from penstock.store.scripts import Row, Step
from penstock.store.sql import Statement


@dataclass(frozen=True, slots=True)
class Session:
    """A connection in autocommit mode, and how this store was told to use it."""

    connection: Connection
    statements: Mapping[str, Statement]
    now: datetime | None  # None: the database's own clock
    notify: bool

    def rows(self, name: str, /, **parameters: object) -> list[Row]:
        cursor = self.connection.execute(self.statements[name].pyformat, parameters)
        return cursor.fetchall() if cursor.description else []

    def execute(self, step: Step) -> list[Row]:
        return self.rows(step.statement.name, **step.parameters)

    def transaction(self) -> AbstractContextManager[psycopg.Transaction]:
        return self.connection.transaction()
