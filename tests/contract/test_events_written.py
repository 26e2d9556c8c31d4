"""Every type of event is written by something, and names the worker where a worker acted."""

from pathlib import Path

import penstock.store
from penstock.model.events import Event, EventType
from penstock.model.states import State, next_state
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
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
    worker,
)

# Only a workflow skips a task. Whoever writes it takes it off this list.
NOT_WRITTEN_YET = {EventType.SKIPPED}

STORE = Path(penstock.store.__file__).parent


def live_through_everything(store: Store, clock: ManualClock) -> list[str]:
    """Let executions meet all that can happen to one; return their ids."""
    worker(store)
    seen = enqueue_many(store, len(ENDINGS))
    attempts = claim(store)
    store.start([one.lease for one in attempts])
    for one, ending in zip(attempts, ENDINGS, strict=True):
        store.settle([finish(one, ending)])

    clock.advance(MINUTE)
    assert store.promote().promoted == 2
    again = claim(store)
    assert len(again) == 3  # retried, deferred for a minute, released
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
    return [*seen, head, behind, pill]


def test_every_type_of_event_is_written(store: Store, clock: ManualClock) -> None:
    lived = live_through_everything(store, clock)
    written = {event.type for one in lived for event in store.history(one)}
    assert set(EventType) - written == NOT_WRITTEN_YET


def test_every_event_names_the_worker_where_a_worker_acted(
    store: Store, clock: ManualClock
) -> None:
    for one in live_through_everything(store, clock):
        history = store.history(one)
        assert [event.type for event in history if event.worker_id] == acts_of_workers(history)


def acts_of_workers(history: list[Event]) -> list[str]:
    """Who takes a task, has it or takes it away is a worker; what else happens needs none."""
    acts: list[str] = []
    state: State | None = None
    for event in history:
        before, state = state, next_state(state, EventType(event.type))
        if State.RUNNING in {before, state}:
            acts.append(event.type)
    return acts


def test_what_is_not_written_yet_is_in_no_statement() -> None:
    sources = [path for path in STORE.rglob("*") if path.suffix in {".py", ".sql"}]
    texts = [path.read_text("utf-8") for path in sources if "sweep" not in path.name]
    assert len(texts) > 20
    for event in NOT_WRITTEN_YET:
        assert not any(f"EventType.{event.name}" in text for text in texts)
        assert not any(f"'{event}'" in text for text in texts)
