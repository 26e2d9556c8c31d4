"""Going through all executions, a stretch at a time, while the workers go on."""

import time
from collections.abc import Iterator
from typing import NamedTuple

from penstock.model.verifying import Finding, findings_in
from penstock.store.contract import Store

STRETCH = 1000  # executions in one snapshot
LOOK_AGAIN_AFTER = 0.2


class Verified(NamedTuple):
    """What a stretch of the tables held, and what is wrong there."""

    executions: int
    remains: int  # histories whose execution retention has removed
    events: int
    findings: list[Finding]
    runs: int = 0


def verify(
    store: Store, *, stretch: int = STRETCH, look_again_after: float = LOOK_AGAIN_AFTER
) -> Iterator[Verified]:
    """Yield each stretch in the order of the ids, until all have been looked at.

    Each is read as it was at one moment, and what seems wrong is looked at twice: only what
    is still wrong the second time is a finding.
    """
    after: str | None = None
    while True:
        examined = store.examine(after, limit=stretch)
        if findings := findings_in(examined):
            time.sleep(look_again_after)
            suspicious = {(one.code, one.execution_id) for one in findings}
            findings = [
                one
                for one in findings_in(store.examine(after, until=examined.until))
                if (one.code, one.execution_id) in suspicious
            ]
        yield Verified(
            len(examined.executions),
            len(examined.remains),
            examined.events,
            findings,
            len(examined.runs),
        )
        if examined.next is None:
            return
        after = examined.next
