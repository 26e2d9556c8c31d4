"""How attempts begin, pause and end: what comes before and after the writes is the same."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime

from penstock.model.events import EventType
from penstock.model.executions import Lease
from penstock.model.outcomes import Outcome, Released
from penstock.model.states import SubState
from penstock.store.batches import encode_leases, event_data
from penstock.store.scripts import Row
from penstock.store.settling import settle_each


class Attempts(ABC):
    """The part of the contract for whoever holds leases."""

    @abstractmethod
    def _start(
        self, leases: Sequence[Lease], started_at: Sequence[datetime] | None
    ) -> list[Lease]: ...

    @abstractmethod
    def _settle(self, outcomes: Sequence[Outcome]) -> list[Lease]: ...

    @abstractmethod
    def _change_sub_state(
        self, leases: Sequence[Lease], sub_state: SubState, event: EventType, data: str | None
    ) -> list[Lease]: ...

    @abstractmethod
    def _compare(
        self, worker_id: str, leases: Sequence[Lease], batch: str
    ) -> tuple[list[Row], list[Lease]]:
        """What the worker has and does not know of, and which of these leases it has lost."""

    def start(
        self, leases: Sequence[Lease], *, started_at: Sequence[datetime] | None = None
    ) -> list[Lease]:
        return self._start(leases, started_at) if leases else []

    def settle(self, outcomes: Sequence[Outcome]) -> list[Lease]:
        return settle_each(outcomes, self._settle) if outcomes else []

    def defer(self, leases: Sequence[Lease], *, reason: str | None = None) -> list[Lease]:
        if not leases:
            return []
        data = event_data(reason=reason)
        return self._change_sub_state(leases, SubState.DEFERRED, EventType.DEFERRED, data)

    def undefer(self, leases: Sequence[Lease]) -> list[Lease]:
        if not leases:
            return []
        return self._change_sub_state(leases, SubState.ACTIVE, EventType.RESUMED, None)

    def reconcile(self, worker_id: str, held: Collection[Lease]) -> list[Lease]:
        leases = list(held)
        strangers, lost = self._compare(worker_id, leases, encode_leases(leases))
        self.settle(
            [
                Released(
                    lease=Lease(execution_id, fence, worker_id),
                    serial=serial,
                    run_id=run_id,
                    reason="the reply to its claim was lost",
                )
                for execution_id, fence, serial, run_id in strangers
            ]
        )
        return lost
