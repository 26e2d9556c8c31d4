"""What a caller does with executions: write them, find them, act on them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypedDict, Unpack
from uuid import UUID

import msgspec
from msgspec.structs import replace

from penstock.engine.awaiting import in_thread
from penstock.engine.executions import Execution
from penstock.engine.hooks import NOBODY, HookSet
from penstock.engine.requests import Request, checked_text
from penstock.errors import ExecutionNotFound, StoreUnavailable
from penstock.model.clock import Clock
from penstock.model.events import Event
from penstock.model.executions import (
    CancelAnswer,
    Created,
    NewExecution,
    RerunAnswer,
    SignalAnswer,
    Snapshot,
)
from penstock.model.ids import parse_id, time_of
from penstock.model.payloads import decode
from penstock.model.runs import NewRun, RunAnswer, RunSnapshot, RunState
from penstock.model.states import State
from penstock.store.contract import Store

# Not None, which is what a caller passes whose connection has not been opened: the execution
# would then be committed on its own, and nobody would know.
NO_CONNECTION: Final = object()


# These are asked for each enqueue, and a generator would take longer than its answer.
_notifies = attrgetter("notify")
_is_created = attrgetter("created")


class Around(NamedTuple):
    """The connection that an enclosing `using` block has set."""

    connection: object
    notify: bool


class Filters(TypedDict, total=False):
    """What executions are looked for by; None, or nothing, matches all."""

    task: str | None
    state: State | None
    queue: str | None
    key: str | None
    before: str | None
    limit: int


class RunFilters(TypedDict, total=False):
    """What runs are looked for by; None, or nothing, matches all."""

    workflow: str | None
    state: RunState | None
    before: str | None
    limit: int


class Client:
    """Speaks with the store for tasks and for the app; opens it when it is first needed."""

    def __init__(self, open_store: Callable[[], Store], hooks: HookSet = NOBODY) -> None:
        self._open_store = open_store
        self._hooks = hooks
        # All are a test's: the time that a new execution shows before it has been read back,
        # who wants to know what is on a caller's connection before it commits, and what to do
        # about an execution that has not ended, from when it is due.
        self.clock: Clock | None = None
        self.when_written_on: Callable[[object, list[Execution[Any]]], None] | None = None
        self.when_late: Callable[[datetime | None], str] | None = None
        self._around: ContextVar[Around | None] = ContextVar("penstock_connection", default=None)

    @property
    def store(self) -> Store:
        return self._open_store()

    def now(self) -> datetime:
        """The time that something new shows before it has been read back."""
        return datetime.now(UTC) if self.clock is None else self.clock.now()

    @contextmanager
    def using(self, connection: object, *, notify: bool = True) -> Iterator[None]:
        """Write everything in the block into this connection's transaction."""
        token = self._around.set(Around(connection, notify))
        try:
            yield
        finally:
            self._around.reset(token)

    # --- writing ----------------------------------------------------------------------

    def enqueue(
        self, requests: Sequence[Request[Any]], *, connection: object = NO_CONNECTION
    ) -> list[Execution[Any]]:
        where, notify = self._within(connection, notify=all(map(_notifies, requests)))
        if self._hooks.listen:
            requests = self._traced(requests)
        executions = [request.new for request in requests]
        if where is NO_CONNECTION:
            created = self._open_store().create(executions, notify=notify)
        else:
            created = self._open_store().create_on(where, executions, notify=notify)
        holders = {} if all(map(_is_created, created)) else self._holders(created)
        return self._as_executions(requests, created, holders, where)

    def enqueue_one(
        self, request: Request[Any], *, connection: object = NO_CONNECTION
    ) -> Execution[Any]:
        """The same for one, as most are: its caller waits for every line of this."""
        if connection is not NO_CONNECTION or self._around.get() is not None or self._hooks.listen:
            (execution,) = self.enqueue([request], connection=connection)
            return execution
        (answer,) = self._open_store().create([request.new], notify=request.notify)
        holder = None if answer.created else self._holders([answer]).get(answer.id)
        known = holder or _Written(request.new, answer, self._moment())
        return Execution(known, self, answer.created, request.decode_result)

    async def aenqueue(
        self, requests: Sequence[Request[Any]], *, connection: object = NO_CONNECTION
    ) -> list[Execution[Any]]:
        where, notify = self._within(connection, notify=all(map(_notifies, requests)))
        if self._hooks.listen:
            requests = self._traced(requests)
        executions = [request.new for request in requests]
        if where is NO_CONNECTION:
            created = await in_thread(self._create, executions, notify)
        else:
            # Opening may read a file or wait for the database: not on the loop.
            store = await in_thread(self._open_store)
            created = await store.acreate_on(where, executions, notify=notify)
        holders = {}
        if not all(map(_is_created, created)):
            holders = await in_thread(self._holders, created)
        return self._as_executions(requests, created, holders, where)

    def _traced(self, requests: Sequence[Request[Any]]) -> Sequence[Request[Any]]:
        # Here, in the caller's own context, and not on the thread that writes.
        if (trace := self._hooks.trace()) is not None:
            return [replace(one, new=replace(one.new, trace=trace)) for one in requests]
        return requests

    def _create(self, executions: Sequence[NewExecution], notify: bool) -> list[Created]:  # noqa: FBT001
        return self.store.create(executions, notify=notify)

    def _within(self, connection: object, *, notify: bool) -> tuple[object, bool]:
        around = self._around.get()
        if connection is not NO_CONNECTION or around is None:
            return connection, notify
        return around.connection, notify and around.notify

    def _holders(self, created: Sequence[Created]) -> dict[str, Snapshot]:
        """Read the executions that had the keys already, as far as they are committed."""
        taken = [answer.id for answer in created if not answer.created]
        try:
            return {holder.id: holder for holder in self.store.get(list(set(taken)))}
        except StoreUnavailable:
            return {}  # what was asked for is written, and must not look as if it were not

    def _as_executions(
        self,
        requests: Sequence[Request[Any]],
        created: Sequence[Created],
        holders: Mapping[str, Snapshot],
        where: object,
    ) -> list[Execution[Any]]:
        now = self._moment()
        executions: list[Execution[Any]] = [
            Execution(
                holders.get(answer.id) or _Written(request.new, answer, now),
                self,
                answer.created,
                request.decode_result,
            )
            for request, answer in zip(requests, created)  # noqa: B905 - a store answers all
        ]
        if self._hooks.listen:
            new = [one.new for one, its in zip(requests, created, strict=True) if its.created]
            self._hooks.executions_created(new)
        if where is not NO_CONNECTION and self.when_written_on is not None:
            self.when_written_on(where, executions)
        return executions

    def _moment(self) -> float | datetime:
        return time.time() if self.clock is None else self.clock.now()

    def start_run(
        self, new: NewRun, *, connection: object = NO_CONNECTION, notify: bool = True
    ) -> None:
        where, notify = self._within(connection, notify=notify)
        new = self._traced_run(new)
        if where is NO_CONNECTION:
            self.store.start_runs([new], notify=notify)
        else:
            self.store.start_runs_on(where, [new], notify=notify)
        if self._hooks.listen:
            self._hooks.run_started(new)

    async def astart_run(
        self, new: NewRun, *, connection: object = NO_CONNECTION, notify: bool = True
    ) -> None:
        where, notify = self._within(connection, notify=notify)
        traced = self._traced_run(new)
        if where is NO_CONNECTION:
            await in_thread(lambda: self.store.start_runs([traced], notify=notify))
        else:
            store = await in_thread(self._open_store)
            await store.astart_runs_on(where, [traced], notify=notify)
        if self._hooks.listen:
            self._hooks.run_started(traced)

    def _traced_run(self, new: NewRun) -> NewRun:
        if self._hooks.listen and (trace := self._hooks.trace()) is not None:
            return replace(new, trace=trace)
        return new

    def signal(self, execution_id: str, name: str, data: str) -> SignalAnswer:
        where, notify = self._within(NO_CONNECTION, notify=True)
        if where is NO_CONNECTION:
            answer = self.store.signal(execution_id, name, data)
        else:
            answer = self.store.signal_on(where, execution_id, name, data, notify=notify)
        return _told(answer, execution_id)

    async def asignal(self, execution_id: str, name: str, data: str) -> SignalAnswer:
        where, notify = self._within(NO_CONNECTION, notify=True)
        if where is NO_CONNECTION:
            answer = await in_thread(lambda: self.store.signal(execution_id, name, data))
        else:
            store = await in_thread(self._open_store)
            answer = await store.asignal_on(where, execution_id, name, data, notify=notify)
        return _told(answer, execution_id)

    # --- reading ----------------------------------------------------------------------

    def get(
        self, execution_id: str | UUID, *, decode_result: Callable[[str], Any] = decode
    ) -> Execution[Any]:
        return Execution(self.snapshot(parse_id(execution_id)), self, decode_result=decode_result)

    def find(self, **filters: Unpack[Filters]) -> list[Snapshot]:
        return self.store.find(**filters)

    def counts(self) -> dict[State, int]:
        return self.store.counts()

    def snapshot(self, execution_id: str) -> Snapshot:
        for snapshot in self.store.get([execution_id]):
            return snapshot
        raise ExecutionNotFound(execution_id)

    def history(self, execution_id: str) -> list[Event]:
        return self.store.history(execution_id)

    def run(self, run_id: str) -> RunSnapshot:
        for snapshot in self.store.runs([run_id]):
            return snapshot
        raise ExecutionNotFound(run_id)

    def find_runs(self, **filters: Unpack[RunFilters]) -> list[RunSnapshot]:
        return self.store.find_runs(**filters)

    def tasks_of(self, run_id: str) -> list[Snapshot]:
        return self.store.tasks_of(run_id)

    # --- acting -----------------------------------------------------------------------

    def cancel(self, execution_id: str, reason: str | None = None) -> CancelAnswer:
        (answer,) = self.store.cancel([execution_id], reason=checked_text("reason", reason))
        if answer == "unknown":
            raise ExecutionNotFound(execution_id)
        return answer

    def rerun(self, execution_id: str) -> RerunAnswer:
        (answer,) = self.store.rerun([execution_id])
        if answer == "unknown":
            raise ExecutionNotFound(execution_id)
        if answer == "live" and self.store.hasten([execution_id]) == [True]:
            return "hastened"
        return answer

    def pause_run(self, run_id: str) -> RunAnswer:
        return _known(self.store.pause_run(run_id), run_id)

    def resume_run(self, run_id: str) -> RunAnswer:
        return _known(self.store.resume_run(run_id), run_id)

    def cancel_run(self, run_id: str, reason: str | None = None) -> RunAnswer:
        answer = self.store.cancel_run(run_id, reason=checked_text("reason", reason))
        return _known(answer, run_id)

    def rerun_run(self, run_id: str, tasks: Sequence[str] | None = None) -> RunAnswer:
        return _known(self.store.rerun_run(run_id, tasks=tasks), run_id)


