"""A task: a function whose calls can be kept in a database and run elsewhere.

The classes are many because the type checker is to know what each can do: `enqueue` takes
the function's own parameters without the handle, a plain call takes all of them, and what
`using` returns on a sync connection has no `aenqueue`.
"""

import functools
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload
from uuid import UUID

import msgspec

from penstock.engine.awaiting import in_thread
from penstock.engine.client import NO_CONNECTION, Client
from penstock.engine.executions import Execution
from penstock.engine.habits import SaysWhatToCall
from penstock.engine.handle import AsyncTaskHandle, TaskHandle
from penstock.engine.requests import EnqueueOptions, Request, new_execution
from penstock.engine.shapes import AsyncConnection, SyncConnection
from penstock.engine.signatures import Colour, TaskSignature
from penstock.errors import PenstockError
from penstock.model.executions import DEFAULT_MAX_CRASHES, DEFAULT_QUEUE
from penstock.model.retry import DEFAULT_RETRY, Retry

P = ParamSpec("P")
CallP = ParamSpec("CallP")
T_co = TypeVar("T_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)

Executor = Literal["thread", "process", "loop"]

HANDLES: Mapping[type, Colour] = {TaskHandle: Colour.SYNC, AsyncTaskHandle: Colour.ASYNC}


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a task declares about all of its executions."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    retry: Retry = DEFAULT_RETRY
    timeout: timedelta | None = None
    executor: Executor = "thread"
    max_crashes: int = DEFAULT_MAX_CRASHES
    max_running: int | None = None
    aliases: tuple[str, ...] = ()
    follow_ups: str | None = None  # what is stored with each execution, to be enqueued at its end


class OtherTask(PenstockError):
    """An id that belongs to an execution of another task, whose result has another type."""

    def __init__(self, execution_id: str, *, task: str, asked: str) -> None:
        self.execution_id = execution_id
        self.task = task
        self.asked = asked
        super().__init__(
            f"Execution {execution_id} is one of {task!r}, not of {asked!r}. "
            f"Ask that task for it, or `app.get(…)`, which finds any."
        )


class Home(Protocol):
    """Where a task is registered: it knows the client, once there is one."""

    def client_for(self, task: str) -> Client: ...


class _Requests(SaysWhatToCall, Generic[P, T_co]):
    """What tasks and their `using` forms have in common."""

    def __init__(
        self,
        name: str,
        options: TaskOptions,
        signature: TaskSignature,
        home: Home,
        *,
        enqueue_options: EnqueueOptions | None = None,
        connection: object = NO_CONNECTION,
    ) -> None:
        self.name = name
        self.options = options
        self.signature = signature
        self._home = home
        self._enqueue_options: EnqueueOptions = enqueue_options or {}
        self._connection = connection

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def _request(self, args: str) -> Request[T_co]:
        # Each is asked for once: what has a `__getattr__` finds its attributes slowly.
        options, asked = self.options, self._enqueue_options
        new = new_execution(
            self.name,
            args,
            asked,
            queue=options.queue,
            priority=options.priority,
            max_crashes=options.max_crashes,
            follow_ups=options.follow_ups,
        )
        return Request(new, self.signature.decode_result, asked.get("notify", True))

    def _enqueue(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Execution[T_co]:
        request = self._request(self.signature.encode_arguments(args, kwargs))
        client = self._home.client_for(self.name)
        return client.enqueue_one(request, connection=self._connection)

    async def _aenqueue(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> Execution[T_co]:
        request = self._request(self.signature.encode_arguments(args, kwargs))
        client = self._home.client_for(self.name)
        (execution,) = await client.aenqueue([request], connection=self._connection)
        return execution


class TaskOnConnection(_Requests[P, T_co]):
    """A task that is enqueued in the transaction of one sync connection."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Execution[T_co]:
        """Write an execution into the connection's transaction; commit nothing."""
        return self._enqueue(args, kwargs)


class TaskOnAsyncConnection(_Requests[P, T_co]):
    """A task that is enqueued in the transaction of one async connection."""

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Execution[T_co]:
        """Write an execution into the connection's transaction; commit nothing."""
        return await self._aenqueue(args, kwargs)


class _TaskOnAnyConnection(TaskOnConnection[P, T_co], TaskOnAsyncConnection[P, T_co]):
    """Both at once, for callers that no type checker watches.

    Who takes the wrong twin, or passes an engine, then hears why from the store, which knows
    the connection, and not that an attribute is missing.
    """


class Task(_Requests[P, T_co]):
    """What users annotate: `Task[[int], str]`, `Task[..., Any]`."""

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Execution[T_co]:
        """Ask for one execution: committed when this returns, unless a `using` block is around."""
        return self._enqueue(args, kwargs)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Execution[T_co]:
        return await self._aenqueue(args, kwargs)

    def request(self, *args: P.args, **kwargs: P.kwargs) -> Request[T_co]:
        """Check the arguments and write nothing yet; for `app.enqueue_many`."""
        return self._request(self.signature.encode_arguments(args, kwargs))

    def request_named(self, arguments: Mapping[str, object]) -> Request[T_co]:
        """The same, for arguments that come by name, as from a command line."""
        return self._request(self.signature.encode_named(arguments))

    @overload
    def using(
        self, *, connection: SyncConnection, **options: Unpack[EnqueueOptions]
    ) -> TaskOnConnection[P, T_co]: ...
    @overload
    def using(
        self, *, connection: AsyncConnection, **options: Unpack[EnqueueOptions]
    ) -> TaskOnAsyncConnection[P, T_co]: ...
    @overload
    def using(self, **options: Unpack[EnqueueOptions]) -> "Task[P, T_co]": ...
    def using(self, *, connection: object = NO_CONNECTION, **options: Any) -> Any:
        """Return the same task with other options, or in a caller's transaction."""
        asked: EnqueueOptions = {**self._enqueue_options, **options}  # type: ignore[typeddict-item]
        new_execution(self.name, "{}", asked)  # refuses what cannot be, before anything is called
        form = Task if connection is NO_CONNECTION else _TaskOnAnyConnection
        return form(
            self.name,
            self.options,
            self.signature,
            self._home,
            enqueue_options=asked,
            connection=connection,
        )

    def get(self, execution_id: str | UUID) -> Execution[T_co]:
        """Read one execution of this task by its id."""
        execution = self.client.get(execution_id, decode_result=self.signature.decode_result)
        if execution.task not in {self.name, *self.options.aliases}:
            raise OtherTask(execution.id, task=execution.task, asked=self.name)
        return execution

    @property
    def client(self) -> Client:
        """Who speaks with the database for this task."""
        return self._home.client_for(self.name)

    async def aget(self, execution_id: str | UUID) -> Execution[T_co]:
        return await in_thread(self.get, execution_id)


class DeclaredTask(Generic[CallP, R_co]):
    """A function with a name under which workers run it; a plain call runs it here and now."""

    def __init__(
        self,
        function: Callable[CallP, R_co],
        name: str,
        options: TaskOptions,
        signature: TaskSignature,
        home: Home,
    ) -> None:
        self.function = function
        self.name = name
        self.options = options
        self.signature = signature
        self._home = home
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def __call__(self, *args: CallP.args, **kwargs: CallP.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    @property
    def client(self) -> Client:
        """Who speaks with the database for this task."""
        return self._home.client_for(self.name)


class TaskFunction(Task[P, T_co], DeclaredTask[CallP, R_co], Generic[P, T_co, CallP, R_co]):
    """A declared task that callers enqueue."""

    def __init__(
        self,
        function: Callable[CallP, R_co],
        name: str,
        options: TaskOptions,
        signature: TaskSignature,
        home: Home,
    ) -> None:
        Task.__init__(self, name, options, signature, home)
        DeclaredTask.__init__(self, function, name, options, signature, home)
