"""How a function becomes a task: what the decorator takes, what it refuses, what it returns."""

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, final, overload

from penstock.engine.handle import AsyncTaskHandle, TaskHandle
from penstock.engine.requests import (
    InvalidOption,
    checked_duration,
    checked_name,
    checked_priority,
)
from penstock.engine.signatures import Colour
from penstock.engine.tasks import Executor, Task, TaskFunction, TaskOptions
from penstock.model.durations import Duration
from penstock.model.executions import DEFAULT_MAX_CRASHES, DEFAULT_QUEUE
from penstock.model.follow_ups import FollowUp, encode_follow_ups
from penstock.model.retry import DEFAULT_RETRY, Retry

P = ParamSpec("P")
T = TypeVar("T")


class DelayList(Protocol):
    """A list of durations of any kind, or of several.

    Not a Sequence, which a text such as "1m" is too; not a `list[Duration]`, which a
    `list[str]` is not.
    """

    def __iter__(self) -> Iterator[Duration]: ...
    def reverse(self) -> None: ...  # what a list has and a text has not


RetryOption = Retry | DelayList | tuple[Duration, ...] | None


@final
class _Anything:
    """Matched only by a first parameter that is `object`, `Any` or not annotated.

    Without it, the overloads below that take a handle out would take that parameter out.
    """


class TaskDecorator(Protocol):
    """`@app.task` and `@app.task(…)`."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[_Anything, P], Coroutine[Any, Any, T]], /
    ) -> TaskFunction[..., T, ..., Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[_Anything, P], T], /
    ) -> TaskFunction[..., T, ..., T]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncTaskHandle, P], Coroutine[Any, Any, T]], /
    ) -> TaskFunction[P, T, Concatenate[AsyncTaskHandle, P], Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[TaskHandle, P], T], /
    ) -> TaskFunction[P, T, Concatenate[TaskHandle, P], T]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> TaskFunction[P, T, P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> TaskFunction[P, T, P, T]: ...
    @overload
    def __call__(
        self,
        *,
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
    ) -> "TaskDecorator": ...


def checked_options(
    colour: Colour,
    *,
    queue: object = DEFAULT_QUEUE,
    priority: object = 0,
    retry: object = DEFAULT_RETRY,
    timeout: Duration | None = None,
    executor: object = None,
    max_crashes: object = DEFAULT_MAX_CRASHES,
    max_running: object = None,
    aliases: object = (),
    on_success: object = None,
    on_failure: object = None,
) -> TaskOptions:
    """Turn what the decorator was given into options, or refuse it by name."""
    return TaskOptions(
        queue=checked_name("queue", queue),
        priority=checked_priority(priority),
        retry=Retry.of(retry),  # type: ignore[arg-type] # refuses what is none
        timeout=None if timeout is None else checked_timeout(timeout),
        executor=_checked_executor(colour, executor),
        max_crashes=_checked_count("max_crashes", max_crashes),
        max_running=None if max_running is None else _checked_count("max_running", max_running),
        aliases=_checked_aliases(aliases),
        follow_ups=checked_follow_ups(on_success, on_failure),
    )


def refuse_unknown(options: Mapping[str, object], *, more: Collection[str] = ()) -> None:
    """Raise InvalidOption for what is no option of a task, or one of those that come on top."""
    known = ["name", *more, *(checked_options.__kwdefaults__ or ())]
    for option in options:
        if option not in known:
            raise InvalidOption(
                option,
                options[option],
                because="a task has no such option",
                instead=f"There are {', '.join(known)}",
            )


def name_of(function: object) -> str:
    """What a task is called if nobody says otherwise."""
    return str(getattr(function, "__name__", "")) or str(function)


def checked_timeout(timeout: Duration, *, of: str = "task") -> timedelta:
    parsed = checked_duration("timeout", timeout)
    if not parsed:
        raise InvalidOption(
            "timeout",
            timeout,
            because=f"no {of} can end in no time",
            instead=f"Leave it out for a {of} without a time limit",
        )
    return parsed


def _checked_executor(colour: Colour, executor: object) -> Executor:
    natural: Executor = "loop" if colour is Colour.ASYNC else "thread"
    match executor:
        case None:
            return natural
        case "process" if colour is Colour.SYNC:
            return "process"
        case "thread" | "loop" if executor == natural:
            return natural
    raise InvalidOption(
        "executor",
        executor,
        because="a `def` task runs in a thread or in a process, an `async def` task on the loop",
        instead='Leave it out, or say executor="process" for a CPU-bound `def`',
    )


_MOST = 2**31 - 1


def _checked_count(option: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise InvalidOption(
            option,
            value,
            because="it must be a whole number, at least 1 and of at most 31 bits",
            instead="Leave it out for the default",
        )
    return int(value)


def _checked_aliases(aliases: object) -> tuple[str, ...]:
    if not isinstance(aliases, list | tuple):
        raise InvalidOption(
            "aliases",
            aliases,
            because="it must be a list of names",
            instead='Write aliases=["old_name"]',
        )
    return tuple(checked_name("aliases", alias) for alias in aliases)


def checked_follow_ups(
    on_success: object, on_failure: object, *, of: Literal["task", "workflow"] = "task"
) -> str | None:
    """Return what follows as it is stored: tasks that take only what an end can tell them."""
    if on_success is None and on_failure is None:
        return None
    return encode_follow_ups(
        on_success=_checked_follow_up("on_success", on_success, ("execution_id", of, "result")),
        on_failure=_checked_follow_up("on_failure", on_failure, ("execution_id", of, "error")),
    )


def _checked_follow_up(option: str, task: object, offered: Sequence[str]) -> FollowUp | None:
    if task is None:
        return None
    if not isinstance(task, Task):
        raise InvalidOption(
            option, task, because="it is no task", instead="Give it a function that is declared one"
        )
    wants = tuple(task.signature.parameters)
    if unknown := [name for name in wants if name not in offered]:
        raise InvalidOption(
            option,
            task,
            because=f"nothing fills its parameter {unknown[0]!r}",
            instead=f"It may take {', '.join(offered)}",
        )
    return FollowUp(
        task=task.name,
        queue=task.options.queue,
        priority=task.options.priority,
        max_crashes=task.options.max_crashes,
        wants=wants,
    )
