"""A worker with a part that dies: one operation of its store raises, from the nth call on."""

import os
from typing import Any

from tests.support.tasks import app
from tests.support.workers import BROKEN_AFTER, BROKEN_OPERATION


def _break(operation: str, after: int) -> None:
    whole = getattr(app.store, operation)
    calls = 0

    def broken(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as whatever it stands for
        nonlocal calls
        calls += 1
        if calls > after:
            raise RuntimeError("broken for the test")
        return whole(*args, **options)

    setattr(app.store, operation, broken)


_break(os.environ[BROKEN_OPERATION], int(os.environ[BROKEN_AFTER]))
