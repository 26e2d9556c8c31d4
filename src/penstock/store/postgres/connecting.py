"""Our own connections to PostgreSQL: how they are made, shared, lost and forgotten."""

import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from penstock.errors import StoreRefused, StoreUnavailable

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

# READ COMMITTED whatever the server's default is: a statement must see what committed
# while it waited for a lock. Every statement has a deadline.
SESSION = (
    "-c default_transaction_isolation=read\\ committed"
    " -c timezone=UTC -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s"
)
KEEPALIVES: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
MOST_CONNECTIONS = 10
MOST_CONFLICTS = 20

_CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure)
_LOST = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, PoolClosed)

_alive: "weakref.WeakSet[Connections]" = weakref.WeakSet()
_graveyard: list[object] = []  # a parent's connections: closing them here would end them there


class Connections:
    """A pool that opens when it is first needed, once in every process."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool: ConnectionPool[Connection] | None = None
        self._lock = threading.Lock()
        _alive.add(self)

    def run(self, doing: str, work: Callable[[Connection], T], *, repeatable: bool = True) -> T:
        """Do `work` on a connection in autocommit mode.

        Deadlocks and serialisation failures are tried again. So is work whose connection
        breaks, once, when repeating it changes nothing twice: the connection may have
        been dead for a while.
        """
        conflicts = 0
        repeats = 1 if repeatable else 0
        while True:
            try:
                with self._opened().connection() as connection:
                    return work(connection)
            except _CONFLICTS as error:
                conflicts += 1
                if conflicts > MOST_CONFLICTS:
                    raise StoreUnavailable(doing, because=error) from error
                time.sleep(random.uniform(0, 0.002 * 2 ** min(conflicts, 6)))  # noqa: S311
            except _LOST as error:
                if repeats == 0 or isinstance(error, PoolTimeout | errors.QueryCanceled):
                    raise StoreUnavailable(doing, because=error) from error
                repeats -= 1
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                raise StoreRefused(doing, because=error) from error

    def close(self) -> None:
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _opened(self) -> "ConnectionPool[Connection]":
        pool = self._pool
        if pool is not None:
            return pool
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self._url,
                    connection_class=psycopg.Connection[tuple[Any, ...]],
                    kwargs={
                        "autocommit": True,
                        "application_name": "penstock",
                        "options": SESSION,
                        **KEEPALIVES,
                    },
                    min_size=0,
                    max_size=MOST_CONNECTIONS,
                    num_workers=1,
                    open=True,
                    name="penstock",
                )
            return self._pool

    def _forget(self) -> None:
        if self._pool is not None:
            _graveyard.append(self._pool)
        self._pool = None
        self._lock = threading.Lock()


def _forget_all() -> None:
    for connections in list(_alive):
        connections._forget()  # noqa: SLF001


os.register_at_fork(after_in_child=_forget_all)
