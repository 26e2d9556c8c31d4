"""One run of a workflow, as a user sees it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, Protocol, Self, TypeVar, overload

import msgspec

from penstock.engine.awaiting import in_thread, nap, sleep_through
from penstock.engine.executions import Execution, Reads, pauses
from penstock.engine.requests import InvalidOption
from penstock.engine.tasks import DeclaredTask
from penstock.engine.workflow_errors import NoSuchTaskInRun, OtherWorkflow
from penstock.engine.workflow_tasks import WorkflowTask
from penstock.errors import WorkflowCancelled, WorkflowFailed
from penstock.model.context import merged
from penstock.model.durations import Duration
from penstock.model.events import Event, EventType, RunEvent
from penstock.model.executions import Snapshot
from penstock.model.graph import Decision, Graph, arguments, decide, decode_graph
from penstock.model.ids import placed_id
from penstock.model.payloads import decode
from penstock.model.runs import FINAL_RUN, NewRun, RunAnswer, RunSnapshot, RunState
from penstock.model.states import State
from penstock.model.telling import error_line

T = TypeVar("T")

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

_CANCELLED = frozenset({RunEvent.CANCELLED, EventType.CANCELLED})

RunStateName = Literal["running", "paused", "completed", "failed", "cancelled"]


class RunReads(Reads, Protocol):
    """What a run needs of its client."""

    def run(self, run_id: str) -> RunSnapshot: ...
    def tasks_of(self, run_id: str) -> list[Snapshot]: ...
    def pause_run(self, run_id: str) -> RunAnswer: ...
    def resume_run(self, run_id: str) -> RunAnswer: ...
    def cancel_run(self, run_id: str, reason: str | None = None) -> RunAnswer: ...
    def rerun_run(self, run_id: str, tasks: Sequence[str] | None = None) -> RunAnswer: ...


class Code(msgspec.Struct, frozen=True):
    """What this process knows of the code behind a run; None where it does not know it."""

    task: Callable[[str], DeclaredTask[..., Any] | None]
    fingerprint: Callable[[str], str | None]


class Run:
    """A snapshot: attributes never touch the database; `refresh()` takes a new one."""

    def __init__(
        self,
        snapshot: RunSnapshot,
        tasks: Callable[[], Sequence[Snapshot]],
        reads: RunReads,
        code: Code,
    ) -> None:
        self._snapshot = snapshot
        self._tasks_then: Sequence[Snapshot] | None = None
        self._first_tasks = tasks
        self._reads = reads
        self._code = code

    @classmethod
    def read(cls, run_id: str, reads: RunReads, code: Code) -> Self:
        return cls.of(reads.run(run_id), reads, code)

    @classmethod
    def of(cls, snapshot: RunSnapshot, reads: RunReads, code: Code) -> Self:
        tasks = reads.tasks_of(snapshot.id)
        return cls(snapshot, lambda: tasks, reads, code)

    @classmethod
    def just_started(
        cls, new: NewRun, graph: Graph, reads: RunReads, code: Code, *, asked_at: datetime
    ) -> Self:
        """What is known of a run before anything has been read back."""
        snapshot = RunSnapshot(
            id=new.id,
            workflow=new.workflow,
            state=_first_decision(new, graph).end or RunState.RUNNING,
            graph=new.graph,
            fingerprint=new.fingerprint,
            inputs=new.inputs,
            cancel_requested=False,
            error=None,
            deadline=None if new.timeout is None else asked_at + new.timeout,
            created_at=asked_at,
            finished_at=None,
        )
        return cls(snapshot, lambda: _first_tasks(new, graph, asked_at), reads, code)

    def __repr__(self) -> str:
        return f"<Run {self.id} of {self.workflow!r}: {self.state}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # --- the snapshot -----------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._snapshot.id

    @property
    def workflow(self) -> str:
        """The name of the workflow."""
        return self._snapshot.workflow

    @property
    def state(self) -> RunStateName:
        return self._snapshot.state.value

    @property
    def inputs(self) -> dict[str, Any]:
        """What it was started with, as plain JSON values."""
        inputs: dict[str, Any] = decode(self._snapshot.inputs)  # type: ignore[assignment]
        return inputs

    @property
    def context(self) -> dict[str, Any]:
        """The inputs and all that its tasks have written, merged in the order of its graph."""
        written = (one.writes for one in self._snapshots if one.state is State.COMPLETED)
        return merged(self._snapshot.inputs, [writes for writes in written if writes is not None])

    @property
    def tasks(self) -> Mapping[str, Execution[Any]]:
        """The execution of each task, by its name within the workflow, in the graph's order."""
        names = (node.name for node in self._graph.nodes)
        return MappingProxyType(
            {
                name: Execution(one, self._reads, decode_result=self._decoder(one.task))
                for name, one in zip(names, self._snapshots, strict=True)
            }
        )

    @overload
    def __getitem__(self, task: WorkflowTask[T, ..., Any]) -> Execution[T]: ...
    @overload
    def __getitem__(self, task: str) -> Execution[Any]: ...
    def __getitem__(self, task: WorkflowTask[T, ..., Any] | str) -> Execution[Any]:
        """The execution of one task: `run[total].result()`."""
        if isinstance(task, WorkflowTask) and task.workflow != self.workflow:
            raise OtherWorkflow(self.id, workflow=self.workflow, asked=task.workflow)
        name = task.short_name if isinstance(task, WorkflowTask) else task
        place = self._graph.places.get(name)
        if place is None:
            raise NoSuchTaskInRun(self.workflow, name, tuple(self._graph.places))
        snapshot = self._snapshots[place]
        decode_result = (
            task.decode_result if isinstance(task, WorkflowTask) else self._decoder(snapshot.task)
        )
        return Execution(snapshot, self._reads, decode_result=decode_result)

    @property
    def error(self) -> dict[str, Any] | None:
        """Why it ended, where that is not to be seen from its tasks."""
        stored = self._snapshot.error
        return None if stored is None else decode(stored)  # type: ignore[return-value]

    @property
    def deadline(self) -> datetime | None:
        return self._snapshot.deadline

    @property
    def created_at(self) -> datetime:
        return self._snapshot.created_at

    @property
    def finished_at(self) -> datetime | None:
        return self._snapshot.finished_at

    @property
    def code_changed(self) -> bool | None:
        """Whether the workflow has changed since this run started; None if it is unknown here."""
        current = self._code.fingerprint(self.workflow)
        return None if current is None else current != self._snapshot.fingerprint

    @property
    def snapshot(self) -> RunSnapshot:
        """Everything that the database knew of the run itself, as one value."""
        return self._snapshot

    # --- the database -----------------------------------------------------------------

    def refresh(self) -> Self:
        """Take a new snapshot, and return this run."""
        self._snapshot = self._reads.run(self.id)
        self._tasks_then = self._reads.tasks_of(self.id)
        return self

    async def arefresh(self) -> Self:
        return await in_thread(self.refresh)

    def result(self, timeout: Duration | None = None) -> dict[str, Any]:
        """Wait until the run has completed, and return what its tasks returned, by name.

        Tasks that were skipped, and failures that another task made up for, are not in it.

        Raises:
            WorkflowFailed, WorkflowCancelled: it ended otherwise; they name the failed tasks.
            TimeoutError: it has not ended within `timeout`.
        """
        self._look()
        for _ in sleep_through(self._pauses(timeout)):
            self._look()
        return self._outcome()

    async def aresult(self, timeout: Duration | None = None) -> dict[str, Any]:  # noqa: ASYNC109 - as `result`
        await in_thread(self._look)
        for pause in self._pauses(timeout):
            await nap(pause)
            await in_thread(self._look)
        return await in_thread(self._outcome)

    def history(self) -> list[Event]:
        """All that has happened to this run and its tasks, in order."""
        return self._reads.history(self.id)

    async def ahistory(self) -> list[Event]:
        return await in_thread(self.history)

    def pause(self) -> RunAnswer:
        """Let nothing of it begin any more; what runs goes on to its end."""
        return self._reads.pause_run(self.id)

    async def apause(self) -> RunAnswer:
        return await in_thread(self.pause)

    def resume(self) -> RunAnswer:
        """Let it go on where it stood."""
        return self._reads.resume_run(self.id)

    async def aresume(self) -> RunAnswer:
        return await in_thread(self.resume)

    def cancel(self, reason: str | None = None) -> RunAnswer:
        """End what has not begun, and ask what runs to stop; it ends with the last of it."""
        return self._reads.cancel_run(self.id, reason)

    async def acancel(self, reason: str | None = None) -> RunAnswer:
        return await in_thread(self.cancel, reason)

    def rerun(self, *, from_failed: bool = True) -> RunAnswer:
        """Run again what failed or was cancelled, and all downstream; what completed is kept.

        With `from_failed=False`, all of it runs again. It keeps the graph that it started with.
        "live" says that a task of it still runs, "nothing" that there is nothing to rerun.
        """
        roots = [
            placed_id(self.id, place)
            for place, node in enumerate(self._graph.nodes)
            if not node.after
        ]
        return self._reads.rerun_run(self.id, None if from_failed else roots)

    async def arerun(self, *, from_failed: bool = True) -> RunAnswer:
        return await in_thread(lambda: self.rerun(from_failed=from_failed))

    # --- inside -----------------------------------------------------------------------

    @property
    def _graph(self) -> Graph:
        return decode_graph(self._snapshot.graph)

    @property
    def _snapshots(self) -> Sequence[Snapshot]:
        if self._tasks_then is None:
            self._tasks_then = self._first_tasks()
        return self._tasks_then

    def _decoder(self, task: str) -> Callable[[str], Any]:
        known = self._code.task(task)
        if isinstance(known, WorkflowTask):
            return known.decode_result
        return decode if known is None else known.signature.decode_result

    def _look(self) -> None:
        # Only once it has ended are the tasks of interest, and there may be many.
        self._snapshot = self._reads.run(self.id)
        if self._snapshot.state in FINAL_RUN:
            self._tasks_then = self._reads.tasks_of(self.id)

    def _pauses(self, timeout: Duration | None) -> Iterator[float]:
        return pauses(
            lambda: self._snapshot.state in FINAL_RUN,
            timeout,
            late=lambda within: (
                f"This run of {self.workflow!r} has not ended within {within}: it "
                f"is {self.state}. {self._advice()}"
            ),
        )

    def _advice(self) -> str:
        if self._reads.when_late is not None:
            return self._reads.when_late(None)
        return f"`penstock show {self.id}` shows where it stands."

    def _outcome(self) -> dict[str, Any]:
        if self._snapshot.state is RunState.COMPLETED:
            return {
                node.name: self._decoder(one.task)(one.result or "null")
                for node, one in zip(self._graph.nodes, self._snapshots, strict=True)
                if one.state is State.COMPLETED
            }
        failures = {
            node.name: error_line(None if one.error is None else decode(one.error)).rstrip(".")
            for node, one in zip(self._graph.nodes, self._snapshots, strict=True)
            if one.state is State.FAILED
        }
        if self._snapshot.state is RunState.CANCELLED:
            raise WorkflowCancelled(
                self.workflow, self.id, failures=failures, reason=self._cancel_reason()
            )
        own = self.error
        # That tasks failed is told by their own errors; what else there is, only here.
        told = own is None or own.get("tasks") is not None
        reason = None if told else error_line(own).rstrip(".")
        raise WorkflowFailed(self.workflow, self.id, failures=failures, reason=reason)

    def _cancel_reason(self) -> str | None:
        if self.error is not None:
            return str(self.error.get("message") or "") or None
        for event in reversed(self.history()):
            if event.type == RunEvent.RERUN:
                break  # what was said before is about an earlier life
            # With a worker it is what a running task said when it stopped, not why it was to.
            of_people = event.type in _CANCELLED and not event.worker_id
            if of_people and (reason := event.data.get("reason")):
                return str(reason)
        return None


