"""Words that the suite is written in: short ways to say what every test has to say."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypedDict, Unpack

from msgspec.structs import replace

from penstock.model.events import Event
from penstock.model.executions import Claimed, Lease, NewExecution, Recovered, Snapshot
from penstock.model.ids import new_id
from penstock.model.outcomes import (
    Cancelled,
    Completed,
    DeferredFor,
    Failed,
    Outcome,
    Released,
    RetryScheduled,
    Suspended,
    SuspendedFor,
    signal_named,
)
from penstock.model.states import State
from penstock.model.workers import Beat, WorkerInfo
from penstock.store.contract import Store

QUEUE = "default"
TASK = "send_email"
OTHER_TASK = "resize_image"
TASKS = (TASK, OTHER_TASK)
WORKER = "worker-1"
OBSERVER = "worker-2"
BOOM = '{"type":"ValueError","message":"boom"}'
MINUTE = timedelta(minutes=1)

# One way to end an attempt for each kind of outcome.
ENDINGS: dict[str, Callable[[Lease], Outcome]] = {
    "completed": lambda lease: Completed(lease=lease, result='"done"'),
    "failed": lambda lease: Failed(lease=lease, error=BOOM),
    "retry": lambda lease: RetryScheduled(lease=lease, error=BOOM, delay=MINUTE),
    "deferred_for": lambda lease: DeferredFor(lease=lease, delay=MINUTE, reason="not yet"),
    "suspended": lambda lease: Suspended(lease=lease, awaits=signal_named("go")),
    "suspended_for": lambda lease: SuspendedFor(
        lease=lease, awaits=signal_named("go"), timeout=MINUTE
    ),
    "released": lambda lease: Released(lease=lease, reason="shutdown"),
    "cancelled": lambda lease: Cancelled(lease=lease, reason="asked to stop"),
}


class Options(TypedDict, total=False):
    """What may be said about a new execution, besides its task."""

    args: str
    queue: str
    priority: int
    run_at: datetime | None
    delay: timedelta | None
    key: str | None
    serial: str | None
    max_crashes: int


def new(task: str = TASK, **options: Unpack[Options]) -> NewExecution:
    requested: Options = {"args": "{}", **options}
    return NewExecution(id=new_id(), task=task, **requested)


def enqueue(store: Store, task: str = TASK, **options: Unpack[Options]) -> str:
    (answer,) = store.create([new(task, **options)])
    assert answer.created
    return answer.id


def enqueue_many(
    store: Store, count: int, task: str = TASK, **options: Unpack[Options]
) -> list[str]:
    return [answer.id for answer in store.create([new(task, **options) for _ in range(count)])]


def worker(store: Store, worker_id: str = WORKER) -> str:
    """Register a worker that knows all tasks of the suite."""
    store.register(WorkerInfo(id=worker_id, queues=(QUEUE,), tasks=TASKS, slots=10))
    return worker_id


def claim(
    store: Store,
    worker_id: str = WORKER,
    *,
    queues: Sequence[str] = (QUEUE,),
    tasks: Collection[str] = TASKS,
    limit: int = 10,
    suspects: bool = True,
) -> list[Claimed]:
    return store.claim(worker_id, queues=queues, tasks=tasks, limit=limit, suspects=suspects)


def run_one(store: Store, worker_id: str = WORKER, **options: Unpack[Options]) -> Claimed:
    """Enqueue a task and have `worker_id` claim it, which is registered if need be."""
    if all(peer.info.id != worker_id for peer in store.workers()):
        worker(store, worker_id)
    execution_id = enqueue(store, **options)
    (claimed,) = claim(store, worker_id, limit=1)
    assert claimed.lease.execution_id == execution_id
    return claimed


def finish(claimed: Claimed, how: str = "completed") -> Outcome:
    """The outcome as a worker reports it, which passes along the serial and the run."""
    return replace(ENDINGS[how](claimed.lease), serial=claimed.serial, run_id=claimed.run_id)


def ids(claimed: Iterable[Claimed]) -> list[str]:
    return [one.lease.execution_id for one in claimed]


def get(store: Store, execution_id: str) -> Snapshot:
    (snapshot,) = store.get([execution_id])
    return snapshot


def state_of(store: Store, execution_id: str) -> State:
    return get(store, execution_id).state


def types(history: Iterable[Event]) -> list[str]:
    return [event.type for event in history]


def last_event(store: Store, execution_id: str) -> Event:
    return store.history(execution_id)[-1]


def beat_of(store: Store, worker_id: str) -> Beat:
    (seen,) = [peer.seen for peer in store.workers() if peer.info.id == worker_id]
    return seen


def declare_dead(store: Store, worker_id: str, *, observer: str = OBSERVER) -> list[Recovered]:
    """Have `observer` find that `worker_id` is dead, and take back what it left."""
    if all(peer.info.id != observer for peer in store.workers()):
        worker(store, observer)
    return store.recover(observer, dead=[beat_of(store, worker_id)])


def crash(store: Store, execution_id: str) -> None:
    """Let a worker of its own claim and start this execution and die of it."""
    victim = worker(store, f"victim-{new_id()}")
    (claimed,) = claim(store, victim, limit=1)
    assert claimed.lease.execution_id == execution_id
    assert store.start([claimed.lease]) == []
    declare_dead(store, victim)


def drain(store: Store, worker_id: str = WORKER) -> list[str]:
    """Claim and complete one task at a time until nothing is ready; return them in order."""
    seen: list[str] = []
    while one := claim(store, worker_id, limit=1):
        seen += ids(one)
        assert store.settle([finish(one[0])]) == []
    return seen
