"""Which execution the code that runs now belongs to."""

from contextvars import ContextVar

current_execution: ContextVar[str | None] = ContextVar("penstock_execution", default=None)