def checked_run_state(state: str) -> RunState:
    try:
        return RunState(state)
    except ValueError:
        raise InvalidOption(
            "state",
            state,
            because="a run has no such state",
            instead=f"There are {', '.join(RunState)}",
        ) from None


def _first_decision(new: NewRun, graph: Graph) -> Decision:
    return decide(
        graph, [State.WAITING] * len(graph.nodes), context_of=lambda _: merged(new.inputs, ())
    )


def _first_tasks(new: NewRun, graph: Graph, at: datetime) -> list[Snapshot]:
    decision = _first_decision(new, graph)
    inputs = {name: bytes(raw) for name, raw in _members(new.inputs).items()}
    states = dict.fromkeys(decision.ready, State.READY)
    states |= dict.fromkeys(decision.skipped, State.SKIPPED)
    return [
        Snapshot(
            id=placed_id(new.id, place),
            root_id=new.id,
            task=node.task,
            args=arguments(
                node, inputs=inputs, result_of=lambda _: None, context=lambda: new.inputs
            ),
            queue=node.queue,
            priority=node.priority,
            state=states.get(place, State.WAITING),
            sub_state=None,
            attempt=0,
            retries=0,
            crashes=0,
            max_crashes=node.max_crashes,
            suspect=False,
            cancel_requested=False,
            fence=0,
            worker_id=None,
            key=None,
            serial=None,
            run_at=None,
            result=None,
            error=None,
            progress=None,
            writes=None,
            created_at=at,
            claimed_at=None,
            started_at=None,
            finished_at=at if states.get(place) is State.SKIPPED else None,
        )
        for place, node in enumerate(graph.nodes)
    ]
