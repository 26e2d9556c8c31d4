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
    "cancel": WakeUp.CANCEL,
}


class PostgresDistributor:
    """Listens on the channels of its queues; where it cannot, it polls and says so."""

    def __init__(self, url: str | None, channels: Callable[[], Sequence[str]]) -> None:
        self._url = url
        self._channels = channels
        self._connection: Connection | None = None
        self._unheard = False
        self._look_at = 0.0  # when to look, or to try to listen, next
        if url is None:
            log.warning("notifications are off, so new work is looked for every %g s", POLL_EVERY)

    def wait_for_work(self, timeout: float) -> WakeUp:
        if self._connection is None and not self._time_to_look(timeout):
            return WakeUp.NOTHING
        if self._url is None:
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
            return WakeUp.ANYTHING
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
            for channel in channels:
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except BaseException:
            connection.close()
            raise
        if self._unheard:
            log.warning("listening for new work again")
            self._unheard = False
        return connection

    def _lose(self, error: Exception) -> None:
        if not self._unheard:
            reason = str(error).partition("\n")[0]  # the driver adds lines of advice
            log.warning("not listening for new work, polling until we do: %s", reason)
            self._unheard = True
        self.close()
