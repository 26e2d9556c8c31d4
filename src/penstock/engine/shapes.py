"""Connections by shape.

Drivers' own types become `Any` where the driver is not installed, and then every overload
matches. A shape works everywhere, and an engine or a pool does not have it.
"""

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
    def fetchrow(self, query: str, *args: Any) -> Awaitable[Any]: ...  # noqa: ANN401


class _BorrowedAsyncpg(Protocol):
    # From asyncpg's pool: it gets the methods of a connection while the program runs, so all
    # that a type checker can see of it is how it goes back.
    def __getattr__(self, name: str, /) -> Any: ...  # noqa: ANN401
    def _detach(self) -> Any: ...  # noqa: ANN401


AsyncConnection = _AwaitedCommit | _Asyncpg | _BorrowedAsyncpg
"""psycopg async, SQLAlchemy async, asyncpg."""
