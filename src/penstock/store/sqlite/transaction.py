"""What the operations of the store write with: named statements at one moment."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from penstock.store.scripts import Row, Step
from penstock.store.sql import Statement


class ReadyRow(NamedTuple):
    """A row of the outbox; without a `seq` it goes to the end."""

    task_execution_id: str
    seq: int | None
    queue: str
    priority: int
    suspect: bool
    task: str


class EventRow(NamedTuple):
    """A row of the history."""

    root_id: str
    task_execution_id: str | None
    type: str
    data: str | None
    worker_id: str | None
    at: int


def encode_json(value: object) -> str:
    """Return JSON for a statement; what users wrote has been checked before it gets here."""
    return msgspec.json.encode(value).decode()


class Transaction(NamedTuple):
    """An open transaction, and the moment at which all of it happens."""

    connection: sqlite3.Connection
    statements: Mapping[str, Statement]
    now: int  # microseconds since 1970

    def rows(self, name: str, /, **parameters: object) -> list[Row]:
        return self.connection.execute(self.statements[name].sql, parameters).fetchall()

    def count(self, name: str, /, **parameters: object) -> int:
        """Run a statement that returns no rows; return how many it has changed."""
        return self.connection.execute(self.statements[name].sql, parameters).rowcount

    def execute(self, step: Step) -> list[Row]:
        return self.connection.execute(step.statement.sql, step.parameters).fetchall()

    def fill_outbox(self, ready: Sequence[ReadyRow]) -> None:
        """Make executions available to workers, in this order."""
        if ready:
            self.rows("fill_outbox", batch=encode_json(ready))

    def tell(self, events: Sequence[EventRow]) -> None:
        """Add to the history, in this order."""
        if events:
            self.rows("tell", batch=encode_json(events))
