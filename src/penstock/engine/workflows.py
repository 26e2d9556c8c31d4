"""A workflow: tasks that wait for each other, declared as functions and started as one."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Generic, ParamSpec, Protocol, Unpack, cast, overload
from uuid import UUID

from penstock.engine.awaiting import in_thread
from penstock.engine.client import NO_CONNECTION, Client
from penstock.engine.compiling import Compiled, compiled
from penstock.engine.conditions import Condition
from penstock.engine.declaring import checked_options, name_of, refuse_unknown
from penstock.engine.drawing import as_mermaid, as_text
from penstock.engine.functions import InvalidTask
from penstock.engine.habits import OF_WORKFLOWS, SaysWhatToCall
from penstock.engine.inputs import Inputs
from penstock.engine.misfits import ArgumentsDoNotFit
from penstock.engine.outputs import Output
from penstock.engine.requests import InvalidOption, checked_limit, checked_name
from penstock.engine.runs import Code, Run, RunStateName, checked_run_state
from penstock.engine.shapes import AsyncConnection, SyncConnection
from penstock.engine.signatures import TaskSignature
from penstock.engine.starting import (
    StartOptions,
    Starts,
    WorkflowOnAnyConnection,
    WorkflowOnAsyncConnection,
    WorkflowOnConnection,
)
from penstock.engine.tasks import HANDLES, DeclaredTask, Home
from penstock.engine.wiring import check_types, check_wiring, element_of, upstream_of
from penstock.engine.workflow_errors import (
    InvalidInputs,
    InvalidWorkflow,
    OtherWorkflow,
)
from penstock.engine.workflow_tasks import AnyWorkflowTask, WorkflowTask, WorkflowTaskDecorator
from penstock.model.graph import Graph
from penstock.model.ids import new_run_id, parse_id
from penstock.model.rules import ALL_SUCCEEDED, Rule
from penstock.model.runs import NewRun

P = ParamSpec("P")


class WorkflowHome(Home, Protocol):
    """Where a workflow is registered, and its tasks with it."""

    def add(self, task: DeclaredTask[..., Any]) -> None: ...


class Workflow(SaysWhatToCall, Generic[P]):
    """Tasks that wait for each other: `@workflow.task` declares one, `start` runs them all."""

    _calls = OF_WORKFLOWS
    _kind = "Workflow"

    def __init__(
        self,
        name: str,
        *,
        inputs: Callable[P, object] | None,
        home: WorkflowHome,
        timeout: timedelta | None = None,
        follow_ups: str | None = None,
        origin: str = "",
    ) -> None:
        self.name = name
        self.inputs = Inputs(inputs, workflow=name)
        self.timeout = timeout
        self.follow_ups = follow_ups
        self.origin = origin  # the module that declares it
        self._home = home
        self._tasks: dict[str, AnyWorkflowTask] = {}
        self._compiled: Compiled | None = None
        self._starts: Starts[P] = Starts(self)

    def __repr__(self) -> str:
        return f"<Workflow {self.name!r} of {', '.join(self._tasks) or 'no task'}>"

    def __iter__(self) -> Iterator[AnyWorkflowTask]:
        return iter(self._tasks.values())

    @property
    def tasks(self) -> Mapping[str, AnyWorkflowTask]:
        """Its tasks by their names within it, in the order in which they were declared."""
        return MappingProxyType(self._tasks)

    # --- declaring --------------------------------------------------------------------

    @property
    def task(self) -> WorkflowTaskDecorator:
        """Declare a task of it: `@workflow.task` or `@workflow.task(after=[…], when=…)`."""
        return cast("WorkflowTaskDecorator", self._declare)

    def _declare(
        self,
        function: Callable[..., Any] | None = None,
        /,
        **options: Any,  # noqa: ANN401 - WorkflowTaskDecorator says which
    ) -> AnyWorkflowTask | Callable[[Callable[..., Any]], AnyWorkflowTask]:
        refuse_unknown(options, more=("after", "when", "for_each"))
        if function is None:
            return lambda decorated: self._register(decorated, options)
        return self._register(function, options)

    def _register(
        self, function: Callable[..., Any], options: Mapping[str, Any]
    ) -> AnyWorkflowTask:
        given = options.get("name")
        short = checked_name("name", given) if given is not None else name_of(function)
        signature = TaskSignature(
            function, name=f"{self.name}.{short}", handle_types=HANDLES, in_workflow=True
        )
        of_tasks = {
            key: value
            for key, value in options.items()
            if key not in {"name", "after", "when", "for_each"}
        }
        if isinstance(former := of_tasks.get("aliases"), list | tuple):
            of_tasks["aliases"] = [f"{self.name}.{checked_name('aliases', one)}" for one in former]
        task: AnyWorkflowTask = WorkflowTask(
            function,
            checked_options(signature.colour, **of_tasks),
            signature,
            self._home,
            workflow=self.name,
            short_name=short,
            after=self._checked_after(short, options.get("after", ())),
            rule=self._checked_rule(short, options.get("when")),
            for_each=self._checked_list(short, options),
        )
        task.element = element_of(task, self.inputs)
        self._check(task)
        self._home.add(task)
        self._tasks[short] = task
        self._compiled = None
        return task

    def _checked_after(self, task: str, after: object) -> tuple[str, ...]:
        if not isinstance(after, list | tuple | set | frozenset):
            raise InvalidOption(
                "after", after, because="it must be a list of tasks", instead="Write after=[fetch]"
            )
        names = []
        for one in after:
            if isinstance(one, WorkflowTask) and one.workflow == self.name:
                names.append(one.short_name)
            elif isinstance(one, str):
                names.append(one.removeprefix(f"{self.name}."))
            else:
                raise InvalidWorkflow(self.name, task, *_no_task_of_ours(self.name, one))
        return tuple(names)

    def _checked_list(self, task: str, options: Mapping[str, Any]) -> str | None:
        if "for_each" not in options:
            return None
        given = options["for_each"]
        if not isinstance(given, Output):
            near = given.short_name if isinstance(given, WorkflowTask) else "that_task"
            raise InvalidOption(
                "for_each",
                given,
                because="it is no output of a task",
                instead=f"Let a task return the list, and write for_each={near}.output",
            )
        if given.workflow != self.name:
            raise InvalidWorkflow(
                self.name,
                task,
                f"`for_each` is the output of a task of the workflow {given.workflow!r}",
                "A run knows its own tasks only: declare that task here too",
            )
        return given.task

    def _checked_rule(self, task: str, when: object) -> Rule:
        if when is None:
            return ALL_SUCCEEDED
        if not isinstance(when, Condition):
            raise InvalidOption(
                "when",
                when,
                because="it is no condition",
                instead="Write when=all_done, when=failed(fetch) or when=value('n') > 3",
            )
        for other in when.workflows - {self.name}:
            raise InvalidWorkflow(
                self.name,
                task,
                f"`when` asks about a task of the workflow {other!r}",
                "A run knows its own tasks only: ask about one that is upstream here",
            )
        return when.rule

    def _check(self, task: AnyWorkflowTask) -> None:
        """Refuse what could not run, also by what it would do to those that depend on it."""
        name = task.short_name
        tasks = {**self._tasks, name: task}
        check_wiring(task, tasks, self.inputs)
        # What it names may be defined further down; then it is looked at when a run starts.
        with suppress(InvalidTask):
            check_types(task, tasks)
        if name not in self._tasks:
            return
        for one in self._tasks.values():
            if name in upstream_of(one.short_name, tasks):
                check_wiring(one, tasks, self.inputs)
                with suppress(InvalidTask):
                    check_types(one, tasks)

    # --- what is stored ---------------------------------------------------------------

    def new_run(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[NewRun, Graph]:
        """Check the inputs and write nothing yet."""
        stored = self._stored_form()
        text = self.inputs.encode(args, kwargs)
        if stored.to_check:
            self._check_inputs(stored, text)
        new = NewRun(
            id=new_run_id(),
            workflow=self.name,
            graph=stored.text,
            fingerprint=stored.fingerprint,
            inputs=text,
            timeout=self.timeout,
            follow_ups=self.follow_ups,
        )
        return new, stored.graph

    def _check_inputs(self, stored: Compiled, text: str) -> None:
        members = self.inputs.members(text)
        for task, name in stored.to_check:
            try:
                if name in members:
                    task.signature.check_argument(name, members[name])
                elif name not in task.signature.defaults:
                    self.inputs.refuse_missing_in(name, task.short_name)
            except ArgumentsDoNotFit as error:
                reason = (
                    f"{error.field}={error.stored} does not fit {error.expected}, as the parameter "
                    f"{name!r} of its task {task.short_name!r} has it: {error.detail}"
                )
                raise InvalidInputs(self.name, name, reason, self.inputs.takes) from error

    def _stored_form(self) -> Compiled:
        if self._compiled is None:
            self._compiled = compiled(self.name, self._tasks, self.inputs)
        return self._compiled

    # --- starting ---------------------------------------------------------------------

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Run:
        """Ask for one run: committed when this returns, unless a `using` block is around.

        Raises:
            InvalidInputs: they do not fit the workflow, or one of its tasks. Nothing was written.
        """
        return self._starts.begin(args, kwargs)

    async def astart(self, *args: P.args, **kwargs: P.kwargs) -> Run:
        return await self._starts.abegin(args, kwargs)

    @overload
    def using(
        self, *, connection: SyncConnection, **options: Unpack[StartOptions]
    ) -> WorkflowOnConnection[P]: ...
    @overload
    def using(
        self, *, connection: AsyncConnection, **options: Unpack[StartOptions]
    ) -> WorkflowOnAsyncConnection[P]: ...
    def using(self, *, connection: object = NO_CONNECTION, **options: Any) -> Any:
        """Return the same workflow in a caller's transaction."""
        for option, given in options.items():
            if option not in StartOptions.__annotations__:
                raise InvalidOption(
                    option,
                    given,
                    because="a start has no such option",
                    instead="There are connection and notify; queues and priorities are the tasks'",
                )
        if connection is NO_CONNECTION:
            raise InvalidOption(
                "connection",
                None,
                because="there is none, and `using` is for starting in a caller's transaction",
                instead="Write .using(connection=…).start(…), or .start(…) alone",
            )
        return WorkflowOnAnyConnection(self, cast("StartOptions", options), connection)

    # --- looking ----------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """Who speaks with the database for this workflow."""
        return self._home.client_for(self.name)

    @property
    def code(self) -> Code:
        """What a run can learn of the code that it belongs to."""
        return Code(self._known, lambda _workflow: self.fingerprint)

    def _known(self, task: str) -> AnyWorkflowTask | None:
        for one in self._tasks.values():
            if task == one.name or task in one.options.aliases:
                return one
        return None

    @property
    def fingerprint(self) -> str:
        """Changes when the graph, a rule or the code of a task does."""
        return self._stored_form().fingerprint

    def graph(self, *, form: str = "mermaid") -> str:
        """The workflow as a picture, in Mermaid or, with form="text", as plain text."""
        drawn = self._stored_form().graph
        match form:
            case "mermaid":
                return as_mermaid(drawn)
            case "text":
                return as_text(drawn, takes=self.inputs.takes if self.inputs.parameters else "")
        raise InvalidOption(
            "form", form, because="there is no such form", instead="There are mermaid and text"
        )

    def get(self, run_id: str | UUID) -> Run:
        """Read one run of this workflow by its id."""
        run = Run.read(parse_id(run_id), self.client, self.code)
        if run.workflow != self.name:
            raise OtherWorkflow(run.id, workflow=run.workflow, asked=self.name)
        return run

    async def aget(self, run_id: str | UUID) -> Run:
        return await in_thread(self.get, run_id)

    def find(
        self,
        *,
        state: RunStateName | None = None,
        before: str | UUID | None = None,
        limit: int = 100,
    ) -> list[Run]:
        """Runs of this workflow, newest first. For the next page, pass the last one's id."""
        found = self.client.find_runs(
            workflow=self.name,
            state=None if state is None else checked_run_state(state),
            before=None if before is None else parse_id(before),
            limit=checked_limit(limit),
        )
        return [Run.of(one, self.client, self.code) for one in found]

    async def afind(
        self,
        *,
        state: RunStateName | None = None,
        before: str | UUID | None = None,
        limit: int = 100,
    ) -> list[Run]:
        return await in_thread(lambda: self.find(state=state, before=before, limit=limit))


def _no_task_of_ours(workflow: str, one: object) -> tuple[str, str]:
    if isinstance(one, WorkflowTask):
        return (
            f"`after` names {one.short_name!r}, a task of the workflow {one.workflow!r}",
            "A run knows its own tasks only: declare it here too",
        )
    if isinstance(one, DeclaredTask):
        return (
            f"`after` names {one.name!r}, which is a plain task",
            f"Declare it in the workflow, with `@{workflow}.task`",
        )
    if isinstance(one, Output):
        return (
            f"`after` has {one!r} in it, which is what a task returns and not the task",
            f"Write after=[{one.task}]; a parameter that takes its result needs no `after`",
        )
    return (
        f"`after` has {one!r} in it, which is no task",
        "Give tasks of this workflow, or their names",
    )
