"""A program that cancels an execution and is killed as soon as that is committed.

Where the rest of it takes further transactions, none of them begins.
"""

import sys

import pytest

from penstock.testing.crash_points import kill_process
from tests.support import flow_tasks


def main(execution_id: str, reason: str) -> None:
    store = flow_tasks.app.store
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "propagate", kill_process)
        store.cancel([execution_id], reason=reason)
    kill_process()


if __name__ == "__main__":
    main(*sys.argv[1:])
