"""Wake-ups by LISTEN: one connection that does nothing else."""

import logging
import time
from collections.abc import Callable, Sequence
from uuid import uuid4

import psycopg
from psycopg import sql

from penstock.errors import StoreError
from penstock.model.wakeups import ANYTHING, NOTHING, WakeUp
from penstock.store.postgres.connecting import KEEPALIVES, Connection, is_pooled

log = logging.getLogger("penstock.worker")

POLL_EVERY = 0.5  # without LISTEN
HEARD_WITHIN = 2.0
DEAF_FOR = 60.0  # a pooler rarely changes its ways
_HINTS = {
    "ready": WakeUp(ready=True),
    "scheduled": WakeUp(scheduled=True),
    "waiting": WakeUp(waiting=True),
    "cancel": WakeUp(cancel=True),
}


class NotHeard(StoreError):
    """Notifications do not reach us through this pooler."""

    def __init__(self) -> None:
        super().__init__(
            "A pooler is in between that gives sessions out by the transaction, so no notification "
            "arrives. Let database.listen_url name the server itself."
        )


class PostgresDistributor:
    """Listens on the channels of its queues; where it cannot, it polls and says so."""

    def __init__(self, url: str | None, channels: Callable[[], Sequence[str]]) -> None:
        self._url = url
        self._channels = channels
        self._connection: Connection | None = None
        self._unheard = False
        self._look_at = 0.0  # when to look, or to try to listen, next
        self._deaf_until = 0.0
        if url is None:
            log.warning("notifications are off, so new work is looked for every %g s", POLL_EVERY)

    def wait_for_work(self, timeout: float) -> WakeUp:
        if self._connection is None and not self._time_to_look(timeout):
            return NOTHING
        if self._url is None or time.monotonic() < self._deaf_until:
            return ANYTHING
        try:
            if self._connection is None:
                # Listen first, look afterwards: what committed in between is seen by the look.
                self._connection = self._listen(self._url)
                return ANYTHING
            hint = NOTHING
            for notification in self._connection.notifies(timeout=timeout, stop_after=1):
                told = _HINTS.get(notification.payload, ANYTHING)
                hint = told if hint is NOTHING else hint.and_also(told)
        except (psycopg.Error, StoreError) as error:
            self._lose(error)
            return ANYTHING
        return hint

    def _time_to_look(self, timeout: float) -> bool:
        """Wait for the next poll; False if `timeout` is over before."""
        left = self._look_at - time.monotonic()
        time.sleep(max(0.0, min(left, timeout)))
        if left > timeout:
            return False
        self._look_at = time.monotonic() + POLL_EVERY
        return True

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _listen(self, url: str) -> Connection:
        channels = self._channels()
        connection: Connection = psycopg.connect(
            url, autocommit=True, application_name="penstock listener", **KEEPALIVES
        )
        try:
            # First of all: a LISTEN that nobody hears would go on in somebody else's session.
            self._expect_to_hear(connection, url)
            for channel in channels:
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except BaseException:
            connection.close()
            raise
        if self._unheard:
            log.warning("listening for new work again")
            self._unheard = False
        return connection

    def _expect_to_hear(self, connection: Connection, url: str) -> None:
        if is_pooled(connection) and not _hears(connection, url):
            self._deaf_until = time.monotonic() + DEAF_FOR
            raise NotHeard

    def _lose(self, error: Exception) -> None:
        if not self._unheard:
            reason = str(error).partition("\n")[0]  # the driver adds lines of advice
            log.warning("not listening for new work, polling until we do: %s", reason)
            self._unheard = True
        self.close()


def _hears(connection: Connection, url: str) -> bool:
    """Whether a notification from another session arrives here."""
    channel = f"penstock_probe_{uuid4().hex[:16]}"
    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
    with psycopg.connect(url, autocommit=True, **KEEPALIVES) as other:
        other.execute("SELECT pg_notify(%s, '')", [channel])
    heard = any(
        notification.channel == channel
        for notification in connection.notifies(timeout=HEARD_WITHIN, stop_after=1)
    )
    connection.execute(sql.SQL("UNLISTEN {}").format(sql.Identifier(channel)))
    return heard
