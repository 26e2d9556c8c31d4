"""Our own connections to PostgreSQL: how they are made, shared, lost and forgotten.

Not psycopg's pool: it makes connections in the background, with pauses that grow with an
outage, so it finds out late that the server is back; and it hands out connections that
died with the server one after the other.
"""

import os
import random
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import make_conninfo

from penstock.errors import (
    StoreOutOfReach,
    StoreRefused,
    StoreTakesNoWrites,
    StoreUnavailable,
)
from penstock.store.postgres.deadlines import LONGEST_ANSWER, WatchedConnection

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

# READ COMMITTED whatever the server's default is: a statement must see what committed
# while it waited for a lock. Every statement has a deadline.
# Every statement has an index to enter by, in the order that it needs. A plan made while the
# tables were small would do without, and is kept when they have grown. Where a few rows have to be
# sorted all the same, a server before 18 reckons with an enormous cost, and would compile the
# statement each time: 300 ms for a claim.
SESSION = (
    "-c default_transaction_isolation=read\\ committed"
    " -c timezone=UTC -c statement_timeout=60s -c idle_in_transaction_session_timeout=60s"
    " -c enable_seqscan=off -c enable_sort=off -c jit=off"
)
KEEPALIVES: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
MOST_CONNECTIONS = 16
LONGEST_WAIT = 30.0  # for a connection of ours to become free
MOST_CONFLICTS = 20

# A migration that cannot get its lock soon steps back: whoever came later would wait behind it.
_CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
_LOST = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction)
_INSTEAD: dict[type[psycopg.Error], str] = {
    errors.ReadOnlySqlTransaction: (
        "If it is a replica, name the primary server; if not, look for who has set "
        "default_transaction_read_only"
    ),
    errors.DiskFull: "Make room on the server's disk",
}

_alive: "weakref.WeakSet[Connections]" = weakref.WeakSet()
_graveyard: list[object] = []  # a parent's connections: closing them here would end them there


class _NotConnected(ConnectionError):
    """Nobody answers under the address, or whoever does hangs up."""

    def __init__(self, because: psycopg.Error, *, may_repeat: bool) -> None:
        super().__init__(str(because))
        self.may_repeat = may_repeat


class _NothingWritten(Exception):
    """The server takes no writes, and has written nothing of what it was asked to do."""

    def __init__(self, because: psycopg.Error) -> None:
        super().__init__(str(because))
        self.because = because


class Connections:
    """Connections in autocommit mode, made when they are needed and kept for the next one."""

    def __init__(
        self, url: str, *, most: int = MOST_CONNECTIONS, patience: float = LONGEST_ANSWER
    ) -> None:
        self._url = url
        self._most = most
        self._patience = patience
        self._start_afresh()
        _alive.add(self)

    def _start_afresh(self) -> None:
        self._idle: deque[WatchedConnection] = deque()
        # Not a semaphore, which is written in Python and takes as long as ten of these.
        self._free: SimpleQueue[None] = SimpleQueue()
        for _ in range(self._most):
            self._free.put(None)
        self._out_of_reach = False  # whether the last connection could not be made

    def run(
        self, doing: str, work: Callable[[WatchedConnection], T], *, repeatable: bool = True
    ) -> T:
        """Do `work` on a connection.

        Deadlocks and serialisation failures are tried again. So is work whose connection
        breaks, once, when repeating it changes nothing twice: the connection may have
        been dead for a while. While none can be made, nobody asks twice at once.
        """
        conflicts = 0
        lost: list[Exception] = []
        while True:
            try:
                return self._lend(work)
            except _CONFLICTS as error:
                conflicts += 1
                if conflicts > MOST_CONFLICTS:
                    raise StoreUnavailable(doing, because=error) from error
                time.sleep(random.uniform(0, 0.002 * 2 ** min(conflicts, 6)))  # noqa: S311
            except (*_LOST, _NothingWritten, _NotConnected) as error:
                lost.append(error)
                if len(lost) > 1 or not (repeatable and _may_repeat(error)):
                    because = error.because if isinstance(error, _NothingWritten) else error
                    raise _unavailable(doing, lost, because) from because
            except TimeoutError as error:
                raise StoreUnavailable(doing, because=error) from error
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                raise StoreRefused(doing, because=error) from error

    def _lend(self, work: Callable[[WatchedConnection], T]) -> T:
        free, idle = self._free, self._idle
        try:
            free.get(timeout=LONGEST_WAIT)
        except Empty:
            message = f"all {self._most} connections have been in use for {LONGEST_WAIT:g} s"
            raise TimeoutError(message) from None
        try:
            connection = self._idle_or_new(idle)
            done = connection.done
            try:
                return work(connection)
            except errors.ReadOnlySqlTransaction as error:
                # A replica, or what was the primary: the next connection may find the new one.
                # Whatever it has answered before was a question.
                connection.close()
                raise _NothingWritten(error) from error
            except errors.DiskFull as error:
                if connection.done == done:
                    raise _NothingWritten(error) from error
                raise
            finally:
                if connection.closed:
                    # The server has gone, and the idle ones have lost it too.
                    self._close_all(idle)
                else:
                    idle.append(connection)
        finally:
            free.put(None)

    def _idle_or_new(self, idle: deque[WatchedConnection]) -> WatchedConnection:
        try:
            return idle.pop()
        except IndexError:
            pass
        known, self._out_of_reach = self._out_of_reach, True
        try:
            connection = self._connect()
        except psycopg.Error as error:
            # A single one that failed is worth another try.
            may_repeat = isinstance(error, _LOST) and not known
            raise _NotConnected(error, may_repeat=may_repeat) from error
        self._out_of_reach = False
        return connection

    def _connect(self) -> WatchedConnection:
        # What the URL says about the session stands, and ours is added to it.
        options = psycopg.conninfo.conninfo_to_dict(self._url).get("options") or ""
        connection = WatchedConnection.connect(
            make_conninfo(self._url, **KEEPALIVES, options=f"{SESSION} {options}".strip()),
            autocommit=True,
            application_name="penstock",
        )
        connection.patience = self._patience
        try:
            if is_pooled(connection):
                connection.prepare_threshold = None
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        self._close_all(self._idle)

    @staticmethod
    def _close_all(idle: deque[WatchedConnection]) -> None:
        while True:
            try:
                idle.pop().close()
            except IndexError:
                return

    def forget(self) -> None:
        """Begin anew after a fork, in the child."""
        _graveyard.extend(self._idle)
        self._start_afresh()


def _may_repeat(error: Exception) -> bool:
    if isinstance(error, _NotConnected):
        return error.may_repeat
    return not isinstance(error, errors.QueryCanceled)


def _unavailable(doing: str, lost: Sequence[Exception], because: Exception) -> StoreUnavailable:
    """Say that nothing was written only where that is known of each time it was tried."""
    if not all(isinstance(error, (_NothingWritten, _NotConnected)) for error in lost):
        return StoreUnavailable(doing, because=because)
    if isinstance(because, psycopg.Error):
        return StoreTakesNoWrites(doing, instead=_INSTEAD[type(because)], because=because)
    return StoreOutOfReach(doing, because=because)


def is_pooled(connection: Connection) -> bool:
    """Whether a pooler answers, behind which the next transaction may be in another session.

    Statements that were prepared in one are unknown in the other, or, worse, are somebody
    else's of the same name.
    """
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    return row != (connection.info.backend_pid,)


def _forget_all() -> None:
    for connections in list(_alive):
        connections.forget()


os.register_at_fork(after_in_child=_forget_all)
