"""What became of a completion in somebody's own transaction: the database says, not a flag."""

from collections.abc import Sequence
from typing import Any

from penstock.model.executions import Lease, Whereabouts

GONE = (None, None, None)  # retention has removed it


def whereabouts_of(lease: Lease, row: Sequence[Any] | None) -> Whereabouts:
    """`row` is fence, settled_fence and worker_id; None while a transaction has it locked."""
    if row is None:
        return "open"
    fence, settled_fence, worker_id = row
    if settled_fence == lease.fence:
        return "settled"
    return "undone" if (fence, worker_id) == (lease.fence, lease.worker_id) else "lost"
