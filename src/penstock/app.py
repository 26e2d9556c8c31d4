"""The front door: an App knows the tasks and the database."""

import importlib
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, Unpack, overload
from uuid import UUID

from penstock.engine.awaiting import in_thread
from penstock.engine.background import BackgroundWorker
from penstock.engine.client import Client
from penstock.engine.declaring import TaskDecorator
from penstock.engine.executions import Execution
from penstock.engine.hooks import Hooks, HookSet
from penstock.engine.remembering import checked_name as checked_step_name
from penstock.engine.requests import (
    EnqueueOptions,
    InvalidOption,
    Request,
    checked_name,
    checked_requests,
    new_execution,
)
from penstock.engine.shapes import AsyncConnection, SyncConnection
from penstock.engine.tasks import Task
from penstock.engine.workflow_tasks import PartOfWorkflow, WorkflowTask
from penstock.engine.workflows import Workflow
from penstock.errors import PenstockError, SchemaBehind, SchemaMissing, is_missing
from penstock.looking import Looking
from penstock.model.durations import Duration
from penstock.model.executions import SignalAnswer
from penstock.model.ids import parse_id
from penstock.model.payloads import decode, encode
from penstock.rebinding import Rebindable, RunByATest
from penstock.registry import AnyTask, AnyWorkflow, PlainTask, Registry
from penstock.running import WorkerChoices, run_in_foreground, worker_options
from penstock.store.contract import Store
from penstock.store.opening import open_store

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from penstock.engine.worker import Worker
    from penstock.settings import Settings

P = ParamSpec("P")

_apps: "weakref.WeakSet[App]" = weakref.WeakSet()


class AlreadyOpen(PenstockError):
    """An App that is in use cannot be configured any more."""

    def __init__(self) -> None:
        super().__init__(
            "This App has opened its database already, so it cannot be configured any more. "
            "Call `app.configure(…)` before its first use, or `app.close()` first."
        )


