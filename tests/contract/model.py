"""The store as a few dictionaries: slow, forgetful, and easy to believe.

Says what every operation answers and leaves behind. It knows neither SQL nor concurrency;
`test_machine.py` lets both stores and this model do the same things and compares them.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from msgspec import structs

from penstock.errors import KeyTaken
from penstock.model.events import EventType
from penstock.model.executions import (
    CancelAnswer,
    Created,
    Lease,
    NewExecution,
    Promoted,
    Recovered,
    RerunAnswer,
    Snapshot,
    Swept,
)
from penstock.model.outcomes import (
    EVENT_OF,
    Completed,
    DeferredFor,
    Failed,
    Outcome,
    Released,
    RetryScheduled,
    Suspended,
    SuspendedFor,
)
from penstock.model.states import FINAL, State, SubState, next_state
from penstock.model.workers import Beat
from penstock.store.decoding import ABANDONED

Told = tuple[str, str | None]


@dataclass
class Execution:
    """One row; the names are those of a snapshot."""

    id: str
    root_id: str
    task: str
    args: str
    queue: str
    priority: int
    max_crashes: int
    key: str | None
    serial: str | None
    run_at: datetime | None
    created_at: datetime
    state: State = State.WAITING
    sub_state: SubState | None = None
    attempt: int = 0
    retries: int = 0
    crashes: int = 0
    suspect: bool = False
    cancel_requested: bool = False
    fence: int = 0
    worker_id: str | None = None
    result: str | None = None
    error: str | None = None
    progress: str | None = None
    writes: str | None = None
    awaits: str | None = None
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    # What a snapshot does not show.
    settled_fence: int | None = None
    seq: int = 0
    serial_place: int = 0
    history: list[Told] = field(default_factory=list)

    @property
    def live(self) -> bool:
        return self.state not in FINAL

    def snapshot(self) -> Snapshot:
        names = [shown.name for shown in structs.fields(Snapshot)]
        return Snapshot(**{name: getattr(self, name) for name in names})


class Model:
    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._seq = 0
        self.executions: dict[str, Execution] = {}
        self.beats: dict[str, int] = {}
        self.paused: set[str] = set()

    # --- the life of a task -----------------------------------------------------------

    def create(self, batch: Sequence[NewExecution]) -> list[Created]:
        answers: list[tuple[str, bool]] = []
        for new in batch:
            holder = self.executions.get(new.id) or self._holder(new.task, new.key)
            if holder is not None:
                answers.append((holder.id, holder.id == new.id))
                continue
            self._write(new)
            answers.append((new.id, True))
        return [Created(id_, created, self.executions[id_].state) for id_, created in answers]

    def claim(
        self,
        worker_id: str,
        *,
        queues: Sequence[str],
        tasks: Collection[str],
        limit: int,
        suspects: bool,
    ) -> list[Lease]:
        if worker_id not in self.beats:
            return []
        leases: list[Lease] = []
        suspect_taken = not suspects
        for queue in queues:
            if queue in self.paused:
                continue
            ready = [
                one
                for one in self.executions.values()
                if one.state is State.READY and one.queue == queue and one.task in tasks
            ]
            for one in sorted(ready, key=lambda one: (-one.priority, not one.suspect, one.seq)):
                if len(leases) == limit or (one.suspect and suspect_taken):
                    continue
                suspect_taken |= one.suspect
                self._tell(one, EventType.CLAIMED, worker_id)
                one.sub_state = SubState.ACTIVE
                one.attempt += 1
                one.fence += 1
                one.worker_id = worker_id
                one.claimed_at, one.started_at = self._now(), None
                leases.append(Lease(one.id, one.fence, worker_id))
        return leases

    def start(self, leases: Iterable[Lease]) -> list[Lease]:
        lost = []
        for lease in leases:
            one = self._held(lease)
            if one is None:
                lost.append(lease)
            elif one.started_at is None:
                one.started_at = self._now()
                self._tell(one, EventType.STARTED, lease.worker_id)
        return lost

    def change(self, leases: Iterable[Lease], sub_state: SubState) -> list[Lease]:
        event = EventType.DEFERRED if sub_state is SubState.DEFERRED else EventType.RESUMED
        lost = []
        for lease in leases:
            one = self._held(lease)
            if one is None:
                lost.append(lease)
            elif one.sub_state is not sub_state:
                one.sub_state = sub_state
                self._tell(one, event, lease.worker_id)
        return lost

    def settle(self, outcomes: Iterable[Outcome]) -> list[Lease]:
        lost, serials = [], set()
        for outcome in outcomes:
            one = self._held(outcome.lease)
            if one is not None:
                self._end(one, outcome)
                serials.add(one.serial)
            else:
                known = self.executions.get(outcome.lease.execution_id)
                if known is None or known.settled_fence != outcome.lease.fence:
                    lost.append(outcome.lease)
        self._advance(serial for serial in serials if serial is not None)
        return lost

    def promote(self) -> Promoted:
        now = self._now()
        scheduled = [
            (one.run_at, one.id, one)
            for one in self.executions.values()
            if one.state is State.SCHEDULED and one.run_at is not None
        ]
        due = sorted(entry for entry in scheduled if entry[0] <= now)
        for *_, one in due:
            self._make_ready(one, EventType.MARKED_READY)
        later = [run_at - now for run_at, *_ in scheduled if run_at > now]
        return Promoted(len(due), min(later, default=None))

    # --- workers ----------------------------------------------------------------------

    def recover(self, observer: str, dead: Iterable[Beat]) -> list[Recovered]:
        if observer not in self.beats:
            return []
        for worker_id, beat in dead:
            if worker_id != observer and self.beats.get(worker_id) == beat:
                del self.beats[worker_id]
        orphans = [
            one
            for one in self.executions.values()
            if one.worker_id is not None and one.worker_id not in self.beats
        ]
        orphans.sort(key=lambda one: one.seq)
        lost = [one.worker_id or "" for one in orphans]
        for one in orphans:
            self._take_back(one, observer)
        self._advance({one.serial for one in orphans if one.serial and not one.live})
        return [
            Recovered(one.id, one.state, whose) for one, whose in zip(orphans, lost, strict=True)
        ]

    def reconcile(self, worker_id: str, held: Sequence[Lease]) -> list[Lease]:
        lost = [lease for lease in held if self._held(lease) is None]
        for one in list(self.executions.values()):
            lease = Lease(one.id, one.fence, worker_id)
            if one.worker_id == worker_id and lease not in held:
                self.settle([Released(lease=lease)])
        return lost

    # --- people -----------------------------------------------------------------------

    def cancel(self, ids: Sequence[str]) -> list[CancelAnswer]:
        answers: dict[str, CancelAnswer] = {}
        serials = set()
        for one in (self.executions[id_] for id_ in set(ids)):
            if not one.live:
                answers[one.id] = "finished"
            elif one.state is State.RUNNING:
                if not one.cancel_requested:
                    self._tell(one, EventType.CANCEL_REQUESTED)
                one.cancel_requested = True
                answers[one.id] = "requested"
            else:
                self._tell(one, EventType.CANCELLED)
                one.awaits = None
                one.finished_at = self._now()
                serials.add(one.serial)
                answers[one.id] = "cancelled"
        self._advance(serial for serial in serials if serial is not None)
        return [answers[id_] for id_ in ids]

    def rerun(self, execution_id: str) -> RerunAnswer:
        one = self.executions[execution_id]
        if one.live:
            return "live"
        if one.key is not None and (holder := self._holder(one.task, one.key)):
            raise KeyTaken(one.id, key=one.key, holder=holder.id)
        self._tell(one, EventType.RERUN)
        one.serial_place = self._last_place(one.serial) + 1
        one.retries = one.crashes = 0
        one.suspect = one.cancel_requested = False
        one.run_at = one.result = one.error = one.started_at = one.finished_at = None
        if one.serial is None:
            self._make_ready(one, EventType.MARKED_READY)
        else:
            self._advance({one.serial})
        return "rerun"

    def sweep(self, older_than: timedelta) -> Swept:
        limit = self._now() - older_than
        old = [
            one
            for one in self.executions.values()
            if not one.live
            and one.state is not State.FAILED
            and one.finished_at is not None
            and one.finished_at < limit
        ]
        for one in old:
            del self.executions[one.id]
        return Swept(len(old), None)

    # --- how it is done ---------------------------------------------------------------

    def _tell(self, one: Execution, event: EventType, worker_id: str | None = None) -> None:
        one.state = next_state(one.state, event)
        one.history.append((event.value, worker_id))

    def _make_ready(self, one: Execution, event: EventType, worker_id: str | None = None) -> None:
        self._tell(one, event, worker_id)
        if event is EventType.MARKED_READY:
            self._seq += 1
            one.seq = self._seq
            one.awaits = None

    def _held(self, lease: Lease) -> Execution | None:
        one = self.executions.get(lease.execution_id)
        held = one and (one.fence, one.worker_id) == (lease.fence, lease.worker_id)
        return one if held else None

    def _holder(self, task: str, key: str | None) -> Execution | None:
        live = (one for one in self.executions.values() if one.live and key is not None)
        return next((one for one in live if (one.task, one.key) == (task, key)), None)

    def _last_place(self, serial: str | None) -> int:
        line = (one for one in self.executions.values() if one.live and serial is not None)
        return max((one.serial_place for one in line if one.serial == serial), default=0)

    def _write(self, new: NewExecution) -> None:
        now = self._now()
        ahead = self._last_place(new.serial)
        one = self.executions[new.id] = Execution(
            id=new.id,
            root_id=new.id,
            task=new.task,
            args=new.args,
            queue=new.queue,
            priority=new.priority,
            max_crashes=new.max_crashes,
            key=new.key,
            serial=new.serial,
            run_at=new.run_at if new.delay is None else now + new.delay,
            created_at=now,
            history=[(EventType.CREATED.value, None)],
            serial_place=ahead + 1,
        )
        if ahead == 0:
            self._release(one)

    def _release(self, one: Execution) -> None:
        if one.run_at is not None and one.run_at > self._now():
            self._tell(one, EventType.SCHEDULED)
        else:
            self._make_ready(one, EventType.MARKED_READY)

    def _advance(self, serials: Iterable[str]) -> None:
        heads = []
        for serial in set(serials):
            line = [one for one in self.executions.values() if one.live and one.serial == serial]
            heads += sorted(line, key=lambda one: one.serial_place)[:1]
        for head in sorted(heads, key=lambda one: one.id):
            if head.state is State.WAITING and head.awaits is None:
                self._release(head)

    def _end(self, one: Execution, outcome: Outcome) -> None:
        gives_back = isinstance(outcome, Released | DeferredFor | Suspended | SuspendedFor)
        event = EVENT_OF[type(outcome)]
        if one.cancel_requested and not isinstance(outcome, Completed):
            event = EventType.CANCELLED
        one.attempt -= gives_back
        one.retries += isinstance(outcome, RetryScheduled)
        one.suspect = one.suspect and gives_back
        if event is not EventType.CANCELLED and isinstance(outcome, Suspended | SuspendedFor):
            one.awaits = outcome.awaits
        if isinstance(outcome, RetryScheduled | DeferredFor):
            one.run_at = self._now() + outcome.delay
        if isinstance(outcome, SuspendedFor):
            one.run_at = self._now() + outcome.timeout
        if isinstance(outcome, Failed | RetryScheduled):
            one.error = outcome.error
        one.result = outcome.result if isinstance(outcome, Completed) else None
        one.settled_fence = one.fence
        if outcome.started_at is not None:
            one.started_at = outcome.started_at
            self._tell(one, EventType.STARTED, one.worker_id)
        self._stop(one, event, one.worker_id)

    def _take_back(self, one: Execution, observer: str) -> None:
        started = one.started_at is not None
        one.crashes += started
        one.attempt -= not started
        one.suspect = True
        event = EventType.RECOVERED
        if one.cancel_requested:
            event = EventType.CANCELLED
        elif started and one.crashes >= one.max_crashes:
            event = EventType.ABANDONED
            one.error = ABANDONED
        self._stop(one, event, observer)

    def _stop(self, one: Execution, event: EventType, told_by: str | None) -> None:
        self._make_ready(one, event, told_by)
        one.sub_state = None
        one.worker_id = None
        one.fence += 1
        one.finished_at = None if one.live else self._now()
