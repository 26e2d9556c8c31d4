"""Time comes from the database in production and from the test in tests."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """A source of time that stands in for the database's own."""

    def now(self) -> datetime:
        """Return the present moment, aware and in UTC."""
        ...
