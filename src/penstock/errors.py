"""Everything that Penstock raises on purpose.

PenstockError
├── IllegalTransition            an event that the state machine does not allow
├── UnknownTask                  a task name that nobody registered
├── UnknownWorkflow              a workflow name that nobody registered
├── ExecutionNotFound            an id that the database does not know
├── KeyTaken                     a rerun whose key belongs to another live execution
├── TaskNotCompleted             an execution ended without a result
│   ├── TaskFailed               it failed for good
│   ├── TaskCancelled            somebody cancelled it
│   └── TaskSkipped              its rule said that it should not run
├── WorkflowNotCompleted         a run of a workflow ended otherwise
│   ├── WorkflowFailed           a task of it failed, or its time was up
│   └── WorkflowCancelled        somebody cancelled it
├── LeaseLost                    a running task that belongs to somebody else by now
├── NotBound                     a task that belongs to no App yet
└── StoreError                   the database could not do what was asked
    ├── StoreUnavailable         no answer: the work may or may not have been done
    │   ├── StoreBusy            another writer held SQLite's lock for too long
    │   ├── StoreOutOfReach      nobody answers under its address: nothing was written
    │   ├── StoreTakesNoWrites   its disk is full, or it is a replica
    │   ├── FileMisplaced        a SQLite file can be neither found nor made where the URL says
    │   └── NotSqlite            the file that the URL names is something else
    ├── StoreRefused             the database said no to this very data
    └── SchemaError              the tables are not what this version needs
        ├── SchemaMissing        there are none yet
        ├── SchemaBehind         they are older
        ├── SchemaAhead          they are newer than this version can work with
        └── SchemaChanged        a migration that ran is not the one that we ship

Modules that check one kind of value define its error beside it: `InvalidDuration`,
`InvalidRetry`, `InvalidPayload`, `InvalidId`, `InvalidTask`, `InvalidArguments`,
`ConnectionRefused`, `ClaimRefused`, `SettingsError`. What a task raises on purpose, `GiveUp` and
`RetryAfter`, stands beside the retry policy that listens to it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence


class PenstockError(Exception):
    """The root of all errors that Penstock raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default an exception is rebuilt by calling its class with its sentence, which
        # fails for a class that builds the sentence itself; they must cross processes.
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(
    kind: type[PenstockError], args: tuple[object, ...], facts: dict[str, object]
) -> PenstockError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


