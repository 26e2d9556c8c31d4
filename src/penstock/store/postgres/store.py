"""The store on PostgreSQL.

Lock order everywhere: serial rows, outbox rows, task rows by id, events. Whatever picks
its rows by itself (claim, promote, recover, sweep, propagate) steps over locked ones and
so never waits. The hot operations are one statement, and so one round trip, each.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from penstock.errors import KeyTaken, StoreRefused
from penstock.model.clock import Clock
from penstock.model.events import Event, EventType
from penstock.model.executions import (
    CancelAnswer,
    Claimed,
    Created,
    Lease,
    NewExecution,
    Promoted,
    Recovered,
    RerunAnswer,
    Snapshot,
    Swept,
    Waiting,
)
from penstock.model.outcomes import Outcome, Released
from penstock.model.states import FINAL, State, SubState
from penstock.model.wakeups import Chores
from penstock.model.workers import Beat, Peer, Pulse, WorkerInfo
from penstock.store.batches import encode_leases, encode_outcomes, encode_strings, event_data
from penstock.store.decoding import (
    ABANDONED,
    HIGHEST_ID,
    LOWEST_ID,
    cancel_answer,
    decode_event,
    decode_peer,
    decode_snapshot,
    encode_worker,
    rerun_answer,
)
from penstock.store.follow_ups import following
from penstock.store.low_water import Lane, LowWater, LowWaterMarks, order_of
from penstock.store.migrations import (
    Applied,
    check_compatible,
    load_migrations,
    missing,
)
from penstock.store.postgres.connecting import Connection, Connections
from penstock.store.postgres.creating import create
from penstock.store.postgres.wakeups import PostgresDistributor
from penstock.store.connections.callers import Callers
from penstock.store.scripts import Row, Script, Step, run
from penstock.store.settling import settle_each
from penstock.store.sql import in_schema, load_statements

PACKAGE = "penstock.store.postgres"
MIGRATION_LOCK_TIMEOUT = "2s"


class PostgresStore:
    """Keeps executions in the tables of one schema of a PostgreSQL database."""

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
        self._pulse = Connections(url, most=1)  # a heartbeat waits for nobody
        self._schema = schema
        self._clock = clock
        self._notify = notify
        self._marks = LowWaterMarks()
        self.statements = load_statements(PACKAGE, schema=schema)
        self._callers = Callers("postgresql", self.statements, self._database_id)

    # --- the tables -------------------------------------------------------------------

    def migrate(self) -> list[int]:
        return self._connections.run("migrate the tables", self._migrate)

    def _migrate(self, connection: Connection) -> list[int]:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = '{MIGRATION_LOCK_TIMEOUT}'")
            self._rows(connection, "lock_migrations")
            applied = self._applied(connection)
            to_run = missing(load_migrations(PACKAGE), applied, where=self._where)
            database_id = applied[0].database_id if applied else str(uuid4())
            if to_run and not applied:
                connection.execute(self.statements["create_schema"].sql)
            for migration in to_run:
                connection.execute(in_schema(migration.sql, self._schema))
                self._rows(
                    connection,
                    "record_migration",
                    version=migration.version,
                    name=migration.name,
                    checksum=migration.checksum,
                    min_compatible=migration.min_compatible,
                    database_id=database_id,
                )
            return [migration.version for migration in to_run]

    def check_schema(self) -> None:
        applied = self._connections.run("read the schema version", self._applied)
        check_compatible(load_migrations(PACKAGE), applied, where=self._where)

    def _applied(self, connection: Connection) -> list[Applied]:
        ((has_tables,),) = self._rows(connection, "has_tables")
        if not has_tables:
            return []
        return [Applied(*row) for row in self._rows(connection, "versions")]

    def _database_id(self) -> str:
        self.check_schema()
        return self._connections.run("read the schema version", self._applied)[0].database_id

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
        script = self._creating(executions, notify=notify)
        plain = all(new.key is None and new.serial is None for new in executions)

        def write(connection: Connection) -> list[Created]:
            def execute(step: Step) -> list[Row]:
                return self._rows(connection, step.statement.name, **step.parameters)

            if plain:
                return run(script, execute)
            with connection.transaction():
                return run(script, execute)

        return self._connections.run("enqueue", write)

    def create_on(
        self, connection: object, executions: Sequence[NewExecution], *, notify: bool = True
    ) -> list[Created]:
        return self._callers.run(connection, self._creating(executions, notify=notify))

    async def acreate_on(
        self, connection: object, executions: Sequence[NewExecution], *, notify: bool = True
    ) -> list[Created]:
        return await self._callers.arun(connection, self._creating(executions, notify=notify))

    def _creating(
        self, executions: Sequence[NewExecution], *, notify: bool
    ) -> Script[list[Created]]:
        return create(self.statements, executions, now=self._now(), notify=notify and self._notify)

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
        known = frozenset(tasks)
        marks = self._marks.of(known)

        def scan(connection: Connection) -> list[Claimed]:
            claimed: list[Claimed] = []
            for lanes in marks.lanes(queues, suspects=suspects):
                left = limit - len(claimed)
                claimed += self._claim_lanes(connection, worker_id, known, marks, lanes, left)
                if len(claimed) == limit or any(one.suspect for one in claimed):
                    break
            return sorted(claimed, key=order_of(queues))

        def claim(connection: Connection) -> list[Claimed]:
            if not marks.thorough_scan_is_due and (claimed := scan(connection)):
                return claimed
            with marks.thorough_scan(Lane(*row) for row in self._rows(connection, "lanes")):
                return scan(connection)

        return self._connections.run("claim tasks", claim, repeatable=False)

    def _claim_lanes(
        self,
        connection: Connection,
        worker_id: str,
        tasks: frozenset[str],
        marks: LowWater,
        lanes: Sequence[tuple[Lane, int]],
        limit: int,
    ) -> list[Claimed]:
        if not lanes:
            return []
        rows = self._rows(
            connection,
            "claim_ready",
            worker_id=worker_id,
            queues=[lane.queue for lane, _ in lanes],
            priorities=[lane.priority for lane, _ in lanes],
            suspects=[lane.suspect for lane, _ in lanes],
            low_waters=[mark for _, mark in lanes],
            most=[1 if lane.suspect else limit for lane, _ in lanes],
            tasks=list(tasks),
            limit=limit,
            now=self._now(),
        )
        for row in reversed(rows):
            marks.found(lanes[row[-1] - 1][0], row[6])
        return [Claimed(Lease(row[0], row[1], worker_id), *row[2:-1]) for row in rows]

    def start(
        self, leases: Sequence[Lease], *, started_at: Sequence[datetime] | None = None
    ) -> list[Lease]:
        def start(connection: Connection) -> list[Lease]:
            batch = encode_leases(leases, started_at)
            self._rows(connection, "start", batch=batch, now=self._now())
            return self._lost(connection, leases, batch)

        return self._connections.run("record a start", start) if leases else []

    def settle(self, outcomes: Sequence[Outcome]) -> list[Lease]:
        return settle_each(outcomes, self._settle) if outcomes else []

    def _settle(self, outcomes: Sequence[Outcome]) -> list[Lease]:
        batch = encode_outcomes(outcomes)
        serials = {outcome.serial for outcome in outcomes if outcome.serial is not None}
        followed = {
            n: outcome.lease.execution_id
            for n, outcome in enumerate(outcomes)
            if outcome.has_follow_ups
        }

        def settle(connection: Connection) -> list[Lease]:
            rows = self._rows(
                connection, "settle", batch=batch, now=self._now(), notify=self._notify
            )
            settled = {row[0] for row in rows}
            self._follow(connection, [id_ for n, id_ in followed.items() if n in settled])
            if len(settled) < len(outcomes):
                settled |= {row[0] for row in self._rows(connection, "settled_before", batch=batch)}
            return [outcome.lease for n, outcome in enumerate(outcomes) if n not in settled]

        def settle_with_others(connection: Connection) -> list[Lease]:
            with connection.transaction():
                lost = settle(connection)
                self._advance(connection, serials)
                return lost

        touches_others = serials or followed
        return self._connections.run("settle", settle_with_others if touches_others else settle)

    def _follow(self, connection: Connection, ended: Sequence[str]) -> None:
        """Enqueue what follows these ends, in the transaction that ended them."""
        if ended and (found := following(self._rows(connection, "ended", ids=ended))):
            script = self._creating(found, notify=True)
            run(script, lambda step: self._rows(connection, step.statement.name, **step.parameters))

    def defer(self, leases: Sequence[Lease], *, reason: str | None = None) -> list[Lease]:
        data = event_data(reason=reason)
        return self._change_sub_state(leases, SubState.DEFERRED, EventType.DEFERRED, data)

    def undefer(self, leases: Sequence[Lease]) -> list[Lease]:
        return self._change_sub_state(leases, SubState.ACTIVE, EventType.RESUMED, None)

    def _change_sub_state(
        self, leases: Sequence[Lease], sub_state: SubState, event: EventType, data: str | None
    ) -> list[Lease]:
        def change(connection: Connection) -> list[Lease]:
            batch = encode_leases(leases)
            self._rows(
                connection,
                "change_sub_state",
                batch=batch,
                sub_state=sub_state.value,
                event=event.value,
                data=data,
                now=self._now(),
            )
            return self._lost(connection, leases, batch)

        return self._connections.run(f"mark a task as {sub_state}", change) if leases else []

    def _lost(self, connection: Connection, leases: Sequence[Lease], batch: str) -> list[Lease]:
        held = {row[0] for row in self._rows(connection, "held", batch=batch)}
        return [lease for n, lease in enumerate(leases) if n not in held]

    def promote(self, *, limit: int = 1000) -> Promoted:
        def promote(connection: Connection) -> Promoted:
            ((count, next_due, _),) = self._rows(
                connection, "promote", limit=limit, now=self._now(), notify=self._notify
            )
            return Promoted(count, next_due)

        return self._connections.run("promote due tasks", promote)

    def propagate(self, *, limit: int = 100) -> int:
        def propagate(connection: Connection) -> int:
            with connection.transaction():
                serials = [
                    row[0] for row in self._rows(connection, "take_propagations", limit=limit)
                ]
                self._advance(connection, set(serials))
                return len(serials)

        return self._connections.run("release successors", propagate)

    def _advance(self, connection: Connection, serials: Collection[str]) -> None:
        """Let the heads of these serials go; leave those that a caller is adding to to others."""
        if not serials:
            return
        wanted = sorted(serials)
        locked = [row[0] for row in self._rows(connection, "try_lock_serials", serials=wanted)]
        if locked:
            self._rows(
                connection,
                "advance_serials",
                serials=encode_strings(locked),
                created="[]",
                now=_text(self._now()),
                notify="yes" if self._notify else "no",
            )
            self._rows(connection, "forget_empty_serials", serials=locked)
        if in_use := sorted(set(wanted) - set(locked)):
            self._rows(connection, "leave_propagations", serials=in_use)

    def chores(self) -> Chores:
        ((orphans, propagations, next_due),) = self._do(
            "look for chores", "chores", now=self._now()
        )
        return Chores(orphans, propagations, next_due)

    def distributor(self, queues: Callable[[], Sequence[str]]) -> PostgresDistributor:
        return PostgresDistributor(
            self._listen_url if self._notify else None,
            lambda: [
                row[0]
                for row in self._do("name the channels", "wake_channels", queues=list(queues()))
            ],
        )

    # --- workers ----------------------------------------------------------------------

    def register(self, worker: WorkerInfo) -> None:
        self._do(
            "register a worker",
            "register",
            worker_id=worker.id,
            info=encode_worker(worker),
            now=self._now(),
        )

    def heartbeat(self, worker_id: str) -> Pulse:
        ((alive, cancelled, *peers),) = self._pulse.run(
            "send a heartbeat",
            lambda it: self._rows(it, "beat", worker_id=worker_id, now=self._now()),
        )
        return Pulse(
            alive=alive,
            cancel_requested=tuple(cancelled),
            peers=tuple(decode_peer(row) for row in zip(*peers, strict=True)),
        )

    def unregister(self, worker_id: str) -> None:
        self._do("unregister a worker", "unregister", worker_id=worker_id)

    def workers(self) -> list[Peer]:
        return [decode_peer(row) for row in self._do("list the workers", "workers")]

    def recover(
        self, observer: str, *, dead: Collection[Beat] = (), limit: int = 1000
    ) -> list[Recovered]:
        suspects = sorted(dead)

        def recover(connection: Connection) -> list[Recovered]:
            with connection.transaction():
                if not self._rows(connection, "observer", observer=observer):
                    return []
                if suspects:
                    self._rows(
                        connection,
                        "declare_dead",
                        observer=observer,
                        worker_ids=[seen.worker_id for seen in suspects],
                        beats=[seen.beat for seen in suspects],
                    )
                rows = self._rows(
                    connection,
                    "recover",
                    observer=observer,
                    abandoned=ABANDONED,
                    limit=limit,
                    now=self._now(),
                    notify=self._notify,
                )
                recovered = [Recovered(row[0], State(row[1])) for row in rows]
                self._follow(connection, [one.id for one in recovered if one.state in FINAL])
                self._advance(
                    connection,
                    {row[2] for row in rows if row[2] is not None and State(row[1]) in FINAL},
                )
                return recovered

        return self._connections.run("recover tasks", recover)

    def reconcile(self, worker_id: str, held: Collection[Lease]) -> list[Lease]:
        leases = list(held)

        def compare(connection: Connection) -> tuple[list[Row], list[Lease]]:
            batch = encode_leases(leases)
            strangers = self._rows(connection, "strangers", worker_id=worker_id, batch=batch)
            return strangers, self._lost(connection, leases, batch)

        strangers, lost = self._connections.run("compare leases", compare)
        self.settle(
            [
                Released(
                    lease=Lease(execution_id, fence, worker_id),
                    serial=serial,
                    reason="the reply to its claim was lost",
                )
                for execution_id, fence, serial in strangers
            ]
        )
        return lost

    # --- people -----------------------------------------------------------------------

    def cancel(self, ids: Sequence[str], *, reason: str | None = None) -> list[CancelAnswer]:
        wanted = sorted(set(ids))

        def cancel(connection: Connection) -> dict[str, State] | None:
            with connection.transaction():
                withdrawn = {row[0] for row in self._rows(connection, "lock_outbox", ids=wanted)}
                tasks = self._rows(connection, "lock_tasks", ids=wanted)
                states = {row[0]: State(row[1]) for row in tasks}
                became_ready = {id_ for id_, state in states.items() if state is State.READY}
                if became_ready - withdrawn:
                    # Promoted between the two locks. A claim may hold the new outbox row and
                    # wait for the task: taking it now would be the wrong order.
                    return None
                moved = self._rows(
                    connection,
                    "cancel",
                    ids=wanted,
                    data=event_data(reason=reason),
                    now=self._now(),
                )
                self._rows(connection, "request_cancel", ids=wanted)
                gone = {row[0] for row in moved}
                serials = {row[4] for row in tasks if row[0] in gone and row[4] is not None}
                self._advance(connection, serials)
                return states

        states = None
        while states is None:
            states = self._connections.run("cancel", cancel)
        return [cancel_answer(states.get(id_)) for id_ in ids]

    def rerun(self, ids: Sequence[str]) -> list[RerunAnswer]:
        wanted = sorted(set(ids))

        def rerun(connection: Connection) -> dict[str, State]:
            with connection.transaction():
                serials = [row[0] for row in self._rows(connection, "serials_of", ids=wanted)]
                if serials:
                    names = encode_strings(sorted(serials))
                    self._rows(connection, "lock_serials", serials=names)
                tasks = self._rows(connection, "lock_tasks", ids=wanted)
                _refuse_common_keys(tasks)
                self._refuse_taken_keys(connection, wanted)
                self._rows(connection, "rerun", ids=wanted, now=self._now(), notify=self._notify)
                if serials:
                    self._advance(connection, serials)
                return {row[0]: State(row[1]) for row in tasks}

        try:
            states = self._connections.run("rerun", rerun)
        except StoreRefused:
            # Somebody took the key between the look and the write: look again, and say who.
            states = self._connections.run("rerun", rerun)
        return [rerun_answer(states.get(id_)) for id_ in ids]

    def _refuse_taken_keys(self, connection: Connection, ids: Sequence[str]) -> None:
        for execution_id, key, holder in self._rows(connection, "key_holders", ids=ids):
            raise KeyTaken(execution_id, key=key, holder=holder)

    def pause(self, queue: str) -> bool:
        return bool(self._do("pause a queue", "pause", queue=queue, now=self._now()))

    def unpause(self, queue: str) -> bool:
        return bool(self._do("resume a queue", "unpause", queue=queue))

    def paused(self) -> list[str]:
        return [row[0] for row in self._do("list paused queues", "paused")]

    def sweep(self, *, older_than: timedelta, after: str | None = None, limit: int = 1000) -> Swept:
        ((executions, events, last),) = self._do(
            "sweep",
            "sweep",
            older_than=older_than,
            after=after or LOWEST_ID,
            limit=limit,
            now=self._now(),
        )
        return Swept(executions, events, last if executions == limit else None)

    # --- reads ------------------------------------------------------------------------

    def get(self, ids: Sequence[str]) -> list[Snapshot]:
        found = {row[0]: row for row in self._do("read executions", "get", ids=list(ids))}
        return [decode_snapshot(found[id_]) for id_ in ids if id_ in found]

    def find(
        self,
        *,
        task: str | None = None,
        queue: str | None = None,
        state: State | None = None,
        key: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[Snapshot]:
        filters = {"task": task, "queue": queue, "key": key, "limit": limit}
        place = before or HIGHEST_ID
        if state is State.FAILED:
            rows = self._do("find executions", "find_failed", before=place, **filters)
        else:
            rows = self._do("find executions", "find", before=place, state=state, **filters)
        return [decode_snapshot(row) for row in rows]

    def history(self, execution_id: str) -> list[Event]:
        rows = self._do("read a history", "history", id=execution_id)
        return [decode_event(row) for row in rows]

    def counts(self) -> dict[State, int]:
        counted: dict[str, int] = dict(self._do("count executions", "counts"))
        return {state: counted.get(state.value, 0) for state in State}

    def explain_waiting(self, execution_id: str) -> Waiting | None:
        rows = self._do("explain", "explain_waiting", id=execution_id, now=self._now())
        for state, due_in, behind, queue_paused, ahead_in_queue in rows:
            return Waiting(
                state=State(state),
                due_in=due_in,
                behind=behind,
                queue_paused=queue_paused,
                ahead_in_queue=ahead_in_queue,
            )
        return None

    # --- how it is said ---------------------------------------------------------------

    def _do(self, doing: str, name: str, /, **parameters: object) -> list[Row]:
        return self._connections.run(doing, lambda it: self._rows(it, name, **parameters))

    def _rows(self, connection: Connection, name: str, /, **parameters: object) -> list[Row]:
        cursor = connection.execute(self.statements[name].pyformat, parameters)
        return cursor.fetchall() if cursor.description else []

    def _now(self) -> datetime | None:
        return self._clock.now() if self._clock else None


def _refuse_common_keys(tasks: Sequence[Row]) -> None:
    """Two finished executions of one key cannot both live again."""
    holders: dict[tuple[str, str], str] = {}
    for execution_id, state, task, key, _ in tasks:
        if key is not None and State(state) in FINAL:
            holder = holders.setdefault((task, key), execution_id)
            if holder != execution_id:
                raise KeyTaken(execution_id, key=key, holder=holder)


def _text(now: datetime | None) -> str | None:
    return now.isoformat() if now else None
