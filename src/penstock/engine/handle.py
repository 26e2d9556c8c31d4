"""What a running task receives as its first parameter, when it asks for it."""

from penstock.model.executions import Claimed


class _Handle:
    def __init__(self, claimed: Claimed) -> None:
        self._claimed = claimed

    @property
    def execution_id(self) -> str:
        """The same in every attempt: use it as the idempotency key of an outside effect."""
        return self._claimed.lease.execution_id

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return self._claimed.attempt


class TaskHandle(_Handle):
    """The handle of a task that is a plain `def`."""


class AsyncTaskHandle(_Handle):
    """The handle of a task that is an `async def`."""
