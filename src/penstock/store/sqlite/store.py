"""The store on SQLite.

One writer at a time, in this process and among all others, so there are no row locks:
whatever a transaction has read stays true until it commits. Operations that often find
nothing to do look first, without the write lock.
"""

import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from pathlib import Path
from sqlite3 import Connection, Cursor
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import StoreRefused
from penstock.model.clock import Clock
from penstock.model.events import EventType
from penstock.model.examinations import Examined
from penstock.model.executions import (
    CancelAnswer,
    Claimed,
    Created,
    Lease,
    NewExecution,
    Promoted,
    Recovered,
    RerunAnswer,
    SignalAnswer,
    StepDone,
    Swept,
    Whereabouts,
)
from penstock.model.gauges import Gauges
from penstock.model.health import Finding, Level
from penstock.model.outcomes import Outcome
from penstock.model.runs import NewRun, RunAnswer
from penstock.model.states import State, SubState
from penstock.model.waiting import QueueDepth, Waiting
from penstock.model.wakeups import Chores
from penstock.model.workers import Beat, Pulse, WorkerInfo
from penstock.store.attempting import Attempts
from penstock.store.batches import encode_strings, microseconds_at, moment_at, refuse_unstorable
from penstock.store.connections.callers import Callers
from penstock.store.connections.checking import OurFile
from penstock.store.contract import Store
from penstock.store.decoding import (
    cancel_answer,
    decode_peer,
    encode_worker,
    rerun_answer,
)
from penstock.store.judging import judge_schema
from penstock.store.low_water import Lane
from penstock.store.migrations import Applied, check_compatible, missing
from penstock.store.on_callers import OnCallers
from penstock.store.remembering import Remembers
from penstock.store.runs import RunWriter
from penstock.store.scripts import Row, Script, run, undone_on_error
from penstock.store.sql import load_statements
from penstock.store.sqlite import (
    claiming,
    completing,
    examining,
    explaining,
    inspecting,
    maintaining,
    migrating,
    people,
    running,
    settling,
    statistics,
    sweeping,
    waiting,
)
from penstock.store.sqlite.creating import create, refuse_long_numbers, write_executions
from penstock.store.sqlite.sharing import SharedFile
from penstock.store.sqlite.transaction import Transaction
from penstock.store.sqlite.wakeups import SqliteDistributor
from penstock.store.starting import start as start_runs
from penstock.store.steered import Steered

T = TypeVar("T")

_NEVER = -1


