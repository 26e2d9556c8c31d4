"""What an App can be asked for: executions and runs, by id and by what they have in common."""

from abc import ABC, abstractmethod
from typing import Any, TypedDict, Unpack
from uuid import UUID

from penstock.engine.awaiting import in_thread
from penstock.engine.client import Client
from penstock.engine.executions import Execution, StateName
from penstock.engine.requests import checked_limit, checked_state, checked_text
from penstock.engine.runs import Code, Run, RunStateName, checked_run_state
from penstock.engine.tasks import Task
from penstock.engine.workflow_tasks import WorkflowTask
from penstock.engine.workflows import Workflow
from penstock.errors import ExecutionNotFound
from penstock.model.ids import index_of, parse_id
from penstock.registry import AnyTask, AnyWorkflow


class FindOptions(TypedDict, total=False):
    """What `app.find` looks for; what is left out matches everything."""

    task: str | Task[..., Any] | None
    state: StateName | None
    queue: str | None
    key: str | None
    before: str | UUID | None
    limit: int


class FindRunsOptions(TypedDict, total=False):
    """What `app.find_runs` looks for; what is left out matches everything."""

    workflow: str | Workflow[...] | None
    state: RunStateName | None
    before: str | UUID | None
    limit: int


class Looking(ABC):
    """The part of an App that looks, and changes nothing."""

    _client: Client

    @property
    @abstractmethod
    def workflows(self) -> dict[str, AnyWorkflow]: ...

    @abstractmethod
    def find_task(self, name: str) -> AnyTask | None: ...

    def get(self, execution_id: str | UUID) -> Execution[Any] | Any:  # noqa: ANN401 - or a Run
        """Read one execution by its id: of a task, or, as a Run, of a workflow.

        Who has the task or the workflow gets it typed: `task.get(…)`, `workflow.get(…)`.
        """
        wanted = parse_id(execution_id)
        try:
            return self._typed(self._client.get(wanted))
        except ExecutionNotFound:
            return Run.read(wanted, self._client, self._code)

    async def aget(self, execution_id: str | UUID) -> Execution[Any] | Any:  # noqa: ANN401 - or a Run
        return await in_thread(self.get, execution_id)

    def find_runs(
        self,
        *,
        workflow: str | Workflow[...] | None = None,
        state: RunStateName | None = None,
        before: str | UUID | None = None,
        limit: int = 100,
    ) -> list[Run]:
        """Runs of workflows that match all that is given, newest first.

        For the next page, pass the last one's id as `before`.
        """
        snapshots = self._client.find_runs(
            workflow=(
                workflow.name
                if isinstance(workflow, Workflow)
                else checked_text("workflow", workflow)
            ),
            state=None if state is None else checked_run_state(state),
            before=None if before is None else parse_id(before),
            limit=checked_limit(limit),
        )
        return [Run.of(snapshot, self._client, self._code) for snapshot in snapshots]

    async def afind_runs(self, **filters: Unpack[FindRunsOptions]) -> list[Run]:
        return await in_thread(lambda: self.find_runs(**filters))

    @property
    def _code(self) -> Code:
        return Code(self.find_task, self._fingerprint_of)

    def _fingerprint_of(self, workflow: str) -> str | None:
        known = self.workflows.get(workflow)
        return None if known is None or not known.tasks else known.fingerprint

    def find(
        self,
        *,
        task: str | Task[..., Any] | None = None,
        state: StateName | None = None,
        queue: str | None = None,
        key: str | None = None,
        before: str | UUID | None = None,
        limit: int = 100,
    ) -> list[Execution[Any]]:
        """Executions that match all that is given, newest first.

        For the next page, pass the last one's id as `before`.
        """
        snapshots = self._client.find(
            task=task.name if isinstance(task, Task) else checked_text("task", task),
            state=None if state is None else checked_state(state),
            queue=checked_text("queue", queue),
            key=checked_text("key", key),
            before=None if before is None else parse_id(before),
            limit=checked_limit(limit),
        )
        return [self._typed(Execution(snapshot, self._client)) for snapshot in snapshots]

    async def afind(self, **filters: Unpack[FindOptions]) -> list[Execution[Any]]:
        return await in_thread(lambda: self.find(**filters))

    def counts(self) -> dict[StateName, int]:
        """How many executions are in each state, zeros too."""
        return {state.value: count for state, count in self._client.counts().items()}

    async def acounts(self) -> dict[StateName, int]:
        return await in_thread(self.counts)

    def _typed(self, execution: Execution[Any]) -> Execution[Any]:
        task = self.find_task(execution.task)
        if task is None:
            return execution
        decode_result = task.signature.decode_result
        if isinstance(task, WorkflowTask) and index_of(execution.id) is None:
            decode_result = task.decode_result  # its elements have one result each, it has all
        return Execution(execution.snapshot, self._client, decode_result=decode_result)
