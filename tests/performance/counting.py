"""What a SQLite store has its connections do: the statements, and the steps that they take."""

import sqlite3
from typing import Any

import pytest

from penstock.store.sqlite import connecting


class Counter:
    """Counts on every connection that is opened after `watch`."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.steps = 0  # of SQLite's virtual machine: they grow with rows, not with noise

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connect = connecting._connect

        def watched(path: str, **how: Any) -> sqlite3.Connection:  # noqa: ANN401
            connection: sqlite3.Connection = connect(path, **how)
            connection.set_trace_callback(self._note)
            connection.set_progress_handler(self._step, 1)
            return connection

        monkeypatch.setattr(connecting, "_connect", watched)

    def _note(self, statement: str) -> None:
        # For each thing that our trigger does, the statement that fired it is told once more.
        if "INTO one_execution" not in statement or statement not in self.statements[-1:]:
            self.statements.append(statement)

    def _step(self) -> int:
        self.steps += 1
        return 0

    def forget(self) -> None:
        self.statements.clear()
        self.steps = 0

    def count(self, beginning: str) -> int:
        return sum(statement.startswith(beginning) for statement in self.statements)