def nearest(name: str, among: Iterable[str]) -> str | None:
    """Return which of these was probably meant; None if it is like none of them."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is refused

    return next(iter(get_close_matches(name, list(among), n=1)), None)


class IllegalTransition(PenstockError):
    """An event that cannot happen to a task in this state."""

    def __init__(self, state: str | None, event: str, *, possible: Collection[str]) -> None:
        self.state = state
        self.event = event
        self.possible = tuple(possible)
        where = f"in state {state!r}" if state else "that does not exist yet"
        choices = ", ".join(sorted(self.possible)) or "nothing: this state is an end"
        super().__init__(f"{event!r} cannot happen to a task {where}. Possible there: {choices}.")


class UnknownTask(PenstockError):
    """An execution names a task that this process does not know."""

    def __init__(self, name: str, *, registered: Collection[str]) -> None:
        self.name = name
        guess = nearest(name, registered)
        next_step = (
            f"Did you mean {guess!r}?"
            if guess
            else "Name the module that defines it with --import, or in `App(include=[…])`."
        )
        super().__init__(
            f"No task named {name!r} among the {len(registered)} registered in this process. "
            f"{next_step}"
        )


class UnknownWorkflow(PenstockError):
    """A workflow name that nobody registered."""

    def __init__(self, name: str, *, registered: Collection[str]) -> None:
        self.name = name
        guess = nearest(name, registered)
        there = f"It has {', '.join(map(repr, registered))}." if registered else "It has none."
        next_step = f"Did you mean {guess!r}?" if guess else there
        super().__init__(f"This App has no workflow named {name!r}. {next_step}")


class ExecutionNotFound(PenstockError):
    """No execution has this id, or retention has removed it."""

    def __init__(self, execution_id: str) -> None:
        self.execution_id = execution_id
        super().__init__(
            f"No execution has the id {execution_id!r} in this database. It was never committed "
            "here, or retention has removed it; `penstock list` shows what there is."
        )


class KeyTaken(PenstockError):
    """A finished execution cannot live again while another one has its key."""

    def __init__(self, execution_id: str, *, key: str, holder: str) -> None:
        self.execution_id = execution_id
        self.key = key
        self.holder = holder
        super().__init__(
            f"Execution {execution_id} cannot be rerun: its key {key!r} belongs to the live "
            f"execution {holder}. Cancel that one first, or wait until it has finished."
        )


class TaskNotCompleted(PenstockError):
    """An execution ended without a result; `reason` is what its history says."""

    ended = "ended without a result"

    def __init__(self, task: str, execution_id: str, *, reason: Mapping[str, object]) -> None:
        self.task = task
        self.execution_id = execution_id
        self.reason = dict(reason)
        because = ": ".join(str(reason[part]) for part in ("type", "message") if reason.get(part))
        super().__init__(
            f"{task!r} {self.ended}{f' ({because})' if because else ''}. "
            f"`penstock history {execution_id}` tells the whole story."
        )


class TaskFailed(TaskNotCompleted):
    """The execution failed for good."""

    ended = "failed"


class TaskCancelled(TaskNotCompleted):
    """The execution was cancelled."""

    ended = "was cancelled"


class TaskSkipped(TaskNotCompleted):
    """The execution was skipped."""

    ended = "was skipped"


class WorkflowNotCompleted(PenstockError):
    """A run of a workflow did not complete."""

    ended = "did not complete"

    def __init__(
        self,
        workflow: str,
        run_id: str,
        *,
        failures: Mapping[str, str],
        reason: str | None = None,
    ) -> None:
        self.workflow = workflow
        self.run_id = run_id
        self.failures = dict(failures)  # the error of each task that failed
        self.reason = reason
        told = [f"{task!r} with {error}" for task, error in self.failures.items()]
        because = "; ".join([*([reason] if reason else []), *told])
        super().__init__(
            f"A run of {workflow!r} {self.ended}{f' ({because})' if because else ''}. "
            f"`penstock show {run_id}` shows where it stands."
        )


class WorkflowFailed(WorkflowNotCompleted):
    """The run failed: a task of it did, and nothing made up for it, or its time was up."""

    ended = "failed"


class WorkflowCancelled(WorkflowNotCompleted):
    """The run was cancelled."""

    ended = "was cancelled"


class LeaseLost(PenstockError):
    """The execution went to another worker, or was cancelled, while this one still ran it."""

    def __init__(self, execution_id: str, *, doing: str) -> None:
        self.execution_id = execution_id
        self.doing = doing
        super().__init__(
            f"This worker has lost its lease on {execution_id}, so it cannot {doing}: another "
            "worker runs it, or has run it. Roll back, and let this attempt end."
        )


class NotBound(PenstockError):
    """A task that belongs to no App has no database to be enqueued in."""

    def __init__(self, task: str) -> None:
        self.task = task
        super().__init__(
            f"Task {task!r} belongs to a Registry that no App includes, so there is no database "
            "to enqueue it in. Open one with `App(url, include=[registry])` first."
        )


class StoreError(PenstockError):
    """The database could not do what was asked."""


class StoreUnavailable(StoreError):
    """The database gave no answer, so the work may or may not have been done.

    Repeating the same request is safe: no operation of the store changes anything twice. But each
    `task.enqueue(…)` and `workflow.start(…)` makes a new request, and may so make a second
    execution; `app.enqueue_many([request])` with the same `task.request(…)` does not.
    """

    def __init__(self, doing: str, *, because: BaseException) -> None:
        self.doing = doing
        super().__init__(
            f"The database gave no answer while we tried to {doing}: {first_line(because)}. "
            "It is unknown whether it was done. Repeating the same request is safe; each enqueue() "
            "or start() makes a new one."
        )


class StoreBusy(StoreUnavailable):
    """Another connection kept SQLite's write lock for longer than we wait."""

    def __init__(self, doing: str, *, waited: float, because: BaseException) -> None:
        self.waited = waited
        super().__init__(doing, because=because)
        sentence = (
            f"Another connection has held the SQLite write lock for more than {waited:g} s, so we "
            f"could not {doing}; nothing was written. If this thread itself has a transaction "
            "open on the same file, pass it along with `using(connection=…)`."
        )
        self.args = (sentence,)


