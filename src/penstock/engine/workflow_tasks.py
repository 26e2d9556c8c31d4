"""A task of a workflow: declared like any other, and started by its run alone."""

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

import msgspec

from penstock.engine.declaring import RetryOption
from penstock.engine.functions import InvalidTask
from penstock.engine.habits import OF_TASKS
from penstock.engine.outputs import Output
from penstock.engine.signatures import TaskSignature
from penstock.engine.tasks import DeclaredTask, Executor, Home, Task, TaskOptions
from penstock.errors import PenstockError
from penstock.model.durations import Duration
from penstock.model.executions import DEFAULT_MAX_CRASHES, DEFAULT_QUEUE
from penstock.model.retry import DEFAULT_RETRY
from penstock.model.rules import Rule

if TYPE_CHECKING:  # a condition asks about tasks of workflows, so it knows this module
    from penstock.engine.conditions import Condition

P = ParamSpec("P")
T = TypeVar("T")
CallP = ParamSpec("CallP")
T_co = TypeVar("T_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)

_OF_PLAIN_TASKS = OF_TASKS.keys() | {
    *("enqueue", "aenqueue", "request", "request_named", "using", "get", "aget")
}


_elements_of = msgspec.json.Decoder(list[msgspec.Raw]).decode


class PartOfWorkflow(PenstockError, AttributeError):
    """A task of a workflow was to be enqueued by itself."""

    def __init__(self, task: str, workflow: str) -> None:
        self.task = task
        self.workflow = workflow
        super().__init__(
            f"{task!r} is a task of the workflow {workflow!r} and runs in its runs only. Start "
            "the workflow with `.start(…)`, or declare a plain task that calls the same function."
        )


class OutputMissing(PenstockError, TypeError):
    """A plain call of a task that takes the result of another one, without that result."""

    def __init__(self, task: str, parameter: str) -> None:
        self.task = task
        self.parameter = parameter
        super().__init__(
            f"A plain call of {task!r} runs the function alone, so nobody fills {parameter!r} with "
            f"another task's result. Pass {parameter!r}."
        )


class WorkflowTask(DeclaredTask[CallP, R_co], Generic[T_co, CallP, R_co]):
    """What `@workflow.task` makes of a function."""

    def __init__(
        self,
        function: Callable[CallP, R_co],
        options: TaskOptions,
        signature: TaskSignature,
        home: Home,
        *,
        workflow: str,
        short_name: str,
        after: tuple[str, ...],
        rule: Rule,
        for_each: str | None = None,
    ) -> None:
        super().__init__(function, f"{workflow}.{short_name}", options, signature, home)
        self.workflow = workflow
        self.short_name = short_name  # within the workflow
        self.rule = rule
        self.outputs = {
            name: default.task
            for name, default in signature.defaults.items()
            if isinstance(default, Output)
        }
        self.for_each = for_each  # the task that returns the list
        self.element: str | None = None  # the parameter that takes one of its elements
        # As written, without repetition: what it names and what it takes a result of.
        of_list = () if for_each is None else (for_each,)
        self.after = tuple(dict.fromkeys((*after, *self.outputs.values(), *of_list)))
        self._python_signature = inspect.signature(function) if self.outputs else None

    def decode_result(self, text: str) -> object:
        """Read a stored result; of a task that runs for each element, all of them in order."""
        if self.for_each is None:
            return self.signature.decode_result(text)
        each = (bytes(one).decode() for one in _elements_of(text))
        return [self.signature.decode_result(one) for one in each]

    @property
    def output(self) -> T_co:
        """This task's result, as the default of another task's parameter."""
        return cast("T_co", Output(self.workflow, self.short_name))

    def __call__(self, *args: CallP.args, **kwargs: CallP.kwargs) -> R_co:
        if self._python_signature is not None:
            given = self._python_signature.bind_partial(*args, **kwargs).arguments
            for name in self.outputs:
                if name not in given:
                    raise OutputMissing(self.name, name)
        return self.function(*args, **kwargs)

    if not TYPE_CHECKING:  # a type checker says by itself that there is no such attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name in _OF_PLAIN_TASKS:
                raise PartOfWorkflow(self.name, self.workflow)
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message)


AnyWorkflowTask = WorkflowTask[Any, ..., Any]


def refuse_outputs(signature: TaskSignature, name: str) -> None:
    """Raise InvalidTask if a plain task takes the result of a workflow's task."""
    for parameter, default in signature.defaults.items():
        if isinstance(default, Output | WorkflowTask):
            raise InvalidTask(
                name,
                f"the default of {parameter!r} belongs to the workflow {default.workflow!r}, and "
                "only its own tasks get what its tasks return",
                f"Declare it with the `.task` of that workflow, or let {parameter!r} be passed",
            )


class ForEachDecorator(Protocol):
    """`@workflow.task(for_each=…)`: its result is the list of what it returned."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> WorkflowTask[list[T], P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> WorkflowTask[list[T], P, T]: ...


class WorkflowTaskDecorator(Protocol):
    """`@workflow.task` and `@workflow.task(…)`."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> WorkflowTask[T, P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> WorkflowTask[T, P, T]: ...
    @overload
    def __call__(
        self,
        *,
        after: Sequence[AnyWorkflowTask | str] = (),
        when: "Condition | None" = None,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retry: RetryOption = DEFAULT_RETRY,
        timeout: Duration | None = None,
        executor: Executor | None = None,
        max_crashes: int = DEFAULT_MAX_CRASHES,
        max_running: int | None = None,
        aliases: list[str] | tuple[str, ...] = (),
        on_success: Task[..., Any] | None = None,
        on_failure: Task[..., Any] | None = None,
    ) -> "WorkflowTaskDecorator": ...
    @overload
    def __call__(
        self,
        *,
        for_each: Sequence[Any],
        after: Sequence[AnyWorkflowTask | str] = (),
        when: "Condition | None" = None,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retry: RetryOption = DEFAULT_RETRY,
        timeout: Duration | None = None,
        executor: Executor | None = None,
        max_crashes: int = DEFAULT_MAX_CRASHES,
        max_running: int | None = None,
        aliases: list[str] | tuple[str, ...] = (),
        on_success: Task[..., Any] | None = None,
        on_failure: Task[..., Any] | None = None,
    ) -> ForEachDecorator: ...
