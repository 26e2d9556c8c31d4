"""Which tasks there are, by name."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, MappingProxyType
from typing import Any, ParamSpec, cast, overload

from msgspec.structs import replace

from penstock.engine.client import Client
from penstock.engine.declaring import (
    TaskDecorator,
    checked_follow_ups,
    checked_options,
    checked_timeout,
    name_of,
    refuse_unknown,
)
from penstock.engine.requests import checked_name
from penstock.engine.signatures import TaskSignature
from penstock.engine.tasks import HANDLES, DeclaredTask, Task, TaskFunction
from penstock.engine.workflow_tasks import AnyWorkflowTask, refuse_outputs
from penstock.engine.workflows import Workflow
from penstock.errors import NotBound, PenstockError, UnknownTask
from penstock.model.durations import Duration

P = ParamSpec("P")

AnyTask = DeclaredTask[..., Any]
PlainTask = TaskFunction[..., Any, ..., Any]
AnyWorkflow = Workflow[...]


class NameTaken(PenstockError):
    """Two functions want the same task name."""

    def __init__(self, name: str, *, first: str, second: str) -> None:
        self.name = name
        self.first = first
        self.second = second
        super().__init__(
            f"Two tasks would be called {name!r}: {first} and {second}. "
            'Give one of them another name with @task(name="…").'
        )


class WorkflowNameTaken(PenstockError):
    """Two modules declare a workflow of the same name."""

    def __init__(self, name: str, *, first: str, second: str) -> None:
        self.name = name
        self.first = first
        self.second = second
        super().__init__(
            f"Two workflows would be called {name!r}: one in {first}, one in {second}. "
            "Give one of them another name."
        )


class RegistryTaken(PenstockError):
    """A Registry that belongs to another open App."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        some = ", ".join([*names[:3], *(["…"] if names[3:] else [])])
        super().__init__(
            f"The Registry with {some or 'no task'} belongs to another App, and its tasks can be "
            "enqueued in one database only. Close that App first, or make a Registry for each."
        )


