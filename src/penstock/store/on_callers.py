"""What every store does on a caller's connection: the scripts differ, the way to run them not."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime

from penstock.model.executions import Created, Lease, NewExecution
from penstock.model.runs import NewRun
from penstock.store.connections.callers import Callers
from penstock.store.scripts import Script


class OnCallers(ABC):
    """The part of the contract that runs in somebody else's transaction."""

    _callers: Callers

    @abstractmethod
    def _creating(
        self, executions: Sequence[NewExecution], *, notify: bool
    ) -> Script[list[Created]]: ...

    @abstractmethod
    def _completing(
        self, lease: Lease, *, result: str, writes: str | None, started_at: datetime | None
    ) -> Script[None]: ...

    @abstractmethod
    def _starting(self, runs: Sequence[NewRun], *, notify: bool) -> Script[None]: ...

    @abstractmethod
    def _doing_once(self, lease: Lease, name: str) -> Script[bool]: ...

    def create_on(
        self, connection: object, executions: Sequence[NewExecution], *, notify: bool = True
    ) -> list[Created]:
        return self._callers.run(connection, self._creating(executions, notify=notify))

    async def acreate_on(
        self, connection: object, executions: Sequence[NewExecution], *, notify: bool = True
    ) -> list[Created]:
        return await self._callers.arun(connection, self._creating(executions, notify=notify))

    def start_runs_on(
        self, connection: object, runs: Sequence[NewRun], *, notify: bool = True
    ) -> None:
        self._callers.run(connection, self._starting(runs, notify=notify))

    async def astart_runs_on(
        self, connection: object, runs: Sequence[NewRun], *, notify: bool = True
    ) -> None:
        await self._callers.arun(connection, self._starting(runs, notify=notify))

    def complete_on(
        self,
        connection: object,
        lease: Lease,
        *,
        result: str,
        started_at: datetime | None,
        writes: str | None = None,
    ) -> None:
        script = self._completing(lease, result=result, writes=writes, started_at=started_at)
        self._callers.run(connection, script)

    async def acomplete_on(
        self,
        connection: object,
        lease: Lease,
        *,
        result: str,
        started_at: datetime | None,
        writes: str | None = None,
    ) -> None:
        script = self._completing(lease, result=result, writes=writes, started_at=started_at)
        await self._callers.arun(connection, script)

    def once_on(self, connection: object, lease: Lease, name: str) -> bool:
        return self._callers.run(connection, self._doing_once(lease, name))

    async def aonce_on(self, connection: object, lease: Lease, name: str) -> bool:
        return await self._callers.arun(connection, self._doing_once(lease, name))
