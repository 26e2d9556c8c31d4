"""Connections by shape.

Drivers' own types become `Any` where the driver is not installed, and then every overload
matches. A shape works everywhere, and an engine or a pool does not have it.
"""

import inspect
from collections.abc import Awaitable
from typing import Any, Protocol


class SyncConnection(Protocol):
    """sqlite3, psycopg, SQLAlchemy's Connection, Session and scoped_session."""

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class _AwaitedCommit(Protocol):
    def commit(self) -> Awaitable[None]: ...
    def rollback(self) -> Awaitable[None]: ...


class _Asyncpg(Protocol):
    def is_in_transaction(self) -> bool: ...
    def fetchrow(self, query: str, *args: Any) -> Awaitable[Any]: ...


AsyncConnection = _AwaitedCommit | _Asyncpg
"""psycopg async, SQLAlchemy async, asyncpg."""


def is_async(connection: object) -> bool:
    """Say which of the two shapes a connection has; what has neither counts as sync."""
    commit = getattr(type(connection), "commit", None)
    if commit is not None:
        return inspect.iscoroutinefunction(commit)
    return hasattr(connection, "is_in_transaction") and hasattr(connection, "fetchrow")
