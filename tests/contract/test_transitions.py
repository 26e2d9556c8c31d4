"""Every state × every operation: SQL repeats the names of states, and the table is its judge."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Unpack

import pytest
from msgspec.structs import replace

from penstock.model.events import EventType
from penstock.model.executions import Lease
from penstock.model.outcomes import EVENT_OF
from penstock.model.states import FINAL, TRANSITIONS, State, next_state, state_after
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database, count
from tests.contract.support import (
    ENDINGS,
    MINUTE,
    WORKER,
    Options,
    claim,
    crash,
    declare_dead,
    enqueue,
    finish,
    new,
    run_one,
    types,
    worker,
)


@dataclass
class Scene:
    """One execution in one state, and the last lease that anybody had on it."""

    store: Store
    clock: ManualClock
    database: Database
    execution_id: str
    lease: Lease


Route = Callable[[Store, ManualClock, Database], tuple[str, Lease | None]]


def _settled(ending: str) -> Route:
    def route(store: Store, _clock: ManualClock, _database: Database) -> tuple[str, Lease | None]:
        claimed = run_one(store)
        store.settle([finish(claimed, ending)])
        return claimed.lease.execution_id, claimed.lease

    return route


def _created(**options: Unpack[Options]) -> Route:
    return lambda store, _clock, _database: (enqueue(store, **options), None)


def _waiting(store: Store, _clock: ManualClock, _database: Database) -> tuple[str, Lease | None]:
    # The head belongs to another queue: no operation below is to move it.
    enqueue(store, serial="line", queue="elsewhere")
    return enqueue(store, serial="line"), None


def _recovered(store: Store, _clock: ManualClock, _database: Database) -> tuple[str, Lease | None]:
    lost = run_one(store, "stalled")
    declare_dead(store, "stalled")
    return lost.lease.execution_id, lost.lease


def _promoted(store: Store, clock: ManualClock, _database: Database) -> tuple[str, Lease | None]:
    task_id = enqueue(store, delay=MINUTE)
    clock.advance(MINUTE)
    store.promote()
    return task_id, None


def _running(store: Store, _clock: ManualClock, _database: Database) -> tuple[str, Lease | None]:
    claimed = run_one(store)
    return claimed.lease.execution_id, claimed.lease


def _started(store: Store, _clock: ManualClock, _database: Database) -> tuple[str, Lease | None]:
    claimed = run_one(store)
    store.start([claimed.lease])
    return claimed.lease.execution_id, claimed.lease


def _deferred(store: Store, _clock: ManualClock, _database: Database) -> tuple[str, Lease | None]:
    claimed = run_one(store)
    store.defer([claimed.lease])
    return claimed.lease.execution_id, claimed.lease


def _abandoned(store: Store, _clock: ManualClock, _database: Database) -> tuple[str, Lease | None]:
    task_id = enqueue(store, max_crashes=1)
    crash(store, task_id)
    return task_id, None


def _withdrawn(store: Store, _clock: ManualClock, _database: Database) -> tuple[str, Lease | None]:
    task_id = enqueue(store)
    store.cancel([task_id])
    return task_id, None


def _rerun(store: Store, _clock: ManualClock, _database: Database) -> tuple[str, Lease | None]:
    claimed = run_one(store)
    store.settle([finish(claimed, "failed")])
    store.rerun([claimed.lease.execution_id])
    return claimed.lease.execution_id, claimed.lease


def _skipped(store: Store, _clock: ManualClock, database: Database) -> tuple[str, Lease | None]:
    """By hand, because only workflows skip: the row and its event, as a skip writes them."""
    head = enqueue(store, serial="line", queue="elsewhere")
    task_id = enqueue(store, serial="line")
    database.query(
        "UPDATE task_executions SET state = 'skipped', finished_at = created_at WHERE id = :id",
        {"id": task_id},
    )
    database.query(
        "INSERT INTO execution_events (root_id, task_execution_id, type, at)"
        " SELECT root_id, id, 'task.skipped', created_at FROM task_executions WHERE id = :id",
        {"id": task_id},
    )
    store.cancel([head])
    return task_id, None


ROUTES: Mapping[str, tuple[State, Route]] = {
    "scheduled by delay": (State.SCHEDULED, _created(delay=MINUTE)),
    "scheduled by retry": (State.SCHEDULED, _settled("retry")),
    "scheduled by deferral": (State.SCHEDULED, _settled("deferred_for")),
    "waiting": (State.WAITING, _waiting),
    "ready": (State.READY, _created()),
    "ready by promotion": (State.READY, _promoted),
    "ready by release": (State.READY, _settled("released")),
    "ready by recovery": (State.READY, _recovered),
    "ready by rerun": (State.READY, _rerun),
    "running": (State.RUNNING, _running),
    "running and started": (State.RUNNING, _started),
    "running and deferred": (State.RUNNING, _deferred),
    "completed": (State.COMPLETED, _settled("completed")),
    "failed": (State.FAILED, _settled("failed")),
    "failed by abandonment": (State.FAILED, _abandoned),
    "cancelled by its handler": (State.CANCELLED, _settled("cancelled")),
    "cancelled before it ran": (State.CANCELLED, _withdrawn),
    "skipped": (State.SKIPPED, _skipped),
}


@dataclass(frozen=True)
class Operation:
    """What to call, and the events that it writes where the table allows the first of them."""

    apply: Callable[[Scene], object]
    events: tuple[EventType, ...] = ()
    only_from: frozenset[State] = frozenset(State)
    while_running: tuple[EventType, ...] = ()  # instead, of a task that a worker has


def _settle(ending: str) -> Operation:
    event = EVENT_OF[type(ENDINGS[ending](Lease("", 0, "")))]
    # A settlement needs a lease, and only a running task has one that counts.
    return Operation(
        lambda scene: scene.store.settle([ENDINGS[ending](scene.lease)]),
        (event,),
        frozenset({State.RUNNING}),
    )


def _recover(scene: Scene) -> None:
    worker(scene.store, "observer")
    scene.store.unregister(WORKER)
    scene.store.recover("observer")


def _promote_when_due(scene: Scene) -> None:
    scene.clock.advance("1h")
    scene.store.promote()


def _sweep(scene: Scene) -> None:
    scene.clock.advance("30d")
    scene.store.sweep(older_than=timedelta(days=1))


OPERATIONS: Mapping[str, Operation] = {
    "create again": Operation(
        lambda scene: scene.store.create([replace(new(), id=scene.execution_id)])
    ),
    "claim": Operation(lambda scene: claim(scene.store), (EventType.CLAIMED,)),
    "start": Operation(lambda scene: scene.store.start([scene.lease]), (EventType.STARTED,)),
    "defer": Operation(lambda scene: scene.store.defer([scene.lease]), (EventType.DEFERRED,)),
    "undefer": Operation(lambda scene: scene.store.undefer([scene.lease]), (EventType.RESUMED,)),
    **{f"settle as {ending}": _settle(ending) for ending in ENDINGS},
    # Those that wait for a predecessor become ready when it ends, not when it is time.
    "promote": Operation(
        _promote_when_due, (EventType.MARKED_READY,), frozenset({State.SCHEDULED})
    ),
    "hasten": Operation(
        lambda scene: scene.store.hasten([scene.execution_id]),
        (EventType.MARKED_READY,),
        frozenset({State.SCHEDULED}),
    ),
    "promote too early": Operation(lambda scene: scene.store.promote()),
    "propagate": Operation(lambda scene: scene.store.propagate()),
    "recover": Operation(_recover, (EventType.RECOVERED,)),
    "reconcile": Operation(lambda scene: scene.store.reconcile(WORKER, []), (EventType.RELEASED,)),
    # A running task is only asked to stop.
    "cancel": Operation(
        lambda scene: scene.store.cancel([scene.execution_id]),
        (EventType.CANCELLED,),
        frozenset(State) - {State.RUNNING},
        while_running=(EventType.CANCEL_REQUESTED,),
    ),
    "rerun": Operation(
        lambda scene: scene.store.rerun([scene.execution_id]),
        (EventType.RERUN, EventType.MARKED_READY),
    ),
    "sweep": Operation(_sweep),
}

# Where an operation is allowed and has nothing left to do: it is done already.
DONE_ALREADY = {
    ("running and started", "start"),
    ("running and deferred", "defer"),
    ("running", "undefer"),
    ("running and started", "undefer"),
}


@pytest.mark.parametrize("operation_name", OPERATIONS)
@pytest.mark.parametrize("route_name", ROUTES)
def test_an_operation_does_what_the_table_allows_and_nothing_else(
    store: Store, clock: ManualClock, database: Database, route_name: str, operation_name: str
) -> None:
    state, route = ROUTES[route_name]
    operation = OPERATIONS[operation_name]
    worker(store)
    execution_id, lease = route(store, clock, database)
    scene = Scene(store, clock, database, execution_id, lease or Lease(execution_id, 1, WORKER))
    told = types(store.history(execution_id))
    assert state_after(EventType(event) for event in told) is state

    operation.apply(scene)

    if operation_name == "sweep" and state in FINAL - {State.FAILED}:
        assert store.get([execution_id]) == []
        return
    allowed = (
        bool(operation.events)
        and (state, operation.events[0]) in TRANSITIONS
        and state in operation.only_from
        and (route_name, operation_name) not in DONE_ALREADY
    )
    expected, events = state, operation.events if allowed else ()
    if state is State.RUNNING:
        events = operation.while_running or events
    for event in events:
        expected = next_state(expected, event)
    (stored,) = store.get([execution_id])
    assert stored.state is expected
    assert types(store.history(execution_id))[len(told) :] == list(events)
    in_outbox = count(database, "task_outbox", f"task_execution_id = '{execution_id}'")
    assert in_outbox == (expected is State.READY)


def test_every_state_is_reached() -> None:
    assert {state for state, _ in ROUTES.values()} == set(State)


def test_every_outcome_is_settled() -> None:
    assert {type(ending(Lease("", 0, ""))) for ending in ENDINGS.values()} == set(EVENT_OF)
