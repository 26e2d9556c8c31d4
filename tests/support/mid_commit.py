"""A worker that is killed inside one of its own SQLite transactions, just before the commit."""

import os
import signal
from typing import Any

from penstock.store.sqlite import sharing
from tests.support.tasks import app

__all__ = ["app"]

AFTER = int(os.environ.get("PENSTOCK_TEST_COMMITS", "5"))

_whole = sharing.SharedFile._patiently
_commits = 0


def _patiently(self: sharing.SharedFile, connection: Any, sql: str, *rest: Any) -> None:  # noqa: ANN401
    global _commits  # noqa: PLW0603 - one process, one count
    if sql == "COMMIT":
        _commits += 1
        if _commits > AFTER:
            os.kill(os.getpid(), signal.SIGKILL)
    _whole(self, connection, sql, *rest)


vars(sharing)["SharedFile"]._patiently = _patiently
