"""What `why`, `status` and bulk actions read: all of it as the claim would find it."""

from datetime import timedelta

from penstock.model.states import State
from penstock.model.workers import WorkerInfo
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.support import (
    MINUTE,
    OTHER_TASK,
    TASK,
    WORKER,
    claim,
    crash,
    enqueue,
    enqueue_many,
    finish,
    ids,
    run_one,
    types,
    worker,
)


def test_what_is_ahead_is_what_a_claim_takes_first(store: Store) -> None:
    claimed = run_one(store)
    mine = claimed.lease.execution_id
    suspect = enqueue(store)
    crash(store, suspect)
    store.settle([finish(claimed, "released")])  # at its old place, which is the first
    enqueue(store, OTHER_TASK, priority=2)
    enqueue(store, priority=-1)

    why = store.explain_waiting(mine)

    assert why is not None
    assert why.ahead == {TASK: 1, OTHER_TASK: 1}
    first, second, third = (ids(claim(store, limit=1)) for _ in range(3))
    assert (second, third) == ([suspect], [mine])
    assert first not in ([suspect], [mine])


def test_a_suspect_goes_before_those_that_came_first(store: Store) -> None:
    suspect = enqueue(store)
    enqueue(store)
    crash(store, suspect)

    why = store.explain_waiting(suspect)

    assert why is not None
    assert (why.ahead, why.snapshot.suspect) == ({}, True)


def test_all_facts_are_of_one_moment_by_the_stores_clock(store: Store, clock: ManualClock) -> None:
    store.pause("default")
    worker(store)
    task_id = enqueue(store)
    clock.advance("5s")

    why = store.explain_waiting(task_id)

    assert why is not None
    assert why.at == clock.now()
    assert why.paused_at == clock.now() - timedelta(seconds=5)
    assert why.snapshot == store.get([task_id])[0]
    assert types(why.history) == ["task.created", "task.marked_ready"]
    assert why.workers == tuple(store.workers())


def test_a_serial_shows_its_first_and_the_one_right_ahead(store: Store, clock: ManualClock) -> None:
    worker(store)
    first, second, third = enqueue_many(store, 3, serial="line")
    claim(store, limit=1)
    clock.advance("1m")

    why = store.explain_waiting(third)

    assert why is not None
    assert why.head is not None
    assert why.predecessor is not None
    assert (why.head.id, why.head.state, why.head.task) == (first, State.RUNNING, TASK)
    assert (why.predecessor.id, why.predecessor.state) == (second, State.WAITING)
    assert why.head.since == why.predecessor.since == clock.now() - MINUTE
    assert why.ahead_in_serial == 2


def test_loads_count_what_each_worker_runs_of_each_task(store: Store, clock: ManualClock) -> None:
    worker(store)
    task_id = enqueue(store, OTHER_TASK)
    claim(store, limit=1)
    clock.advance("1m")
    longest, deferred = enqueue_many(store, 2)
    leases = {one.lease.execution_id: one.lease for one in claim(store)}
    store.defer([leases[deferred]])

    why = store.explain_waiting(task_id)

    assert why is not None
    now = clock.now()
    assert sorted(why.loads) == [
        (WORKER, OTHER_TASK, 1, 1, task_id, now - MINUTE),
        (WORKER, TASK, 2, 1, longest, now),
    ]


def test_a_task_that_is_only_deferred_keeps_nobodys_slot(store: Store) -> None:
    claimed = run_one(store)
    store.defer([claimed.lease])

    why = store.explain_waiting(claimed.lease.execution_id)

    assert why is not None
    assert why.loads == ((WORKER, TASK, 1, 0, None, None),)


def test_what_a_worker_says_of_its_limits_is_kept(store: Store) -> None:
    told = WorkerInfo(id="w1", queues=["default"], tasks=[TASK], max_running={TASK: 2})
    store.register(told)
    store.register(WorkerInfo(id="w2"))
    told_of = {peer.info.id: peer.info.max_running for peer in store.workers()}
    assert told_of == {"w1": {TASK: 2}, "w2": None}


def test_depths_count_the_ready_and_age_the_oldest(store: Store, clock: ManualClock) -> None:
    assert store.depths() == []
    worker(store)
    enqueue(store, queue="mail")
    clock.advance("1m")
    enqueue_many(store, 2, queue="mail", priority=9)
    enqueue(store, queue="press")
    enqueue(store, queue="later", delay=MINUTE)
    clock.advance("5s")

    assert store.depths() == [
        ("mail", 3, timedelta(seconds=65)),
        ("press", 1, timedelta(seconds=5)),
    ]


def test_ready_tasks_are_counted_by_queue_and_name(store: Store) -> None:
    assert store.ready_tasks() == []
    run_one(store)
    enqueue_many(store, 2, queue="mail")
    enqueue(store, OTHER_TASK, queue="mail")
    enqueue(store, OTHER_TASK, queue="press")
    enqueue(store, OTHER_TASK, queue="press", delay=MINUTE)

    assert store.ready_tasks() == [
        *sorted([("mail", OTHER_TASK, 1), ("mail", TASK, 2)]),
        ("press", OTHER_TASK, 1),
    ]


def test_names_of_tasks_are_those_of_all_that_there_is(store: Store) -> None:
    assert store.task_names() == []
    run_one(store)
    enqueue(store, OTHER_TASK, delay=MINUTE)
    enqueue(store, OTHER_TASK)
    enqueue(store, "a_third")

    assert store.task_names() == sorted([TASK, OTHER_TASK, "a_third"])


def test_a_task_that_was_given_back_is_as_old_as_it_was(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    clock.advance("1m")
    store.settle([finish(claimed, "released")])

    ((_, _, age),) = store.depths()

    assert age == MINUTE


def test_a_retry_is_as_old_as_its_last_mark(store: Store, clock: ManualClock) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, "retry")])
    clock.advance("1h")
    store.promote()
    clock.advance("2s")

    ((_, _, age),) = store.depths()

    assert age == timedelta(seconds=2)


def test_a_count_is_how_many_would_be_found(store: Store) -> None:
    worker(store)
    enqueue_many(store, 3)
    enqueue(store, OTHER_TASK, queue="mail")
    for claimed in claim(store, limit=2):
        store.settle([finish(claimed, "failed")])

    for state in (None, State.READY, State.FAILED, State.RUNNING):
        for task in (None, TASK, "nothing"):
            for queue in (None, "mail"):
                found = store.find(state=state, task=task, queue=queue)
                assert store.count(state=state, task=task, queue=queue) == len(found)
    assert store.count() == 4
    assert store.count(state=State.FAILED) == 2
