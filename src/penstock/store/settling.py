"""One outcome can fail only itself."""

from collections.abc import Callable, Sequence

import msgspec

from penstock.errors import StoreRefused
from penstock.model.executions import Lease
from penstock.model.outcomes import Failed, Outcome


def settle_each(
    outcomes: Sequence[Outcome], settle: Callable[[Sequence[Outcome]], list[Lease]]
) -> list[Lease]:
    """Settle the batch; halve it around data that the database refuses.

    The culprit alone is settled as failed, with the reason, and the others as they are.
    """
    try:
        return settle(outcomes)
    except StoreRefused as refusal:
        if len(outcomes) > 1:
            half = len(outcomes) // 2
            return settle_each(outcomes[:half], settle) + settle_each(outcomes[half:], settle)
        (culprit,) = outcomes
        return settle([_unstorable(culprit, refusal)])


def _unstorable(culprit: Outcome, refusal: StoreRefused) -> Failed:
    error = {
        "type": "UnstorableOutcome",
        "message": f"The attempt ended, but its outcome cannot be stored: {refusal.reason}.",
    }
    return Failed(
        lease=culprit.lease,
        serial=culprit.serial,
        has_follow_ups=culprit.has_follow_ups,
        run_id=culprit.run_id,
        started_at=culprit.started_at,
        error=msgspec.json.encode(error).decode(),
    )
