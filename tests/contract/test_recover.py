import pytest

from penstock.model.executions import Recovered
from penstock.model.states import State, SubState
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import PostgresDatabase
from tests.contract.support import (
    MINUTE,
    OBSERVER,
    WORKER,
    beat_of,
    claim,
    crash,
    declare_dead,
    drain,
    enqueue,
    enqueue_many,
    finish,
    get,
    ids,
    last_event,
    run_one,
    state_of,
    types,
    worker,
)


def test_what_a_dead_worker_left_is_ready_again_and_explained(
    store: Store, clock: ManualClock
) -> None:
    claimed = run_one(store)
    store.start([claimed.lease])
    clock.advance(MINUTE)

    assert declare_dead(store, WORKER) == [
        Recovered(claimed.lease.execution_id, State.READY, WORKER)
    ]

    stored = get(store, claimed.lease.execution_id)
    assert (stored.state, stored.worker_id, stored.sub_state) == (State.READY, None, None)
    assert stored.fence > claimed.lease.fence
    told = last_event(store, stored.id)
    assert (told.type, told.worker_id, told.at) == ("task.recovered", OBSERVER, clock.now())
    assert told.data == {"lost_worker": WORKER, "started": True, "crashes": 1}


def test_a_started_task_is_charged_with_a_crash_and_keeps_its_attempt(store: Store) -> None:
    claimed = run_one(store)
    store.start([claimed.lease])
    declare_dead(store, WORKER)

    stored = get(store, claimed.lease.execution_id)

    assert (stored.crashes, stored.attempt, stored.retries) == (1, 1, 0)


def test_a_task_that_never_started_gets_its_attempt_back_free(store: Store) -> None:
    claimed = run_one(store)
    declare_dead(store, WORKER)

    stored = get(store, claimed.lease.execution_id)

    assert (stored.crashes, stored.attempt) == (0, 0)
    assert last_event(store, stored.id).data["started"] is False


@pytest.mark.parametrize("started", [True, False])
def test_what_a_dead_worker_left_is_suspect(store: Store, started: bool) -> None:
    claimed = run_one(store)
    if started:
        store.start([claimed.lease])
    declare_dead(store, WORKER)

    assert claim(store, OBSERVER, suspects=False) == []
    (again,) = claim(store, OBSERVER)
    assert again.suspect


def test_suspects_are_handed_out_one_at_a_time(store: Store) -> None:
    worker(store)
    suspects = enqueue_many(store, 3)
    assert len(claim(store)) == 3
    declare_dead(store, WORKER)
    innocent = enqueue_many(store, 3)

    calls = [ids(claim(store, OBSERVER, limit=10)) for _ in range(3)]

    assert calls == [[suspects[0], *innocent], [suspects[1]], [suspects[2]]]


def test_one_suspect_at_a_time_whatever_its_queue_and_priority(store: Store) -> None:
    worker(store)
    for queue in ("a", "b"):
        for priority in (0, 1):
            enqueue(store, queue=queue, priority=priority)
    assert len(claim(store, queues=["a", "b"])) == 4
    declare_dead(store, WORKER)

    calls = [claim(store, OBSERVER, queues=["a", "b"]) for _ in range(4)]

    assert [len(call) for call in calls] == [1, 1, 1, 1]
    assert claim(store, OBSERVER, queues=["a", "b"]) == []


@pytest.mark.parametrize("free", ["a", "b", "c"])
def test_a_suspect_in_a_paused_queue_does_not_hide_one_elsewhere(store: Store, free: str) -> None:
    worker(store)
    queues = ["a", "b", "c"]
    for queue in queues:
        enqueue(store, queue=queue)
    claim(store, queues=queues)
    declare_dead(store, WORKER)
    for queue in set(queues) - {free}:
        store.pause(queue)

    assert [found.queue for found in claim(store, OBSERVER, queues=queues)] == [free]


def test_a_suspect_that_cannot_run_does_not_put_another_behind_its_equals(store: Store) -> None:
    worker(store)
    enqueue(store, queue="a")
    suspect = enqueue(store, queue="b")
    claim(store, queues=["a", "b"])
    declare_dead(store, WORKER)
    enqueue(store, queue="b")
    store.pause("a")

    assert ids(claim(store, OBSERVER, queues=["a", "b"], limit=1)) == [suspect]


def test_a_task_is_abandoned_when_it_has_crashed_too_often(
    store: Store, clock: ManualClock
) -> None:
    task_id = enqueue(store, max_crashes=2)
    crash(store, task_id)
    assert state_of(store, task_id) is State.READY
    clock.advance(MINUTE)
    crash(store, task_id)

    stored = get(store, task_id)

    assert (stored.state, stored.crashes, stored.worker_id) == (State.FAILED, 2, None)
    assert stored.finished_at == clock.now()
    assert "worker died" in str(stored.error)
    assert last_event(store, task_id).type == "task.abandoned"
    worker(store)
    assert claim(store) == []


