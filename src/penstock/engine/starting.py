"""Starting a run: in a transaction of its own, or in that of a caller's connection."""

from typing import Generic, ParamSpec, Protocol, TypedDict

from penstock.engine.client import NO_CONNECTION, Client
from penstock.engine.runs import Code, Run
from penstock.model.graph import Graph
from penstock.model.runs import NewRun

P = ParamSpec("P")


class StartOptions(TypedDict, total=False):
    """How one start differs from others."""

    notify: bool


class Startable(Protocol):
    """What a start needs of its workflow."""

    @property
    def client(self) -> Client: ...
    @property
    def code(self) -> Code: ...
    def new_run(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[NewRun, Graph]: ...


class Starts(Generic[P]):
    """What workflows and their `using` forms have in common."""

    def __init__(
        self,
        workflow: Startable,
        options: StartOptions | None = None,
        connection: object = NO_CONNECTION,
    ) -> None:
        self._workflow = workflow
        self._options: StartOptions = options or {}
        self._connection = connection

    def begin(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Run:
        new, graph = self._workflow.new_run(args, kwargs)
        client = self._workflow.client
        client.start_run(new, connection=self._connection, notify=self._options.get("notify", True))
        return Run.just_started(new, graph, client, self._workflow.code, asked_at=client.now())

    async def abegin(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Run:
        new, graph = self._workflow.new_run(args, kwargs)
        client = self._workflow.client
        notify = self._options.get("notify", True)
        await client.astart_run(new, connection=self._connection, notify=notify)
        return Run.just_started(new, graph, client, self._workflow.code, asked_at=client.now())


class WorkflowOnConnection(Starts[P]):
    """A workflow that is started in the transaction of one sync connection."""

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Run:
        """Write a run into the connection's transaction; commit nothing."""
        return self.begin(args, kwargs)


class WorkflowOnAsyncConnection(Starts[P]):
    """A workflow that is started in the transaction of one async connection."""

    async def astart(self, *args: P.args, **kwargs: P.kwargs) -> Run:
        """Write a run into the connection's transaction; commit nothing."""
        return await self.abegin(args, kwargs)


class WorkflowOnAnyConnection(WorkflowOnConnection[P], WorkflowOnAsyncConnection[P]):
    """Both at once, for callers that no type checker watches; the store knows which is wrong."""
