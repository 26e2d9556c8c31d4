"""Every type of event is written by something, and names the worker where a worker acted."""

from penstock.model.events import Event, EventType, RunEvent
from penstock.model.outcomes import Suspended, signal_named
from penstock.model.states import State, next_state
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.flows import chain, live_through, start
from tests.contract.support import (
    ENDINGS,
    MINUTE,
    OBSERVER,
    WORKER,
    claim,
    crash,
    declare_dead,
    drain,
    enqueue,
    enqueue_many,
    finish,
    ids,
    run_one,
    worker,
)


def live_through_everything(store: Store, clock: ManualClock) -> list[str]:
    """Let executions meet all that can happen to one; return their ids."""
    worker(store)
    seen = enqueue_many(store, len(ENDINGS))
    attempts = claim(store)
    store.start([one.lease for one in attempts])
    for one, ending in zip(attempts, ENDINGS, strict=True):
        store.settle([finish(one, ending)])

    clock.advance(MINUTE)
    assert store.promote().promoted == 3
    again = claim(store)
    assert len(again) == 4  # retried, deferred and suspended for a minute, released
    leases = [one.lease for one in again]
    store.defer(leases, reason="not yet")
    store.undefer(leases)
    store.cancel([leases[0].execution_id])  # asked to stop, and fails instead
    for one in again:
        store.settle([finish(one, "failed")])

    store.rerun(seen[:1])
    assert ids(claim(store)) == seen[:1]
    declare_dead(store, WORKER)
    assert drain(store, OBSERVER) == seen[:1]

    head = enqueue(store, serial="line", delay=MINUTE)
    behind = enqueue(store, serial="line")
    store.cancel([head])
    assert drain(store, OBSERVER) == [behind]

    pill = enqueue(store, max_crashes=2)
    crash(store, pill)
    crash(store, pill)

    waits = run_one(store, OBSERVER)
    outcome = Suspended(lease=waits.lease, awaits=signal_named("approved"))
    assert store.settle([outcome]) == []
    store.cancel([waits.lease.execution_id])
    return [*seen, head, behind, pill, waits.lease.execution_id]


def live_through_every_run(store: Store) -> list[str]:
    """Let runs meet all that can happen to one; return their ids."""
    worker(store)
    run_ids = [start(store, chain(2)) for _ in range(3)]
    completes, fails, is_cancelled = run_ids
    store.pause_run(completes)
    store.resume_run(completes)
    store.cancel_run(is_cancelled)
    live_through(store, lambda one: finish(one, "failed" if one.run_id == fails else "completed"))
    store.rerun_run(fails)
    live_through(store)
    return run_ids


def test_every_type_of_event_is_written(store: Store, clock: ManualClock) -> None:
    lived = live_through_everything(store, clock) + live_through_every_run(store)
    written = {event.type for one in lived for event in store.history(one)}
    assert {*EventType, *RunEvent} - written == set()


def test_every_event_names_the_worker_where_a_worker_acted(
    store: Store, clock: ManualClock
) -> None:
    lived = live_through_everything(store, clock)
    runs = live_through_every_run(store)
    for run_id in runs:
        lived += [task.id for task in store.tasks_of(run_id)]
        own = [event for event in store.history(run_id) if event.execution_id is None]
        assert len(own) >= 2
        assert {event.worker_id for event in own} == {None}
    for one in lived:
        history = store.history(one)
        assert [event.type for event in history if event.worker_id] == acts_of_workers(history)


def acts_of_workers(history: list[Event]) -> list[str]:
    """Who takes a task, has it or takes it away is a worker; what else happens needs none."""
    by_people = {EventType.CANCEL_REQUESTED}
    acts: list[str] = []
    state: State | None = None
    for event in history:
        before, state = state, next_state(state, EventType(event.type))
        if State.RUNNING in {before, state} and event.type not in by_people:
            acts.append(event.type)
    return acts