class SqliteStore(Steered, Remembers, Attempts, OnCallers):
    """Keeps executions in the tables of one SQLite file, or in memory (`:memory:`)."""

    one_writer = True

    def __init__(
        self, path: str | Path, *, clock: Clock | None = None, busy_timeout: float = 30.0
    ) -> None:
        self.statements = load_statements(migrating.PACKAGE)
        prepare = [self.statements["one_at_once_form"], self.statements["one_at_once_rule"]]
        self._at_once = self.statements["create_one_at_once"]
        self._values_of = attrgetter(*self._at_once.parameters[:-1])  # all but the moment
        self._file = SharedFile(str(path), busy_timeout=busy_timeout, prepare=prepare)
        self._clock = clock
        self._migrated_in = _NEVER  # the life of the file in which its tables were last checked
        self._scanner = claiming.Scanner()
        self._callers = Callers(OurFile(self._file.path, self.statements, self._making_tables))

    # --- the tables -------------------------------------------------------------------

    def migrate(self) -> list[int]:
        # Looked at first: the caller may have a transaction open, and there is one write lock.
        if not missing(migrating.shipped(), self._applied(), where=self._where):
            return []

        def migrate(connection: Connection) -> list[int]:
            transaction = self._on(connection)
            script = migrating.migrate(self.statements, where=self._where, now=transaction.now)
            return run(script, transaction.execute)

        return self._file.write("migrate the tables", migrate)

    def check_schema(self) -> None:
        """Tables that are missing or older are no fault: the next operation sees to them."""
        self._migrated_in = _NEVER
        applied = self._applied()
        if applied and not missing(migrating.shipped(), applied, where=self._where):
            check_compatible(migrating.shipped(), applied, where=self._where)

    def _be_migrated(self) -> None:
        life = self._file.life
        if self._migrated_in == life:
            return
        self.migrate()
        check_compatible(migrating.shipped(), self._applied(), where=self._where)
        self._migrated_in = life

    def _applied(self) -> list[Applied]:
        return self._file.read(
            "read the schema version",
            lambda connection: run(
                migrating.applied(self.statements), self._on(connection).execute
            ),
        )

    def _making_tables(self) -> Script[list[int]]:
        return migrating.migrate(self.statements, where=self._where, now=self._now())

    @property
    def _where(self) -> str:
        return f"the SQLite file {self._file.path!r}"

    def close(self) -> None:
        self._file.close()

    # --- the life of a task -----------------------------------------------------------

    def create(self, executions: Sequence[NewExecution], *, notify: bool = True) -> list[Created]:
        del notify  # whoever waits for work on SQLite watches the file
        if not executions:
            return []
        refuse_long_numbers(executions)
        if len(executions) == 1 and executions[0].is_free:
            refuse_unstorable(executions[0])
            try:
                return [self._create_one(executions[0])]
            except StoreRefused:
                pass  # perhaps it is there already: what follows finds out

        def write(transaction: Transaction) -> list[Created]:
            script = write_executions(self.statements, executions, now=transaction.now)
            return run(script, transaction.execute)

        return self._write("enqueue", write)

    def _create_one(self, new: NewExecution) -> Created:
        def write(cursor: Cursor) -> None:
            values = (*self._values_of(new), self._now())
            cursor.execute(self._at_once.question_marks, values)

        self._be_migrated()
        try:
            self._file.write_one("enqueue", write)
        finally:
            self._file.tell_of_work()
        return Created(new.id, created=True, state=State.READY)

    def _creating(
        self, executions: Sequence[NewExecution], *, notify: bool
    ) -> Script[list[Created]]:
        del notify
        return create(self.statements, executions, now=self._now())

    def _completing(
        self, lease: Lease, *, result: str, writes: str | None, started_at: datetime | None
    ) -> Script[None]:
        return completing.complete(
            self.statements,
            lease,
            result=result,
            writes=writes,
            started_at=started_at,
            now=self._now(),
        )

    def _doing_once(self, lease: Lease, name: str) -> Script[bool]:
        return completing.once(self.statements, lease, name, now=self._now())

    def read_back(self, leases: Sequence[Lease]) -> list[Whereabouts]:
        doing = "read completions back"
        committed = self._read(doing, lambda view: completing.read_back(view, leases))
        if "undone" not in committed:
            return committed
        # Undone, or not committed yet: only while nobody can write is there no doubt.
        decided = self._file.write_if_free(
            doing, lambda connection: completing.read_back(self._on(connection), leases)
        )
        return decided or ["open" if one == "undone" else one for one in committed]

    def progress(self, lease: Lease, progress: str) -> bool:
        return bool(
            self._write_quietly(
                "show progress",
                lambda transaction: transaction.rows(
                    "progress",
                    id=lease.execution_id,
                    fence=lease.fence,
                    worker_id=lease.worker_id,
                    progress=progress,
                ),
            )
        )

    def claim(
        self,
        worker_id: str,
        *,
        queues: Sequence[str],
        tasks: Collection[str],
        limit: int,
        suspects: bool = True,
    ) -> list[Claimed]:
        if limit < 1 or not tasks or not queues:
            return []
        wanted = claiming.Wanted(worker_id, queues, frozenset(tasks), limit, suspects)
        lanes = self._lanes(wanted)
        if not lanes:
            return []
        handed_out = self._write_quietly(
            "claim tasks", lambda transaction: claiming.claim(transaction, wanted, lanes)
        )
        return handed_out.claimed()

    def _lanes(self, wanted: claiming.Wanted) -> list[tuple[Lane, int]]:
        doing = "look for work"
        if not self._scanner.remembers(wanted.tasks):
            lanes = self._read_one(doing, lambda view: claiming.glance(view, wanted))
            if lanes is not None:
                return lanes
        return self._read(doing, lambda view: self._scanner.look(view, wanted))

    def _start(self, leases: Sequence[Lease], started_at: Sequence[datetime] | None) -> list[Lease]:
        return self._write_quietly(
            "record a start", lambda transaction: settling.start(transaction, leases, started_at)
        )

    def _settle(self, outcomes: Sequence[Outcome]) -> list[Lease]:
        doing = "settle"
        rounds = settling.prepare(outcomes)
        try:
            settlement = self._write_quietly(doing, lambda it: settling.settle(it, rounds))
        except settling.SomeAreLost:
            settlement = self._write_quietly(doing, lambda it: settling.settle_held(it, outcomes))
        if settlement.gave_back:
            self._scanner.forget()
        if any(one.concerns_others for one in rounds):
            self._file.tell_of_work()
        return settlement.lost

    def _change_sub_state(
        self, leases: Sequence[Lease], sub_state: SubState, event: EventType, data: str | None
    ) -> list[Lease]:
        return self._write(
            f"mark a task as {sub_state}",
            lambda transaction: settling.change_sub_state(
                transaction, leases, sub_state, event, data
            ),
        )

    def promote(self, *, limit: int = 1000) -> Promoted:
        idle = self._read("look for due tasks", maintaining.nothing_is_due)
        if idle is not None:
            return idle
        return self._write(
            "promote due tasks",
            lambda transaction: maintaining.promote(transaction, limit=limit),
        )

    def propagate(self, *, limit: int = 100) -> int:
        # A settlement releases its successors itself: nobody else can be in its way.
        del limit
        return 0

    def chores(self) -> Chores:
        return self._read("look for chores", maintaining.chores)

    def distributor(self, queues: Callable[[], Sequence[str]]) -> SqliteDistributor:
        del queues  # the file says that something has changed, not what
        return SqliteDistributor(self._file)

    # --- runs of workflows --------------------------------------------------------------

    def start_runs(self, runs: Sequence[NewRun], *, notify: bool = True) -> None:
        del notify  # whoever waits for work on SQLite watches the file
        if not runs:
            return

        def write(transaction: Transaction) -> None:
            writer = running.Writer(self.statements, now=transaction.now)
            run(start_runs(writer, runs), transaction.execute)

        self._write("start a workflow", write)

    def _starting(self, runs: Sequence[NewRun], *, notify: bool) -> Script[None]:
        del notify
        writer = running.Writer(self.statements, now=self._now())
        return undone_on_error(self.statements, start_runs(writer, runs))

    def _steer(self, doing: str, script: Callable[[RunWriter], Script[T]]) -> T:
        return self._write(doing, lambda transaction: running.switch(transaction, script))

    def cancel_run(self, run_id: str, *, reason: str | None = None) -> RunAnswer:
        return self._write(
            "cancel a run",
            lambda transaction: running.cancel(transaction, run_id, reason=reason, error=None),
        )

    # --- what tasks remember and wait for -------------------------------------------------

    def store_steps(self, steps: Sequence[StepDone]) -> list[Lease]:
        if not steps:
            return []
        return self._write_quietly("store steps", lambda it: waiting.store_steps(it, steps))

    def start_child(self, lease: Lease, step: str, child: NewRun) -> str:
        return self._write(
            "start a workflow", lambda it: waiting.start_child(it, lease, step, child)
        )

    def signal(self, execution_id: str, name: str, data: str) -> SignalAnswer:
        return self._write(
            "send a signal",
            lambda it: run(self._signalling(execution_id, name, data, notify=True), it.execute),
        )

    def _signalling(
        self, execution_id: str, name: str, data: str, *, notify: bool
    ) -> Script[SignalAnswer]:
        del notify  # whoever waits for work on SQLite watches the file
        return waiting.signal(self.statements, execution_id, name, data, now=self._now())

    # --- workers ----------------------------------------------------------------------

    def register(self, worker: WorkerInfo) -> None:
        encode_strings([worker.id])  # refuses what PostgreSQL would refuse
        self._file.expect_batches()
        info = encode_worker(worker)

        def write(transaction: Transaction) -> None:
            statistics.forget(transaction.connection)
            transaction.rows("register", worker_id=worker.id, info=info, now=transaction.now)

        self._write("register a worker", write)

    def heartbeat(self, worker_id: str) -> Pulse:
        def beat(transaction: Transaction) -> Pulse:
            statistics.forget(transaction.connection)
            beaten = transaction.rows("beat", worker_id=worker_id, now=transaction.now)
            cancelled = transaction.rows("asked_to_stop", worker_id=worker_id)
            peers = (decode_peer(row, moment_at) for row in transaction.rows("workers"))
            return Pulse(
                alive=bool(beaten),
                cancel_requested=tuple(row[0] for row in cancelled),
                peers=tuple(peer for peer in peers if peer.info.id != worker_id),
            )

        return self._write_quietly("send a heartbeat", beat)

    def unregister(self, worker_id: str) -> None:
        self._write("unregister a worker", lambda it: it.rows("unregister", worker_id=worker_id))

    def recover(
        self, observer: str, *, dead: Collection[Beat] = (), limit: int = 1000
    ) -> list[Recovered]:
        if not dead and not self._read("look for lost tasks", maintaining.has_orphans):
            return []
        recovered = self._write(
            "recover tasks",
            lambda transaction: maintaining.recover(transaction, observer, dead=dead, limit=limit),
        )
        if recovered:
            self._scanner.forget()
        return recovered

    def _compare(
        self, worker_id: str, leases: Sequence[Lease], batch: str
    ) -> tuple[list[Row], list[Lease]]:
        def compare(view: Transaction) -> tuple[list[Row], list[Lease]]:
            strangers = view.rows("strangers", worker_id=worker_id, batch=batch)
            return strangers, settling.lost(view, leases, batch)

        return self._read("compare leases", compare)

    # --- people -----------------------------------------------------------------------

    def _cancel(self, ids: Sequence[str], *, reason: str | None) -> list[CancelAnswer]:
        def withdraw(transaction: Transaction) -> dict[str, State]:
            withdrawn = people.withdraw(transaction, ids, reason=reason)
            script = running.go_on(self.statements, withdrawn.around, now=transaction.now)
            run(script, transaction.execute)
            running.cancel_children(transaction, withdrawn.gone)
            return withdrawn.states

        states = self._write("cancel", withdraw)
        return [cancel_answer(states.get(id_)) for id_ in ids]

    def _rerun_plain(self, ids: Sequence[str]) -> dict[str, RerunAnswer]:
        states = self._write("rerun", lambda transaction: people.rerun(transaction, ids))
        return {id_: rerun_answer(states.get(id_)) for id_ in ids}

    def hasten(self, ids: Sequence[str]) -> list[bool]:
        hastened = self._write(
            "run what is scheduled", lambda transaction: maintaining.hasten(transaction, ids)
        )
        return [id_ in hastened for id_ in ids]

    def pause(self, queue: str) -> bool:
        encode_strings([queue])  # refuses what PostgreSQL would refuse
        return self._write(
            "pause a queue",
            lambda transaction: bool(transaction.rows("pause", queue=queue, now=transaction.now)),
        )

    def unpause(self, queue: str) -> bool:
        return self._write(
            "resume a queue",
            lambda transaction: bool(transaction.rows("unpause", queue=queue)),
        )

    def sweep(
        self,
        *,
        older_than: timedelta,
        after: str | None = None,
        limit: int = 1000,
        dry_run: bool = False,
    ) -> Swept:
        old = sweeping.Old(older_than, after, limit)
        batch = self._read("look for old executions", lambda view: sweeping.executions(view, old))
        if not batch.ids and not batch.runs:
            return Swept(0, batch.next)
        if dry_run:
            removed = self._read("count executions", lambda view: sweeping.count(view, batch))
        else:
            removed = self._write("sweep executions", lambda it: sweeping.sweep(it, old, batch))
        return Swept(removed, batch.next)

    def sweep_events(
        self,
        *,
        older_than: timedelta,
        after: str | None = None,
        limit: int = 1000,
        dry_run: bool = False,
    ) -> Swept:
        old = sweeping.Old(older_than, after, limit)
        batch = self._read("look for old events", lambda view: sweeping.roots(view, old))
        if not batch.ids:
            return Swept(0, batch.next)
        if dry_run:
            removed = self._read("count events", lambda it: sweeping.count_events(it, batch))
        else:
            removed = self._write("sweep events", lambda it: sweeping.sweep_events(it, old, batch))
        return Swept(removed, batch.next)

    # --- reads ------------------------------------------------------------------------

    def depths(self) -> list[QueueDepth]:
        return self._read("look at the queues", explaining.depths)

    def gauges(self, *, lease: timedelta = timedelta(seconds=15)) -> Gauges:
        return self._read("count live work", lambda view: explaining.gauges(view, lease))

    def examine(
        self, after: str | None = None, *, until: str | None = None, limit: int = 1000
    ) -> Examined:
        return self._read(
            "examine executions",
            lambda view: examining.examine(view, after=after, until=until, limit=limit),
        )

    def explain_waiting(self, execution_id: str) -> Waiting | None:
        return self._read("explain", lambda view: explaining.explain(view, execution_id))

    def inspect(self, *, lease: timedelta = timedelta(seconds=15)) -> list[Finding]:
        schema = judge_schema(
            migrating.shipped(), self._applied(), where=self._where, migrates_itself=True
        )
        if schema.level is not Level.OK:
            return [schema]
        path = self._file.path
        rest = self._read("inspect", lambda it: list(inspecting.inspect(it, path, lease=lease)))
        return [schema, *rest]

    # --- how it is said ---------------------------------------------------------------

    def _write(self, doing: str, work: Callable[[Transaction], T]) -> T:
        """Write something that may concern a worker, and wake those of this process."""
        try:
            return self._write_quietly(doing, work)
        finally:  # interrupted, it may be written all the same
            self._file.tell_of_work()

    def _write_quietly(self, doing: str, work: Callable[[Transaction], T]) -> T:
        """Write what concerns nobody else, as a worker does all the time."""
        self._be_migrated()
        return self._file.write(doing, lambda connection: work(self._on(connection)))

    def _read(self, doing: str, work: Callable[[Transaction], T]) -> T:
        self._be_migrated()
        return self._file.read(doing, lambda connection: work(self._on(connection)))

    def _read_one(self, doing: str, work: Callable[[Transaction], T]) -> T:
        self._be_migrated()
        return self._file.read_one(doing, lambda connection: work(self._on(connection)))

    def _rows(self, doing: str, name: str, /, **parameters: object) -> list[Row]:
        return self._read_one(doing, lambda view: view.rows(name, **parameters))

    def _count_states(self) -> list[Row]:
        return self._rows("count executions", "counts")

    @staticmethod
    def _moment(stored: int) -> datetime:
        return moment_at(stored)

    @staticmethod
    def _list(ids: Sequence[str]) -> str:
        return encode_strings(ids)

    def _on(self, connection: Connection) -> Transaction:
        # Asked for under the lock, so that later transactions have later moments.
        return Transaction(connection, self.statements, self._now())

    def _now(self) -> int:
        """Microseconds since 1970: on SQLite the host's clock is the database's."""
        if self._clock is None:
            return time.time_ns() // 1000
        return microseconds_at(self._clock.now())


if TYPE_CHECKING:
    _keeps_the_contract: type[Store] = SqliteStore
