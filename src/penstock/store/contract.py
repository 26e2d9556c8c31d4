"""What every store promises, whatever the database: few, coarse, batched operations.

Every change of state is one fenced write with its event beside it, in one transaction. So
is a whole call, unless it reaches over several runs or lets others go on: then what it had
not come to when it broke off is done by its repetition, or by the maintenance of any worker.
Repeating a call whose reply was lost changes nothing twice. `tests/contract` holds each store
to every sentence below.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from penstock.model.executions import (
    CancelAnswer,
    Claimed,
    Created,
    DismissAnswer,
    Lease,
    Memory,
    NewExecution,
    Promoted,
    Recovered,
    RerunAnswer,
    SignalAnswer,
    StepDone,
    Swept,
    Whereabouts,
)
from penstock.model.outcomes import Outcome
from penstock.model.runs import NewRun, RunAnswer
from penstock.model.wakeups import Chores, WakeUp
from penstock.model.workers import Beat, Peer, Pulse, WorkerInfo
from penstock.store.contract_reads import StoreReads


class WorkDistributor(Protocol):
    """Wakes a worker that has nothing to do."""

    def wait_for_work(self, timeout: float) -> WakeUp:
        """Return as soon as there may be something to do, or NOTHING after `timeout` seconds."""
        ...

    def close(self) -> None: ...


class Store(StoreReads, Protocol):
    """Every method may raise StoreUnavailable: the answer was lost, and repeating is safe."""

    # --- the tables -------------------------------------------------------------------

    def migrate(self) -> list[int]:
        """Bring the tables to this version; return the migrations that ran, often none.

        Two processes that migrate at once both succeed. Old workers go on meanwhile.
        """
        ...

    def check_schema(self) -> None:
        """Raise a SchemaError when this version cannot work with the tables as they are."""
        ...

    def close(self) -> None: ...

    @property
    def one_writer(self) -> bool:
        """Whether a transaction that writes keeps all others from writing until it ends."""
        ...

    # --- the life of a task -----------------------------------------------------------

    def create(self, executions: Sequence[NewExecution], *, notify: bool = True) -> list[Created]:
        """Write the executions, in this order, all or none; answer in the same order.

        Due ones are ready and in the outbox; future ones are scheduled; one whose serial
        has a live predecessor waits. An execution whose key another live execution of the
        task has is not written: the answer names the holder, with `created` False.
        An id that exists already is left as it is, and answered as created.
        """
        ...

    def create_on(
        self, connection: object, executions: Sequence[NewExecution], *, notify: bool = True
    ) -> list[Created]:
        """Do the same in the transaction of a caller's connection, and commit nothing.

        Rolled back, nothing was ever there; committed, workers are woken by the commit.

        Raises:
            ConnectionRefused: it cannot carry an execution: no connection at all, closed,
                in autocommit mode, async, or of another database. Nothing was written.
        """
        ...

    async def acreate_on(
        self, connection: object, executions: Sequence[NewExecution], *, notify: bool = True
    ) -> list[Created]:
        """Do the same on an async connection."""
        ...

    def claim(
        self,
        worker_id: str,
        *,
        queues: Sequence[str],
        tasks: Collection[str],
        limit: int,
        suspects: bool = True,
    ) -> list[Claimed]:
        """Hand out the most urgent ready tasks to `worker_id`, at most `limit` of them.

        While a lease lasts, no other call returns the same task. Every lease carries a
        fence higher than any before it for that task; later writes must present it.
        Queues are emptied in the order given, each by priority and then by sequence; a
        paused queue gives nothing. Suspects come first among their equals, never more
        than one in a call, and none without `suspects`. The answer keeps that order. It
        is empty when nothing visible is ready, or when the worker no longer counts as
        alive. Never waits for work to arrive.

        Raises:
            StoreUnavailable: the answer was lost. Tasks may have been handed out; if so,
                `reconcile` gives them back.
        """
        ...

    def start(
        self, leases: Sequence[Lease], *, started_at: Sequence[datetime] | None = None
    ) -> list[Lease]:
        """Record that these attempts have begun, then or now; return the leases that were lost.

        Needed only for what must be known before the outcome is: a started task is
        charged with a crash when its worker dies, one whose start is not known is not.
        """
        ...

    def settle(self, outcomes: Sequence[Outcome]) -> list[Lease]:
        """Write how these attempts ended; return the leases that were lost.

        A lost lease changes nothing. A repeated settlement of the same lease is a
        success and changes nothing. One outcome can fail only itself: data that the
        database refuses turns that execution into a failed one that says why.
        After a cancel request anything but completion ends as cancelled. What a task said
        should follow its end is created in the same transaction.
        """
        ...

    def defer(self, leases: Sequence[Lease], *, reason: str | None = None) -> list[Lease]:
        """Mark running tasks as deferred: they wait without a slot. Return the lost leases."""
        ...

    def undefer(self, leases: Sequence[Lease]) -> list[Lease]:
        """Mark deferred tasks as active again. Return the lost leases."""
        ...

    def promote(self, *, limit: int = 1000) -> Promoted:
        """Make scheduled tasks whose time has come ready, the longest due first."""
        ...

    def propagate(self, *, limit: int = 100) -> int:
        """Finish all that a settlement had to leave to others; return how many records.

        A serial's successor is released in the settlement itself, unless a caller's open
        transaction is just adding to that serial: then it is released here. Each transaction
        takes up to `limit` records of a kind, and the next follows while there are more.
        """
        ...

    def chores(self) -> Chores:
        """What `recover`, `propagate` and `promote` would find; one cheap read."""
        ...

    def distributor(self, queues: Callable[[], Sequence[str]]) -> WorkDistributor:
        """Who tells a worker of these queues that there may be work."""
        ...

    # --- runs of workflows --------------------------------------------------------------

    def start_runs(self, runs: Sequence[NewRun], *, notify: bool = True) -> None:
        """Write the runs with all of their tasks, all or none.

        Tasks without dependencies are ready, the others wait; each becomes ready, or is
        skipped, in the transaction that ends its last dependency. A run ends in the
        transaction that ends its last task. An id that exists already is left as it is.
        """
        ...

    def start_runs_on(
        self, connection: object, runs: Sequence[NewRun], *, notify: bool = True
    ) -> None:
        """Do the same in the transaction of a caller's connection, and commit nothing.

        Raises:
            ConnectionRefused: as in `create_on`.
        """
        ...

    async def astart_runs_on(
        self, connection: object, runs: Sequence[NewRun], *, notify: bool = True
    ) -> None: ...

    def pause_run(self, run_id: str) -> RunAnswer:
        """Let nothing of this run begin any more; what runs goes on, and settles."""
        ...

    def resume_run(self, run_id: str) -> RunAnswer:
        """Let it go on where it stood."""
        ...

    def cancel_run(self, run_id: str, *, reason: str | None = None) -> RunAnswer:
        """End what has not begun, and ask what runs to stop; the run ends with the last of it."""
        ...

    def rerun_run(self, run_id: str, *, tasks: Sequence[str] | None = None) -> RunAnswer:
        """Give these tasks of a run, and all downstream of them, a new life in one transaction.

        Without `tasks`: those that failed or were cancelled. What the others returned is kept,
        and a run that had ended is running again.
        """
        ...

    # --- what tasks remember and wait for -------------------------------------------------

    def store_steps(self, steps: Sequence[StepDone]) -> list[Lease]:
        """Keep results so that no later attempt need work for them; return the lost leases.

        The first result of a name stays.
        """
        ...

    def memory(self, execution_id: str) -> Memory:
        """The steps that a task has taken, and the signals that it was sent."""
        ...

    def start_child(self, lease: Lease, step: str, child: NewRun) -> str:
        """Start a run once for this execution and step; return its id, or that of the first one.

        Raises:
            LeaseLost: somebody else has the task; nothing was started.
        """
        ...

    def signal(self, execution_id: str, name: str, data: str) -> SignalAnswer:
        """Tell a task something (JSON text), once for each name, whether it waits for it or not.

        A task that waits for it is ready again; one that has ended is told nothing. The first
        signal of a name stays: "told" says that it is this one, sent now or, by somebody whose
        reply was lost, before; "already", that the task was told something else.
        """
        ...

    def signal_on(
        self, connection: object, execution_id: str, name: str, data: str, *, notify: bool = True
    ) -> SignalAnswer:
        """Do the same in the transaction of a caller's connection.

        Locks nothing that others need: the task goes on after the commit.

        Raises:
            ConnectionRefused: as in `create_on`.
        """
        ...

    async def asignal_on(
        self, connection: object, execution_id: str, name: str, data: str, *, notify: bool = True
    ) -> SignalAnswer: ...

    # --- from inside a task -----------------------------------------------------------

    def complete_on(
        self,
        connection: object,
        lease: Lease,
        *,
        result: str,
        started_at: datetime | None,
        writes: str | None = None,
    ) -> None:
        """Complete an execution in the transaction of the handler's own connection.

        Effect and completion commit together, or neither does. Locks nothing but the
        execution's own row: what depends on its end is released after the commit.
        `started_at` is told unless the start is known already.

        Raises:
            LeaseLost: somebody else has it; the caller must roll back.
            ConnectionRefused: as in `create_on`.
        """
        ...

    async def acomplete_on(
        self,
        connection: object,
        lease: Lease,
        *,
        result: str,
        started_at: datetime | None,
        writes: str | None = None,
    ) -> None: ...

    def once_on(self, connection: object, lease: Lease, name: str) -> bool:
        """True exactly once for this execution and name: in the transaction that commits it.

        Raises:
            LeaseLost, ConnectionRefused: as in `complete_on`.
        """
        ...

    async def aonce_on(self, connection: object, lease: Lease, name: str) -> bool: ...

    def read_back(self, leases: Sequence[Lease]) -> list[Whereabouts]:
        """What became of completions in handlers' own transactions; never waits for one.

        "settled": committed. "open": not decided yet. "undone": rolled back, the lease is
        still held. "lost": it went to somebody else.
        """
        ...

    def progress(self, lease: Lease, progress: str) -> bool:
        """Show how far a running task is (JSON text); False if the lease is lost. No event."""
        ...

    # --- workers ----------------------------------------------------------------------

    def register(self, worker: WorkerInfo) -> None:
        """Count the worker as alive from now on, and let others see what it knows."""
        ...

    def heartbeat(self, worker_id: str) -> Pulse:
        """Say that the worker lives; learn whether others still think so.

        A worker that was declared dead stays dead: it must register under a new id.
        """
        ...

    def cancel_requests(self, worker_id: str) -> list[str]:
        """The executions that this worker runs and somebody asks to stop; only a read."""
        ...

    def unregister(self, worker_id: str) -> None:
        """Forget a worker that stops in good order."""
        ...

    def workers(self) -> list[Peer]:
        """All that count as alive, the oldest first."""
        ...

    def recover(
        self, observer: str, *, dead: Collection[Beat] = (), limit: int = 1000
    ) -> list[Recovered]:
        """Declare these workers dead and take back what dead workers left, in batches.

        Only a living observer declares anything, and only a worker whose beat is still
        the one given: one that has beaten since is alive. A started task is charged with
        a crash and ends as failed (`task.abandoned`) at its `max_crashes`; one that had
        not started gets its attempt back. All come back suspect, at their old place.
        Call again while the answer has `limit` entries.
        """
        ...

    def reconcile(self, worker_id: str, held: Collection[Lease]) -> list[Lease]:
        """Give back what the database thinks this worker has and the worker knows nothing of.

        Returns the leases of `held` that are lost. Only for a moment when no claim of
        this worker is under way: its reply would still be unknown to `held`.
        """
        ...

    # --- people -----------------------------------------------------------------------

    def cancel(self, ids: Sequence[str], *, reason: str | None = None) -> list[CancelAnswer]:
        """End live executions at once, and ask running ones to stop ("requested")."""
        ...

    def rerun(self, ids: Sequence[str]) -> list[RerunAnswer]:
        """Give finished executions a new life with fresh retries, at the end of their queue.

        A task of a run takes all downstream of it along, as in `rerun_run`: as long as one of
        those has not ended, the answer is "live" and nothing is rerun.

        Raises:
            KeyTaken: another live execution has the key of one of them. None is rerun.
        """
        ...

    def hasten(self, ids: Sequence[str]) -> list[bool]:
        """Make scheduled executions ready now, as if their time had come; say which were.

        A retry is the same attempt as it would have been later. What waits for something else
        than its time, for a signal or a run, stays as it is.
        """
        ...

    def dismiss(self, ids: Sequence[str]) -> list[DismissAnswer]:
        """Remove failed executions and failed runs, each whole and with its history.

        All in one transaction. What has not failed is "kept"; so is a task of a run ("part"),
        which goes with its run.
        """
        ...

    def pause(self, queue: str) -> bool:
        """Stop handing out tasks of this queue, for all workers; False if it was paused."""
        ...

    def unpause(self, queue: str) -> bool:
        """Hand them out again; False if it was not paused."""
        ...

    def paused(self) -> list[str]: ...

    def sweep(
        self,
        *,
        older_than: timedelta,
        after: str | None = None,
        limit: int = 1000,
        dry_run: bool = False,
    ) -> Swept:
        """Remove executions that ended well or were cancelled longer ago; their events stay.

        Takes at most `limit` executions in one transaction, in the order of their ids, and
        says where to go on. Failed and live executions stay. A run goes whole, with all of its
        tasks however they ended, even if these are more than `limit`; of any other run nothing
        goes. With `dry_run` it counts what it would remove: tasks, and runs.
        """
        ...

    def sweep_events(
        self,
        *,
        older_than: timedelta,
        after: str | None = None,
        limit: int = 1000,
        dry_run: bool = False,
    ) -> Swept:
        """Remove the histories of executions that ended well or were cancelled longer ago.

        A history goes whole or not at all, whether its execution is still there or has been
        removed; that of a run with those of its tasks. Those of failed and live executions, and
        runs, stay. Looks at about `limit` events in
        one transaction, in the order of their roots, and says where to go on.
        """
        ...
