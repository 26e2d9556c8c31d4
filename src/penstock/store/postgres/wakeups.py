"""Wake-ups by LISTEN: one connection that does nothing else."""

import logging
import time
from collections.abc import Callable, Sequence

import psycopg
from psycopg import sql

from penstock.errors import StoreError
from penstock.model.wakeups import WakeUp
from penstock.store.postgres.connecting import KEEPALIVES, Connection

log = logging.getLogger("penstock.worker")

POLL_EVERY = 0.5  # without LISTEN
_HINTS = {
    "ready": WakeUp.READY,
    "scheduled": WakeUp.SCHEDULED,
    "waiting": WakeUp.WAITING,
}


class PostgresDistributor:
    """Listens on the channels of its queues; where it cannot, it polls and says so."""

    def __init__(self, url: str | None, channels: Callable[[], Sequence[str]]) -> None:
        self._url = url
        self._channels = channels
        self._connection: Connection | None = None
        self._unheard = False
        if url is None:
            log.warning("notifications are off, so new work is looked for every %g s", POLL_EVERY)

    def wait_for_work(self, timeout: float) -> WakeUp:
        if self._url is None:
            time.sleep(min(timeout, POLL_EVERY))
            return WakeUp.ANYTHING
        try:
            if self._connection is None:
                # Listen first, look afterwards: what committed in between is seen by the look.
                self._connection = self._listen(self._url)
                return WakeUp.ANYTHING
            hint = WakeUp.NOTHING
            for notification in self._connection.notifies(timeout=timeout, stop_after=1):
                hint |= _HINTS.get(notification.payload, WakeUp.ANYTHING)
        except (psycopg.Error, StoreError) as error:
            self._lose(error)
            time.sleep(min(timeout, POLL_EVERY))
            return WakeUp.ANYTHING
        return hint

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _listen(self, url: str) -> Connection:
        channels = self._channels()
        connection: Connection = psycopg.connect(
            url, autocommit=True, application_name="penstock listener", **KEEPALIVES
        )
        for channel in channels:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        if self._unheard:
            log.warning("listening for new work again")
            self._unheard = False
        return connection

    def _lose(self, error: Exception) -> None:
        if not self._unheard:
            log.warning("not listening for new work, polling until we do: %s", error)
            self._unheard = True
        self.close()