class Registry:
    """Tasks that know no App yet: `App(include=[registry])` gives them one."""

    def __init__(self, *, prefix: str = "") -> None:
        self.prefix = checked_name("prefix", prefix) if prefix else ""
        self._tasks: dict[str, AnyTask] = {}
        self.version = 0  # rises with every change of what is declared here
        self._aliases: dict[str, str] = {}
        self._workflows: dict[str, AnyWorkflow] = {}
        self._client: Client | None = None
        self._free = True
        self._beside: Callable[[], Iterable[Registry]] = tuple

    def __repr__(self) -> str:
        return f"<Registry of {', '.join(self._tasks) or 'no task'}>"

    def __iter__(self) -> Iterator[PlainTask | Any]:  # or a WorkflowTask
        return iter(self._tasks.values())

    @property
    def task(self) -> TaskDecorator:
        """Declare a task: `@registry.task` or `@registry.task(queue="mail", retry=["1m"])`."""
        return cast("TaskDecorator", self._declare)

    @overload
    def workflow(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        on_success: Task[..., Any] | None = None,
        on_failure: Task[..., Any] | None = None,
    ) -> Workflow[[]]: ...
    @overload
    def workflow(
        self,
        name: str,
        *,
        inputs: Callable[P, object],
        timeout: Duration | None = None,
        on_success: Task[..., Any] | None = None,
        on_failure: Task[..., Any] | None = None,
    ) -> Workflow[P]: ...
    def workflow(
        self,
        name: str,
        *,
        inputs: Callable[..., object] | None = None,
        timeout: Duration | None = None,
        on_success: Task[..., Any] | None = None,
        on_failure: Task[..., Any] | None = None,
    ) -> AnyWorkflow:
        """Declare a workflow; its tasks follow with `@workflow.task`.

        Declared again in the same module (reload, notebook), it begins anew without tasks.

        Raises:
            WorkflowNameTaken: another module declares one of that name.
        """
        return self.add_workflow(
            Workflow(
                self.prefix + checked_name("name", name),
                inputs=inputs,
                home=self,
                timeout=None if timeout is None else checked_timeout(timeout, of="workflow"),
                follow_ups=checked_follow_ups(on_success, on_failure, of="workflow"),
                origin=_caller(),
            )
        )

    def add_workflow(self, workflow: AnyWorkflow) -> AnyWorkflow:
        for registry in (self, *self._beside()):
            registry.refuse_another_workflow(workflow)
        for task in self._workflows.get(workflow.name, ()):
            self._forget(task)
        self._workflows[workflow.name] = workflow
        return workflow

    def refuse_another_workflow(self, workflow: AnyWorkflow) -> None:
        """Raise WorkflowNameTaken if another module has a workflow of its name here."""
        other = self._workflows.get(workflow.name)
        if other is not None and other.origin != workflow.origin:
            raise WorkflowNameTaken(workflow.name, first=other.origin, second=workflow.origin)

    @property
    def workflows(self) -> Mapping[str, AnyWorkflow]:
        """The workflows that are declared here, by name."""
        return MappingProxyType(self._workflows)

    def _forget(self, task: AnyWorkflowTask) -> None:
        if self._tasks.get(task.name) is task:
            del self._tasks[task.name]
            self.version += 1
        self._aliases = {old: new for old, new in self._aliases.items() if new != task.name}

    def _declare(
        self,
        function: Callable[..., Any] | None = None,
        /,
        **options: Any,  # noqa: ANN401 - TaskDecorator says which
    ) -> PlainTask | Callable[[Callable[..., Any]], PlainTask]:
        refuse_unknown(options)
        if function is None:
            return lambda decorated: self._register(decorated, options)
        return self._register(function, options)

    def _register(self, function: Callable[..., Any], options: Mapping[str, Any]) -> PlainTask:
        given = options.get("name")
        local = checked_name("name", given) if given is not None else name_of(function)
        signature = TaskSignature(function, name=self.prefix + local, handle_types=HANDLES)
        refuse_outputs(signature, self.prefix + local)
        declared = checked_options(
            signature.colour, **{key: value for key, value in options.items() if key != "name"}
        )
        if self.prefix:
            # Both: it may have had its former name here, or before there was a prefix.
            former = [f"{prefix}{old}" for prefix in (self.prefix, "") for old in declared.aliases]
            declared = replace(declared, aliases=tuple(former))
        task: PlainTask = TaskFunction(function, self.prefix + local, declared, signature, self)
        self.add(task)
        return task

    def add(self, task: AnyTask) -> None:
        """Take a task in; the same function again replaces the one before it.

        Raises:
            NameTaken: another function has one of its names, here or elsewhere in the App.
        """
        for registry in (self, *self._beside()):
            registry.refuse_another(task)
        self._aliases = {old: new for old, new in self._aliases.items() if new != task.name}
        self._tasks[task.name] = task
        self.version += 1
        self._aliases.update(dict.fromkeys(task.options.aliases, task.name))

    def refuse_another(self, task: AnyTask) -> None:
        """Raise NameTaken if another function than the task's has one of its names here."""
        for name in (task.name, *task.options.aliases):
            other = self._tasks.get(self._aliases.get(name, name))
            if other is not None and _origin(other.function) != _origin(task.function):
                raise NameTaken(name, first=_place(other.function), second=_place(task.function))

    def get(self, name: str) -> AnyTask:
        """Return the task of this name, or of this former name."""
        try:
            return self._tasks[self._aliases.get(name, name)]
        except KeyError:
            raise UnknownTask(name, registered=self.names()) from None

    def __contains__(self, name: object) -> bool:
        return name in self._tasks or name in self._aliases

    def names(self) -> list[str]:
        """Every name that queued work may carry: names and former names."""
        return [*self._tasks, *self._aliases]

    def bind(self, client: Client, *, beside: "Callable[[], Iterable[Registry]]" = tuple) -> None:
        """Give the tasks a client, so that they can be enqueued.

        `beside` says which registries have the same client: their names must differ.
        """
        if not self._free and self._client is not client:
            raise RegistryTaken(list(self._tasks))
        self._client = client
        self._beside = beside
        self._free = False

    def release(self, client: Client) -> None:
        """Let another client have the tasks; until one does, this one opens again for them."""
        if self._client is client:
            self._free = True

    def client_for(self, task: str) -> Client:
        if self._client is None:
            raise NotBound(task)
        return self._client


def _caller() -> str:
    """The module outside of ours that declares a workflow."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to ask
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] != "penstock":
            return name
        frame = frame.f_back
    return ""


def _origin(function: object) -> tuple[object, object]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", None)


def _place(function: object) -> str:
    code = getattr(function, "__code__", None)
    module, name = _origin(function)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return f"{module}.{name}{where}"
