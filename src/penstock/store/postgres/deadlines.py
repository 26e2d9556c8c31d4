"""A deadline for every answer of the server, kept on our side of the network.

The server ends a statement that takes too long, and the kernel notices a machine that is gone. But
a proxy or a load balancer in between acknowledges what it will never pass on: without a deadline of
our own, a worker would wait for such an answer for ever.
"""

import os
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import RowFactory, tuple_row

from penstock.store.scripts import Row

LOOK_EVERY = 0.5
LONGEST_ANSWER = 75.0  # the server gives up on a statement before
MOST_CURSORS = 4  # kept for the statements that ran last
MOST_ROWS = 20  # that a kept cursor has got
LONGEST_VALUE = 20_000  # characters of a text, or items, that it was given or has got
_OUTSIDE = int(TransactionStatus.IDLE)  # no transaction is open


class _Watch:
    """One thread of this process: ends the connections whose answers are overdue."""

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[WatchedConnection, float] = {}
        self._thread: threading.Thread | None = None

    def begin(self, connection: "WatchedConnection") -> None:
        with self._lock:
            self._waiting[connection] = time.monotonic() + connection.patience
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._look_for_ever, name="penstock-deadlines", daemon=True
                )
                self._thread.start()

    def end(self, connection: "WatchedConnection") -> None:
        with self._lock:
            self._waiting.pop(connection, None)

    def _look_for_ever(self) -> None:
        while True:
            time.sleep(LOOK_EVERY)
            now = time.monotonic()
            # Under the lock: whoever got the answer meanwhile may have closed the connection,
            # and its number may belong to another file.
            with self._lock:
                overdue = [one for one, deadline in self._waiting.items() if deadline < now]
                for connection in overdue:
                    del self._waiting[connection]
                    _hang_up(connection)


def _hang_up(connection: psycopg.Connection[Any]) -> None:
    """Let whoever waits on this connection see its end."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


_watch = _Watch()
os.register_at_fork(after_in_child=_watch.start_afresh)


class WatchedConnection(psycopg.Connection[Row]):
    """A connection that breaks when an answer takes longer than its patience."""

    patience: float = LONGEST_ANSWER

    def __init__(self, pgconn: PGconn, row_factory: RowFactory[Row] = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        self._cursors: dict[str, psycopg.Cursor[Row]] = {}  # by statement, the latest last
        self.done = 0  # statements that were answered and cannot be undone any more

    def answer(self, statement: str, parameters: Mapping[str, object]) -> list[Row]:
        """Run a statement and return its rows.

        With the cursor that ran it before: another one finds out anew how to pass each type, which
        takes as long as all the rest that the driver does for a single row. But a cursor keeps
        what it sent and got until it is used again, so there are few, and none with much.
        """
        cursors = self._cursors  # two threads never share a connection
        cursor = cursors.pop(statement, None) or self.cursor()
        try:
            cursor.execute(statement, parameters)
            if self.pgconn.transaction_status == _OUTSIDE:
                self.done += 1
            # Not by its description, which is made anew each time it is asked for.
            rows = [] if cursor.rownumber is None else cursor.fetchall()
        except BaseException:
            cursors.clear()  # a connection that is lost goes at once, with all that it holds
            raise
        if len(rows) > MOST_ROWS:
            return rows
        for value in chain(parameters.values(), *rows):
            if isinstance(value, (str, list)) and len(value) > LONGEST_VALUE:
                return rows
        if len(cursors) == MOST_CURSORS:
            del cursors[next(iter(cursors))]
        cursors[statement] = cursor
        return rows

    def close(self) -> None:
        self._cursors.clear()  # they refer to the connection, as it does to them
        super().close()

    def wait(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the driver has it
        """Wait as every connection does, for as long as the patience lasts."""
        _watch.begin(self)
        try:
            return super().wait(*arguments, **named)
        finally:
            _watch.end(self)