class App(Rebindable, Looking):
    """Tasks and the database that keeps their executions.

    Making an App does no I/O. It opens its database when it is first used, once in every
    process, also in one that was forked from a parent that had used it.
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        schema: str | None = None,
        migrate: bool = False,
        include: Sequence[Registry | str] = (),
    ) -> None:
        self._arguments: dict[str, object] = {}
        self._migrate = migrate
        self._settings: Settings | None = None
        self._store: Store | None = None
        self._opening = threading.RLock()
        self._hooks = HookSet()
        self._client = Client(self._opened, self._hooks)
        self._registry = Registry()
        self._seen: tuple[list[tuple[Registry, int]], Mapping[str, PlainTask | Any]] | None = None
        self._included: list[Registry] = []
        self._bind(self._registry)
        self._modules: list[str] = []
        self.configure(database=database, schema=schema)
        # A text is a sequence of texts too: its letters would be the modules.
        for registry in [include] if isinstance(include, str) else include:
            self.include(registry)
        _apps.add(self)

    def __repr__(self) -> str:
        return f"<App with {len(self.tasks)} tasks>"

    # --- set-up -----------------------------------------------------------------------

    def configure(
        self,
        *,
        database: str | None = None,
        schema: str | None = None,
        migrate: bool | None = None,
    ) -> None:
        """Say where the database is, before the App is used."""
        if self._store is not None:
            raise AlreadyOpen
        given = {"database.url": database, "database.schema": schema}
        self._arguments |= {name: value for name, value in given.items() if value is not None}
        if migrate is not None:
            self._migrate = migrate
        self._settings = None  # read before, perhaps, with other arguments

    def add_hooks(self, hooks: Hooks) -> None:
        """Let `hooks` hear what this App enqueues and what its workers do, from now on."""
        self._hooks.add(hooks)

    @property
    def settings(self) -> "Settings":
        """What is set, by arguments, environment and penstock.toml; read once."""
        if self._settings is None:
            # Only here: whoever just declares tasks need not wait for what reads them.
            from penstock.settings import load_settings  # noqa: PLC0415

            self._settings = load_settings(arguments=self._arguments)
        return self._settings

    @property
    def store(self) -> Store:
        return self._opened()

    def _opened(self) -> Store:
        if self._store is not None:
            return self._store
        with self._opening:
            if self._store is None:
                store = self._made_store()
                try:
                    self._check_tables(store)
                    for registry in self._included:
                        self._bind(registry)
                except BaseException:
                    store.close()
                    raise
                self._store = store
            return self._store

    def _check_tables(self, store: Store) -> None:
        # Looked at first, and migrated only if that says so: the first use may be in a transaction
        # of the caller's, whose locks a migration on a connection of our own would wait for.
        try:
            store.check_schema()
        except (SchemaMissing, SchemaBehind):
            if not self._migrate:
                raise
            store.migrate()

    def _made_store(self) -> Store:
        database = self.settings.database
        return open_store(
            database.url,
            schema=database.schema,
            notify=database.notify,
            listen_url=database.listen_url,
            clock=self._client.clock,
        )

    def migrate(self) -> list[int]:
        """Bring the tables to this version; return the migrations that ran."""
        with self._opening:
            if self._store is not None:
                return self._store.migrate()
            store = self._made_store()
            try:
                return store.migrate()
            finally:
                store.close()

    async def amigrate(self) -> list[int]:
        return await in_thread(self.migrate)

    def close(self) -> None:
        """Close the connections. The App opens again when it is used again."""
        if self._rebound:
            return  # a test has yet to look at what the program that it tests leaves behind
        self._close()

    def _close(self) -> None:
        with self._opening:
            store, self._store, self._settings = self._store, None, None
        if store is not None:
            store.close()
        for registry in self._included:
            registry.release(self._client)

    async def aclose(self) -> None:
        await in_thread(self.close)

    def _forget_lock(self) -> None:
        self._opening = threading.RLock()

    # --- tasks ------------------------------------------------------------------------

    @property
    def task(self) -> TaskDecorator:
        """Declare a task: `@app.task` or `@app.task(queue="mail", retry=["1m", "5m"])`."""
        return self._registry.task

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
    def workflow(self, name: str, **options: Any) -> AnyWorkflow:
        """Declare a workflow; its tasks follow with `@workflow.task`."""
        declared: AnyWorkflow = self._registry.workflow(name, **options)
        return declared

    @property
    def workflows(self) -> dict[str, AnyWorkflow]:
        """Every workflow that this App knows, by name."""
        return {name: one for home in self._registries() for name, one in home.workflows.items()}

    @property
    def tasks(self) -> dict[str, PlainTask | Any]:  # or a WorkflowTask
        """Every task that this App knows, by name, those of its workflows too."""
        return {task.name: task for registry in self._registries() for task in registry}

    def _declared(self) -> Mapping[str, PlainTask | Any]:
        """The same, and the same mapping until something is declared: each claim asks for it."""
        versions = [(registry, registry.version) for registry in self._registries()]
        if self._seen is None or self._seen[0] != versions:
            self._seen = (versions, self.tasks)
        return self._seen[1]

    def import_included(self) -> None:
        """Import the modules that `include` named, and take in their registries."""
        while self._modules:
            module = _included(self._modules[0])
            self._modules.pop(0)
            for found in vars(module).values():
                if isinstance(found, Registry):
                    self.include(found)

    def include(self, registry: Registry | str) -> None:
        if isinstance(registry, str):
            self._modules.append(registry)
            return
        if not isinstance(registry, Registry):
            raise InvalidOption(
                "include",
                registry,
                because="it is neither a Registry nor the name of a module",
                instead='Write include=[registry, "package.tasks"]',
            )
        if registry in self._included:
            return
        for other in self._registries():
            for task in registry:
                other.refuse_another(task)
            for workflow in registry.workflows.values():
                other.refuse_another_workflow(workflow)
        self._bind(registry)
        self._included.append(registry)

    def _bind(self, registry: Registry) -> None:
        registry.bind(self._client, beside=self._registries)

    def _registries(self) -> tuple[Registry, ...]:
        return (self._registry, *self._included)

    def find_task(self, name: str) -> AnyTask | None:
        """Return the task of this name or former name, or None."""
        for registry in self._registries():
            if name in registry:
                return registry.get(name)
        return None

    # --- enqueue ----------------------------------------------------------------------

    def enqueue(
        self,
        task: str,
        arguments: Mapping[str, object] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Execution[Any]:
        """Enqueue by name, for a caller that need not have the code.

        Where the code is known here, the arguments are checked against it.
        """
        (execution,) = self._client.enqueue([self._named(task, arguments or {}, options)])
        return execution

    async def aenqueue(
        self,
        task: str,
        arguments: Mapping[str, object] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Execution[Any]:
        (execution,) = await self._client.aenqueue([self._named(task, arguments or {}, options)])
        return execution

    def enqueue_many(self, requests: Iterable[Request[Any]]) -> list[Execution[Any]]:
        """Write all of them in one transaction, in this order."""
        return self._client.enqueue(checked_requests(requests))

    async def aenqueue_many(self, requests: Iterable[Request[Any]]) -> list[Execution[Any]]:
        return await self._client.aenqueue(checked_requests(requests))

    def signal(
        self,
        execution_id: str | UUID,
        name: str,
        data: object = None,
    ) -> SignalAnswer:
        """Tell an execution that waits for this signal, or will: `handle.wait_for(signal=…)`.

        In the transaction of an enclosing `app.using(connection=…)` block, if there is one.
        Answers "told", "already" (the first signal of a name wins, and said something else), or
        "finished". Sent again with the same data, after a lost reply, it is "told" as before.
        """
        return self._client.signal(
            parse_id(execution_id),
            checked_step_name("signal", name),
            encode(data),
        )

    async def asignal(
        self,
        execution_id: str | UUID,
        name: str,
        data: object = None,
    ) -> SignalAnswer:
        return await self._client.asignal(
            parse_id(execution_id),
            checked_step_name("signal", name),
            encode(data),
        )

    def using(
        self, *, connection: SyncConnection | AsyncConnection, notify: bool = True
    ) -> AbstractContextManager[None]:
        """Write everything that the block enqueues into this connection's transaction."""
        return self._client.using(connection, notify=notify)

    def _named(
        self, name: str, arguments: Mapping[str, object], options: EnqueueOptions
    ) -> Request[Any]:
        if isinstance(name, Task):
            raise InvalidOption(
                "task",
                name,
                because="it must be a str, the name of the task",
                instead="Who has the task itself calls task.enqueue(…)",
            )
        task = self.find_task(checked_name("task", name))
        if isinstance(task, WorkflowTask):
            raise PartOfWorkflow(task.name, task.workflow)
        if isinstance(task, Task):
            return task.using(**options).request_named(arguments)
        if name in self.workflows:
            raise InvalidOption(
                "task",
                name,
                because="it is a workflow, and no worker would run a task of that name",
                instead=f"Start it: app.workflows[{name!r}].start(…)",
            )
        if not isinstance(arguments, Mapping):
            raise InvalidOption(
                "arguments",
                arguments,
                because="arguments go by name",
                instead='Write app.enqueue("task", {"name": value})',
            )
        new = new_execution(name, encode(dict(arguments)), options)
        return Request(new, decode, options.get("notify", True))

    # --- work -------------------------------------------------------------------------

    def worker(self, **options: Unpack[WorkerChoices]) -> BackgroundWorker:
        """Work in the background of a block: `with app.worker(slots=4): …`, also `async with`."""
        return BackgroundWorker(
            lambda loop: None if self._rebound else self._made_worker(options, loop)
        )

    def run_worker(self, *, until_idle: bool = False, **options: Unpack[WorkerChoices]) -> None:
        """Work in the foreground, until a signal says stop or, with `until_idle`, nothing is due.

        The first SIGTERM or SIGINT stops claiming and lets tasks finish for the grace period;
        the second releases them at once. Then this returns; only with `until_idle`, when a caller
        expects that all is done, does it pass Ctrl-C on.

        Raises:
            KeyboardInterrupt: somebody has interrupted `run_worker(until_idle=True)`.
        """
        if self._rebound:
            raise RunByATest
        interrupted = run_in_foreground(self._made_worker(options, None), until_idle=until_idle)
        if interrupted and until_idle and not options.get("owns_process"):
            raise KeyboardInterrupt

    def _made_worker(self, choices: WorkerChoices, loop: "AbstractEventLoop | None") -> "Worker":
        self.import_included()
        # Only here: whoever just enqueues need not wait for all that a worker is made of.
        from penstock.engine.retention import Retention  # noqa: PLC0415
        from penstock.engine.worker import Worker  # noqa: PLC0415

        options = worker_options(self.settings.worker, choices)
        retention = Retention(
            executions=timedelta(days=self.settings.cleanup.completed_after_days),
            events=timedelta(days=self.settings.execution_events.retention_days),
        )
        return Worker(
            self.store,
            self._declared,
            options,
            loop=loop,
            retention=retention,
            hooks=self._hooks,
        )


def _included(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not is_missing(name, error):
            raise
        raise InvalidOption(
            "include",
            name,
            because=f"there is no module {error.name!r} on Python's path",
            instead="Write a module's name as an import would, or change to the directory it is in",
        ) from None


def _after_fork() -> None:
    for app in list(_apps):
        app._forget_lock()  # noqa: SLF001


os.register_at_fork(after_in_child=_after_fork)
