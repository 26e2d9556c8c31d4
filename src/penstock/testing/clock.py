"""Time that moves when the test says so."""

import threading
from datetime import UTC, datetime

from penstock.errors import PenstockError
from penstock.model.durations import Duration, parse_duration


class NaiveMoment(PenstockError, ValueError):
    """A moment without a time zone, which could be any of 26 hours."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment
        super().__init__(
            f"{moment.isoformat()} has no time zone, so a clock cannot show it. Give an aware "
            "moment, as in datetime(2030, 1, 1, tzinfo=UTC)."
        )


class ManualClock:
    """Stands still until it is moved; safe to share between threads.

    Starts at the present moment unless told otherwise, because the ids of executions carry
    the real time, and retention compares the two.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._lock = threading.Lock()
        self._now = datetime.now(UTC) if start is None else _in_utc(start)

    def now(self) -> datetime:
        """Return the moment that the clock shows, aware and in UTC."""
        with self._lock:
            return self._now

    def advance(self, duration: Duration) -> datetime:
        """Move forward, and return the moment that the clock shows then.

        Raises:
            InvalidDuration: it is not a duration, or a negative one; `set_to` goes back.
        """
        step = parse_duration(duration)
        with self._lock:
            self._now += step
            return self._now

    def set_to(self, moment: datetime) -> None:
        """Show this moment, be it earlier or later: a database's clock can jump, too.

        Raises:
            NaiveMoment: it has no time zone.
        """
        aware = _in_utc(moment)
        with self._lock:
            self._now = aware

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.now().isoformat()})"


def _in_utc(moment: datetime) -> datetime:
    if moment.utcoffset() is None:
        raise NaiveMoment(moment)
    return moment.astimezone(UTC)
