"""One requested instance of a task, as a user sees it."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from penstock.engine.awaiting import in_thread, nap, sleep_through
from penstock.engine.endings import reason_of_end
from penstock.engine.requests import checked_duration
from penstock.errors import (
    TaskCancelled,
    TaskFailed,
    TaskNotCompleted,
    TaskSkipped,
)
from penstock.model.durations import Duration, format_duration
from penstock.model.events import Event
from penstock.model.executions import CancelAnswer, RerunAnswer, Snapshot
from penstock.model.payloads import decode
from penstock.model.states import FINAL, State

T_co = TypeVar("T_co", covariant=True)

StateName = Literal[
    "scheduled", "waiting", "ready", "running", "completed", "failed", "skipped", "cancelled"
]
SubStateName = Literal["active", "deferred"]

_SHORTEST_LOOK = 0.005
_LONGEST_LOOK = 0.25

_ENDED: dict[State, type[TaskNotCompleted]] = {
    State.FAILED: TaskFailed,
    State.CANCELLED: TaskCancelled,
    State.SKIPPED: TaskSkipped,
}


class Reads(Protocol):
    """What an execution needs of its client."""

    def snapshot(self, execution_id: str) -> Snapshot: ...
    def history(self, execution_id: str) -> list[Event]: ...
    def cancel(self, execution_id: str, reason: str | None) -> CancelAnswer: ...
    def rerun(self, execution_id: str) -> RerunAnswer: ...
    @property
    def when_late(self) -> Callable[[datetime | None], str] | None: ...


def pauses(
    has_ended: Callable[[], bool], timeout: Duration | None, *, late: Callable[[str], str]
) -> Iterator[float]:
    """How long to wait before each next look at something, until it has ended.

    Raises:
        TimeoutError: it has not ended in time; `late` says how it stands.
    """
    patience = None if timeout is None else checked_duration("timeout", timeout)
    deadline = None if patience is None else time.monotonic() + patience.total_seconds()
    pause = _SHORTEST_LOOK
    while not has_ended():
        left = _LONGEST_LOOK if deadline is None else deadline - time.monotonic()
        if patience is not None and left <= 0:
            raise TimeoutError(late(format_duration(patience)))
        yield min(pause, left)
        pause = min(pause * 1.5, _LONGEST_LOOK)


class Execution(Generic[T_co]):
    """A snapshot: attributes never touch the database; `refresh()` takes a new one."""

    __slots__ = ("__weakref__", "_decode_result", "_known", "_reads", "created")

    def __init__(
        self,
        snapshot: Snapshot | Callable[[], Snapshot],
        reads: Reads,
        created: bool = True,  # noqa: FBT001, FBT002 - each enqueue makes one, and names take time
        decode_result: Callable[[str], Any] = decode,
    ) -> None:
        # Of thousands that are enqueued at once hardly one is ever looked at: made when it is.
        self._known = snapshot
        self._reads = reads
        self._decode_result = decode_result
        self.created = created

    def __repr__(self) -> str:
        return f"<Execution {self.id} of {self.task!r}: {self.state}, attempt {self.attempt}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Execution) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # --- the snapshot -----------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.snapshot.id

    @property
    def task(self) -> str:
        return self.snapshot.task

    @property
    def queue(self) -> str:
        return self.snapshot.queue

    @property
    def priority(self) -> int:
        return self.snapshot.priority

    @property
    def key(self) -> str | None:
        return self.snapshot.key

    @property
    def serial(self) -> str | None:
        return self.snapshot.serial

    @property
    def args(self) -> dict[str, Any]:
        """The stored arguments by name, as plain JSON values."""
        arguments: dict[str, Any] = decode(self.snapshot.args)  # type: ignore[assignment]
        return arguments

    @property
    def state(self) -> StateName:
        return self.snapshot.state.value

    @property
    def sub_state(self) -> SubStateName | None:
        """What a running task does: "active", or "deferred" while it waits without a slot."""
        sub_state = self.snapshot.sub_state
        return sub_state.value if sub_state else None

    @property
    def attempt(self) -> int:
        """How many attempts have begun and not been given back."""
        return self.snapshot.attempt

    @property
    def error(self) -> dict[str, Any] | None:
        """The last error: type, message and traceback."""
        stored = self.snapshot.error
        return None if stored is None else decode(stored)  # type: ignore[return-value]

    @property
    def worker_id(self) -> str | None:
        return self.snapshot.worker_id

    @property
    def run_at(self) -> datetime | None:
        return self.snapshot.run_at

    @property
    def created_at(self) -> datetime:
        return self.snapshot.created_at

    @property
    def started_at(self) -> datetime | None:
        return self.snapshot.started_at

    @property
    def finished_at(self) -> datetime | None:
        return self.snapshot.finished_at

    @property
    def snapshot(self) -> Snapshot:
        """Everything that the database knew, as one value."""
        if not isinstance(self._known, Snapshot):
            self._known = self._known()
        return self._known

    # --- the database -----------------------------------------------------------------

    def refresh(self) -> Self:
        """Take a new snapshot, and return this execution."""
        self._known = self._reads.snapshot(self.id)
        return self

    async def arefresh(self) -> Self:
        return await in_thread(self.refresh)

    def result(self, timeout: Duration | None = None) -> T_co:
        """Wait until the execution has ended, and return what the task returned.

        Raises:
            TaskFailed, TaskCancelled, TaskSkipped: it ended otherwise; they carry the reason.
            TimeoutError: it has not ended within `timeout`.
        """
        self.refresh()
        for _ in sleep_through(self._pauses(timeout)):
            self.refresh()
        return self._outcome()

    async def aresult(self, timeout: Duration | None = None) -> T_co:  # noqa: ASYNC109 - as `result`
        await self.arefresh()
        for pause in self._pauses(timeout):
            await nap(pause)
            await self.arefresh()
        return await in_thread(self._outcome)

    def history(self) -> list[Event]:
        """All that has happened to this execution, in order."""
        return self._reads.history(self.id)

    async def ahistory(self) -> list[Event]:
        return await in_thread(self.history)

    def cancel(self, reason: str | None = None) -> CancelAnswer:
        """End it at once, or ask it to stop if it runs ("requested")."""
        return self._reads.cancel(self.id, reason)

    async def acancel(self, reason: str | None = None) -> CancelAnswer:
        return await in_thread(self.cancel, reason)

    def rerun(self) -> RerunAnswer:
        """Give a finished execution a new life, with fresh retries; let a scheduled one run now.

        "live" says that it has not ended, or, in a run, a task downstream of it.
        """
        return self._reads.rerun(self.id)

    async def arerun(self) -> RerunAnswer:
        return await in_thread(self.rerun)

    def _pauses(self, timeout: Duration | None) -> Iterator[float]:
        return pauses(
            lambda: self.snapshot.state in FINAL,
            timeout,
            late=lambda time: (
                f"{self.task!r} has not ended within {time}: it is {self.state}. {self._advice()}"
            ),
        )

    def _advice(self) -> str:
        if self._reads.when_late is not None:
            return self._reads.when_late(self.run_at if self.state == "scheduled" else None)
        return f"`penstock why {self.id}` says what it waits for."

    def _outcome(self) -> T_co:
        snapshot = self.snapshot
        if snapshot.state is State.COMPLETED:
            result: T_co = self._decode_result(snapshot.result or "null")
            return result
        raise _ENDED[snapshot.state](self.task, self.id, reason=self._reason())

    def _reason(self) -> dict[str, Any]:
        if self.snapshot.state is State.FAILED:
            return self.error or {}
        return {"message": reason_of_end(self.history())}
