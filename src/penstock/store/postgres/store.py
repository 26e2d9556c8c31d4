"""The store on PostgreSQL.

Lock order everywhere: propagation records, run rows in a statement of their own, serial
rows, outbox rows, task rows by id, events. Whatever picks its rows by itself (claim, promote,
recover, sweep, propagate) steps over locked ones and so never waits. The hot operations are
one statement, and so one round trip, each.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from psycopg import Pipeline

from penstock.errors import StoreRefused, StoreUnavailable
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
from penstock.model.states import SubState
from penstock.model.waiting import QueueDepth, Waiting
from penstock.model.wakeups import Chores
from penstock.model.workers import Beat, Pulse, WorkerInfo
from penstock.store.attempting import Attempts
from penstock.store.connections.callers import Callers
from penstock.store.connections.checking import OurSchema
from penstock.store.contract import Store
from penstock.store.decoding import (
    OUT_OF_TIME,
    cancel_answer,
    decode_peer,
    encode_worker,
    rerun_answer,
)
from penstock.store.judging import judge_schema
from penstock.store.low_water import LowWaterMarks
from penstock.store.migrations import Applied, check_compatible
from penstock.store.on_callers import OnCallers
from penstock.store.postgres import (
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
    sweeping,
    waiting,
)
from penstock.store.postgres.connecting import Connections
from penstock.store.postgres.creating import (
    IN_A_STATEMENT,
    create,
    create_fresh,
    create_many,
    create_ready,
)
from penstock.store.postgres.deadlines import WatchedConnection
from penstock.store.postgres.session import Session
from penstock.store.postgres.wakeups import PostgresDistributor
from penstock.store.remembering import Remembers
from penstock.store.runs import RunWriter
from penstock.store.scripts import Row, Script, run
from penstock.store.sql import load_statements
from penstock.store.starting import start as start_runs
from penstock.store.steered import Steered

T = TypeVar("T")

CANCEL_TRIES = 10
LONGEST_PULSE = 10.0


class PostgresStore(Steered, Remembers, Attempts, OnCallers):
    """Keeps executions in the tables of one schema of a PostgreSQL database."""

    one_writer = False

    def __init__(
        self,
        url: str,
        *,
        schema: str = "penstock",
        clock: Clock | None = None,
        notify: bool = True,
        listen_url: str | None = None,
    ) -> None:
        self._listen_url = listen_url or url
        self._connections = Connections(url)
        # A heartbeat waits for nobody, and not for long.
        self._pulse = Connections(url, most=1, patience=LONGEST_PULSE)
        self._schema = schema
        self._clock = clock
        self._notify = notify
        self._marks = LowWaterMarks()
        self.statements = load_statements(migrating.PACKAGE, schema=schema)
        self._callers = Callers(OurSchema(self.statements, self._database_id))

    # --- the tables -------------------------------------------------------------------

    def migrate(self) -> list[int]:
        return self._run(
            "migrate the tables",
            lambda session: migrating.migrate(session, schema=self._schema, where=self._where),
        )

    def check_schema(self) -> None:
        check_compatible(migrating.shipped(), self._applied(), where=self._where)

    def _applied(self) -> list[Applied]:
        return self._run("read the schema version", migrating.applied)

    def _database_id(self) -> str:
        self.check_schema()
        return self._applied()[0].database_id

    @property
    def _where(self) -> str:
        return f"the PostgreSQL schema {self._schema!r}"

    def close(self) -> None:
        self._connections.close()
        self._pulse.close()

    # --- the life of a task -----------------------------------------------------------

    def create(self, executions: Sequence[NewExecution], *, notify: bool = True) -> list[Created]:
        if not executions:
            return []
        notify = notify and self._notify
        free = all(new.key is None and new.serial is None for new in executions)

        def write(session: Session) -> list[Created]:
            created = None
            if len(executions) > IN_A_STATEMENT:
                if free and Pipeline.is_supported():
                    created = create_many(session, executions, notify=notify)
            elif len(executions) == 1 and executions[0].is_free:
                created = create_fresh(session, executions[0], notify=notify)
            elif all(new.is_free for new in executions):
                created = create_ready(session, executions, notify=notify)
            if created is not None:
                return created
            script = self._creating(executions, notify=notify)
            if free:
                return run(script, session.execute)
            with session.transaction():
                return run(script, session.execute)

        return self._run("enqueue", write)

    def _creating(
        self, executions: Sequence[NewExecution], *, notify: bool
    ) -> Script[list[Created]]:
        return create(self.statements, executions, now=self._now(), notify=notify and self._notify)

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
            notify=self._notify,
        )

    def _doing_once(self, lease: Lease, name: str) -> Script[bool]:
        return completing.once(self.statements, lease, name, now=self._now())

    def read_back(self, leases: Sequence[Lease]) -> list[Whereabouts]:
        return self._run(
            "read completions back", lambda session: completing.read_back(session, leases)
        )

    def progress(self, lease: Lease, progress: str) -> bool:
        return bool(
            self._rows(
                "show progress",
                "progress",
                id=lease.execution_id,
                fence=lease.fence,
                worker_id=lease.worker_id,
                progress=progress,
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
        marks = self._marks.of(wanted.tasks)
        return self._run(
            "claim tasks",
            lambda session: claiming.claim(session, wanted, marks),
            repeatable=False,
        )

    def _start(self, leases: Sequence[Lease], started_at: Sequence[datetime] | None) -> list[Lease]:
        return self._run(
            "record a start", lambda session: settling.start(session, leases, started_at)
        )

    def _settle(self, outcomes: Sequence[Outcome]) -> list[Lease]:
        return self._run("settle", lambda session: settling.settle(session, outcomes))

    def _change_sub_state(
        self, leases: Sequence[Lease], sub_state: SubState, event: EventType, data: str | None
    ) -> list[Lease]:
        return self._run(
            f"mark a task as {sub_state}",
            lambda session: settling.change_sub_state(session, leases, sub_state, event, data),
        )

    def promote(self, *, limit: int = 1000) -> Promoted:
        promoted, overdue = self._run(
            "promote due tasks", lambda session: maintaining.promote(session, limit=limit)
        )
        if overdue:
            self._end_overdue_runs(limit=limit)
        return promoted

    def propagate(self, *, limit: int = 100) -> int:
        done = 0
        while True:
            batch = self._run(
                "release successors", lambda session: maintaining.propagate(session, limit=limit)
            )
            done += batch.done
            # Each in a transaction of its own, whose locks come in the right order. It leaves
            # word for the runs that it was waiting for itself, which the next turn finds.
            for orphan in batch.orphans:
                self._cancel_run(orphan)
            # When all of a batch is held up by others, asking again at once would not help.
            if not batch.orphans and not (batch.full and batch.done):
                return done

    def _propagate_if_possible(self) -> None:
        """Do it at once, after what a caller has asked for.

        That is written, and must not look as if it were not. Workers find what is left.
        """
        with suppress(StoreUnavailable):
            self.propagate()

    def chores(self) -> Chores:
        (row,) = self._rows("look for chores", "chores", now=self._now())
        return Chores(*row)

    def distributor(self, queues: Callable[[], Sequence[str]]) -> PostgresDistributor:
        def channels() -> list[str]:
            rows = self._rows("name the channels", "wake_channels", queues=list(queues()))
            return [row[0] for row in rows]

        return PostgresDistributor(self._listen_url if self._notify else None, channels)

    # --- runs of workflows --------------------------------------------------------------

    def start_runs(self, runs: Sequence[NewRun], *, notify: bool = True) -> None:
        if not runs:
            return

        def write(session: Session) -> None:
            with session.transaction():
                run(self._starting(runs, notify=notify), session.execute)

        self._run("start a workflow", write)

    def _starting(self, runs: Sequence[NewRun], *, notify: bool) -> Script[None]:
        writer = running.Writer(self.statements, now=self._now(), notify=notify and self._notify)
        return start_runs(writer, runs)

    def _steer(self, doing: str, script: Callable[[RunWriter], Script[T]]) -> T:
        return self._run(doing, lambda session: running.switch(session, script))

    def cancel_run(self, run_id: str, *, reason: str | None = None) -> RunAnswer:
        answer = self._cancel_run(running.Cancellation(run_id, reason))
        self._propagate_if_possible()
        return answer

    def _cancel_run(self, wanted: running.Cancellation) -> RunAnswer:
        answer: RunAnswer | None = None
        for tries_left in reversed(range(CANCEL_TRIES)):
            answer = self._run(
                "cancel a run",
                lambda session, last_try=tries_left == 0: running.cancel(  # type: ignore[misc]
                    session, wanted, last_try=last_try
                ),
            )
            if answer is not None:
                break
        return answer or "unknown"

    def _end_overdue_runs(self, *, limit: int) -> None:
        overdue = self._run(
            "look for overdue runs", lambda it: maintaining.overdue_runs(it, limit=limit)
        )
        for run_id in overdue:
            self._cancel_run(running.Cancellation(run_id, "the run is out of time", OUT_OF_TIME))
        self._propagate_if_possible()

    # --- what tasks remember and wait for -------------------------------------------------

    def store_steps(self, steps: Sequence[StepDone]) -> list[Lease]:
        if not steps:
            return []
        return self._run("store steps", lambda session: waiting.store_steps(session, steps))

    def start_child(self, lease: Lease, step: str, child: NewRun) -> str:
        writer = running.Writer(self.statements, now=self._now(), notify=self._notify)
        return self._run(
            "start a workflow",
            lambda session: waiting.start_child(session, writer, lease, step, child),
        )

    def signal(self, execution_id: str, name: str, data: str) -> SignalAnswer:
        answer = self._run(
            "send a signal",
            lambda it: run(self._signalling(execution_id, name, data, notify=True), it.execute),
        )
        self._propagate_if_possible()
        return answer

    def _signalling(
        self, execution_id: str, name: str, data: str, *, notify: bool
    ) -> Script[SignalAnswer]:
        return waiting.signal(
            self.statements,
            execution_id,
            name,
            data,
            now=self._now(),
            notify=notify and self._notify,
        )

    # --- workers ----------------------------------------------------------------------

    def register(self, worker: WorkerInfo) -> None:
        self._rows(
            "register a worker",
            "register",
            worker_id=worker.id,
            info=encode_worker(worker),
            now=self._now(),
        )

    def heartbeat(self, worker_id: str) -> Pulse:
        ((alive, cancelled, *peers),) = self._pulse.run(
            "send a heartbeat",
            lambda it: self._on(it).rows("beat", worker_id=worker_id, now=self._now()),
        )
        return Pulse(
            alive=alive,
            cancel_requested=tuple(cancelled),
            peers=tuple(decode_peer(row) for row in zip(*peers, strict=True)),
        )

    def unregister(self, worker_id: str) -> None:
        self._rows("unregister a worker", "unregister", worker_id=worker_id)

    def recover(
        self, observer: str, *, dead: Collection[Beat] = (), limit: int = 1000
    ) -> list[Recovered]:
        recovered = self._run(
            "recover tasks",
            lambda session: maintaining.recover(session, observer, dead=dead, limit=limit),
        )
        if recovered:
            self._propagate_if_possible()
        return recovered

    def _compare(
        self, worker_id: str, leases: Sequence[Lease], batch: str
    ) -> tuple[list[Row], list[Lease]]:
        def compare(session: Session) -> tuple[list[Row], list[Lease]]:
            strangers = session.rows("strangers", worker_id=worker_id, batch=batch)
            return strangers, settling.lost(session, leases, batch)

        return self._run("compare leases", compare)

    # --- people -----------------------------------------------------------------------

    def _cancel(self, ids: Sequence[str], *, reason: str | None) -> list[CancelAnswer]:
        wanted, found = sorted(set(ids)), None
        for tries_left in reversed(range(CANCEL_TRIES)):
            found = self._run(
                "cancel",
                lambda session, last_try=tries_left == 0: people.cancel(  # type: ignore[misc]
                    session, wanted, reason=reason, last_try=last_try
                ),
            )
            if found is not None:
                break
        self._propagate_if_possible()
        return [cancel_answer((found or {}).get(id_)) for id_ in ids]

    def _rerun_plain(self, ids: Sequence[str]) -> dict[str, RerunAnswer]:
        wanted = sorted(set(ids))
        try:
            states = self._run("rerun", lambda session: people.rerun(session, wanted))
        except StoreRefused:
            # Somebody took the key between the look and the write: look again, and say who.
            states = self._run("rerun", lambda session: people.rerun(session, wanted))
        return {id_: rerun_answer(states.get(id_)) for id_ in ids}

    def hasten(self, ids: Sequence[str]) -> list[bool]:
        wanted = sorted(set(ids))
        hastened = self._run(
            "run what is scheduled", lambda session: maintaining.hasten(session, wanted)
        )
        return [id_ in hastened for id_ in ids]

    def pause(self, queue: str) -> bool:
        return bool(self._rows("pause a queue", "pause", queue=queue, now=self._now()))

    def unpause(self, queue: str) -> bool:
        return bool(self._rows("resume a queue", "unpause", queue=queue))

    def sweep(
        self,
        *,
        older_than: timedelta,
        after: str | None = None,
        limit: int = 1000,
        dry_run: bool = False,
    ) -> Swept:
        return self._run(
            "sweep executions",
            lambda session: sweeping.sweep(
                session, older_than=older_than, after=after, limit=limit, dry_run=dry_run
            ),
        )

    def sweep_events(
        self,
        *,
        older_than: timedelta,
        after: str | None = None,
        limit: int = 1000,
        dry_run: bool = False,
    ) -> Swept:
        return self._run(
            "sweep events",
            lambda session: sweeping.sweep_events(
                session, older_than=older_than, after=after, limit=limit, dry_run=dry_run
            ),
        )

    # --- reads ------------------------------------------------------------------------

    def depths(self) -> list[QueueDepth]:
        return self._run("look at the queues", explaining.depths)

    def gauges(self, *, lease: timedelta = timedelta(seconds=15)) -> Gauges:
        return self._run("count live work", lambda session: explaining.gauges(session, lease))

    def examine(
        self, after: str | None = None, *, until: str | None = None, limit: int = 1000
    ) -> Examined:
        return self._run(
            "examine executions",
            lambda session: examining.examine(session, after=after, until=until, limit=limit),
        )

    def explain_waiting(self, execution_id: str) -> Waiting | None:
        return self._run("explain", lambda session: explaining.explain(session, execution_id))

    def inspect(self, *, lease: timedelta = timedelta(seconds=15)) -> list[Finding]:
        schema = judge_schema(migrating.shipped(), self._applied(), where=self._where)
        if schema.level is not Level.OK:
            return [schema]
        listening = inspecting.listens(
            self._listen_url if self._notify else None,
            lambda channel: self._rows("notify ourselves", "inspect_knock", channel=channel),
        )
        rest = self._run("inspect", lambda it: list(inspecting.inspect(it, lease=lease)))
        return [schema, *rest, listening]

    # --- how it is said ---------------------------------------------------------------

    def _run(self, doing: str, work: Callable[[Session], T], *, repeatable: bool = True) -> T:
        return self._connections.run(doing, lambda it: work(self._on(it)), repeatable=repeatable)

    def _rows(self, doing: str, name: str, /, **parameters: object) -> list[Row]:
        return self._run(doing, lambda session: session.rows(name, **parameters))

    def _count_states(self) -> list[Row]:
        return self._run("count executions", _count)

    @staticmethod
    def _moment(stored: datetime) -> datetime:
        return stored

    @staticmethod
    def _list(ids: Sequence[str]) -> list[str]:
        return list(ids)

    def _on(self, connection: WatchedConnection) -> Session:
        return Session(connection, self.statements, self._now(), self._notify)

    def _now(self) -> datetime | None:
        return self._clock.now() if self._clock else None


def _count(session: Session) -> list[Row]:
    with session.transaction():
        session.connection.execute("SET LOCAL enable_seqscan = on")  # it does read everything
        return session.rows("counts")


if TYPE_CHECKING:
    _keeps_the_contract: type[Store] = PostgresStore