def _told(answer: SignalAnswer, execution_id: str) -> SignalAnswer:
    if answer == "unknown":
        raise ExecutionNotFound(execution_id)
    return answer


def _known(answer: RunAnswer, run_id: str) -> RunAnswer:
    if answer == "unknown":
        raise ExecutionNotFound(run_id)
    return answer


class _Written(msgspec.Struct, frozen=True, gc=False):
    """What is known of an execution before anything has been read back."""

    new: NewExecution
    answer: Created
    now: float | datetime  # the time of a test, or seconds since 1970, which are faster to ask for

    def __call__(self) -> Snapshot:
        now = self.now
        if not isinstance(now, datetime):
            now = datetime.fromtimestamp(now, UTC)
        return _first_snapshot(self.new, self.answer, now)


def _first_snapshot(new: NewExecution, answer: Created, now: datetime) -> Snapshot:
    asked_at = now if answer.created else time_of(answer.id)
    run_at = new.run_at or (asked_at + new.delay if new.delay is not None else None)
    return Snapshot(
        id=answer.id,
        root_id=answer.id,
        task=new.task,
        args=new.args,
        queue=new.queue,
        priority=new.priority,
        state=answer.state,
        sub_state=None,
        attempt=0,
        retries=0,
        crashes=0,
        max_crashes=new.max_crashes,
        suspect=False,
        cancel_requested=False,
        fence=0,
        worker_id=None,
        key=new.key,
        serial=new.serial,
        run_at=run_at,
        result=None,
        error=None,
        progress=None,
        writes=None,
        created_at=asked_at,
        claimed_at=None,
        started_at=None,
        finished_at=None,
    )