class LockKept(StoreBusy):
    """A task waited for its worker to write, and somebody kept SQLite's lock: perhaps the task."""

    def __init__(self, *, waited: float, because: BaseException) -> None:
        super().__init__("write what this task waits for", waited=waited, because=because)
        sentence = (
            f"This task has waited {waited:.3g} s for its worker to write down that it has taken a "
            "step, waits or goes on, and another connection kept the SQLite write lock; nothing "
            "was written. If that is a connection of this task's own, commit or roll back before "
            "it takes a step, waits or is deferred."
        )
        self.args = (sentence,)


class StoreOutOfReach(StoreUnavailable):
    """There is no connection to the database, so nothing was asked of it."""

    def __init__(self, doing: str, *, because: BaseException) -> None:
        super().__init__(doing, because=because)
        sentence = (
            f"The database cannot be reached, so we could not {doing}: {first_line(because)}. "
            "Nothing of that was written. Check the URL, whether the server runs, and whether it "
            "takes more connections."
        )
        self.args = (sentence,)


class StoreTakesNoWrites(StoreUnavailable):
    """The database answers, and writes nothing: its disk is full, or it is a replica."""

    def __init__(self, doing: str, *, instead: str, because: BaseException) -> None:
        super().__init__(doing, because=because)
        sentence = (
            f"The database takes no writes now, so we could not {doing}: {first_line(because)}. "
            f"Nothing of that was written. {instead}."
        )
        self.args = (sentence,)


class FileMisplaced(StoreUnavailable):
    """There can be no SQLite file where the URL names one."""

    def __init__(self, path: str, *, why: str, instead: str, because: BaseException) -> None:
        self.path = path
        self.why = why
        super().__init__(f"open {path}", because=because)
        self.args = (f"There can be no SQLite file {path!r}: {why}. {instead}.",)


class NotSqlite(StoreUnavailable):
    """A file that is there, and is no SQLite database."""

    def __init__(self, path: str, *, because: BaseException) -> None:
        self.path = path
        super().__init__(f"open {path}", because=because)
        sentence = (
            f"{path!r} is not a SQLite database. Check the URL: it must name the file that the "
            "workers use."
        )
        self.args = (sentence,)


class StoreRefused(StoreError):
    """The database said no to this very data: repeating the call cannot help."""

    def __init__(self, doing: str, *, because: BaseException) -> None:
        self.doing = doing
        self.reason = first_line(because)
        super().__init__(f"The database refused to {doing}: {self.reason}. Nothing was written.")


class SchemaError(StoreError):
    """The tables in the database are not what this version needs."""


class SchemaMissing(SchemaError):
    """The database has no Penstock tables yet."""

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(
            f"There are no Penstock tables in {where}. Run `penstock admin migrate`, call "
            "`app.migrate()`, or open the app with `migrate=True`."
        )


class SchemaBehind(SchemaError):
    """The tables are older than this version needs."""

    def __init__(self, where: str, *, found: int, needed: int) -> None:
        self.found = found
        self.needed = needed
        super().__init__(
            f"The tables in {where} have version {found}, and this Penstock needs {needed}. "
            "Run `penstock admin migrate`: workers of the version before go on meanwhile."
        )


class SchemaAhead(SchemaError):
    """The tables are newer than this version can work with."""

    def __init__(self, where: str, *, found: int, known: int, min_compatible: int) -> None:
        self.found = found
        self.known = known
        self.min_compatible = min_compatible
        super().__init__(
            f"The tables in {where} have version {found}, which works with Penstock schema "
            f"version {min_compatible} and later; this one knows {known}. Upgrade Penstock here."
        )


class SchemaChanged(SchemaError):
    """A migration that ran on this database differs from the one that we ship."""

    def __init__(self, where: str, *, versions: Sequence[int]) -> None:
        self.versions = tuple(versions)
        named = ", ".join(str(version) for version in versions)
        super().__init__(
            f"Migration {named} in {where} is not the one that this Penstock ships: its checksum "
            "differs. The tables were made by a changed copy; install the release that made them."
        )


def is_missing(module: str, error: ModuleNotFoundError) -> bool:
    """Whether the module itself is not there, or its package, and not one that it imports."""
    return error.name is not None and f"{module}.".startswith(f"{error.name}.")


def first_line(error: BaseException) -> str:
    """What an error says, in a line that a sentence can end with."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")