def test_a_task_that_never_starts_is_never_abandoned(store: Store) -> None:
    task_id = enqueue(store, max_crashes=1)
    for n in range(4):
        victim = worker(store, f"victim-{n}")
        assert ids(claim(store, victim)) == [task_id]
        assert declare_dead(store, victim) == [Recovered(task_id, State.READY, victim)]

    assert get(store, task_id).crashes == 0


def test_a_crash_costs_no_retry(store: Store) -> None:
    worker(store)
    task_id = enqueue(store)
    crash(store, task_id)
    (claimed,) = claim(store)
    store.settle([finish(claimed, "retry")])

    stored = get(store, task_id)
    assert (stored.crashes, stored.retries, stored.attempt) == (1, 1, 2)


def test_recovered_work_keeps_its_place(store: Store) -> None:
    worker(store)
    first, second = enqueue_many(store, 2)
    claim(store, limit=1)
    third = enqueue(store)
    declare_dead(store, WORKER)

    assert drain(store, OBSERVER) == [first, second, third]


def test_a_task_that_was_asked_to_stop_is_cancelled_when_its_worker_dies(store: Store) -> None:
    claimed = run_one(store)
    store.cancel([claimed.lease.execution_id])

    assert declare_dead(store, WORKER) == [
        Recovered(claimed.lease.execution_id, State.CANCELLED, WORKER)
    ]
    assert last_event(store, claimed.lease.execution_id).type == "task.cancelled"


def test_a_cancellation_comes_before_an_abandonment(store: Store) -> None:
    claimed = run_one(store, max_crashes=1)
    store.start([claimed.lease])
    store.cancel([claimed.lease.execution_id])
    declare_dead(store, WORKER)

    assert state_of(store, claimed.lease.execution_id) is State.CANCELLED


def test_what_a_worker_left_when_it_stopped_is_recovered_too(store: Store) -> None:
    claimed = run_one(store)
    worker(store, OBSERVER)
    store.unregister(WORKER)

    assert store.recover(OBSERVER) == [Recovered(claimed.lease.execution_id, State.READY, WORKER)]


def test_recovering_again_changes_nothing(store: Store) -> None:
    claimed = run_one(store)
    worker(store, OBSERVER)
    seen = beat_of(store, WORKER)
    store.recover(OBSERVER, dead=[seen])
    history = store.history(claimed.lease.execution_id)

    assert store.recover(OBSERVER, dead=[seen]) == []

    assert store.history(claimed.lease.execution_id) == history


def test_the_living_keep_what_they_have(store: Store) -> None:
    mine, theirs = run_one(store), run_one(store, "other")
    declare_dead(store, "other")

    assert store.start([mine.lease]) == []
    assert store.start([theirs.lease]) == [theirs.lease]


def test_recovery_goes_in_batches(store: Store) -> None:
    worker(store)
    worker(store, OBSERVER)
    left = enqueue_many(store, 5)
    claim(store)
    store.unregister(WORKER)

    batches = [store.recover(OBSERVER, limit=2) for _ in range(4)]

    assert [len(batch) for batch in batches] == [2, 2, 1, 0]
    assert sorted(one.id for batch in batches for one in batch) == sorted(left)


def test_the_next_life_of_a_recovered_task_is_told_in_order(store: Store) -> None:
    worker(store)
    task_id = enqueue(store)
    crash(store, task_id)
    (claimed,) = claim(store)
    store.settle([finish(claimed)])

    assert types(store.history(task_id)) == [
        "task.created", "task.marked_ready", "task.claimed", "task.started", "task.recovered",
        "task.claimed", "task.completed",
    ]  # fmt: skip


def test_recovery_steps_over_a_row_that_somebody_holds(
    postgres: PostgresDatabase, clock: ManualClock
) -> None:
    store = postgres.open(clock)
    store.migrate()
    held, free = run_one(store), run_one(store)
    worker(store, OBSERVER)
    with postgres.connect() as caller:
        caller.execute(
            "SELECT 1 FROM task_executions WHERE id = %s FOR UPDATE", [held.lease.execution_id]
        )
        assert [one.id for one in declare_dead(store, WORKER)] == [free.lease.execution_id]
    assert [one.id for one in store.recover(OBSERVER)] == [held.lease.execution_id]
    store.close()


@pytest.mark.parametrize("sub_state", SubState)
def test_a_started_task_is_recovered_whatever_it_was_doing(
    store: Store, sub_state: SubState
) -> None:
    claimed = run_one(store)
    store.start([claimed.lease])
    if sub_state is SubState.DEFERRED:
        store.defer([claimed.lease])
    declare_dead(store, WORKER)

    assert get(store, claimed.lease.execution_id).crashes == 1
