from datetime import timedelta

from penstock.model.ids import new_id
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.support import (
    MINUTE,
    OTHER_TASK,
    TASK,
    claim,
    drain,
    enqueue,
    enqueue_many,
    finish,
    run_one,
    worker,
)


def test_executions_are_read_in_the_order_asked(store: Store) -> None:
    first, second, third = enqueue_many(store, 3)

    found = store.get([third, first, new_id(), second])

    assert [one.id for one in found] == [third, first, second]
    assert store.get([]) == []


def test_the_newest_are_found_first(store: Store) -> None:
    created = enqueue_many(store, 3)

    assert [one.id for one in store.find()] == sorted(created, reverse=True)


def test_a_page_ends_at_its_limit_and_the_next_begins_there(store: Store) -> None:
    newest_first = sorted(enqueue_many(store, 5), reverse=True)

    page = store.find(limit=2)
    rest = store.find(before=page[-1].id)

    assert [one.id for one in page + rest] == newest_first


def test_executions_are_found_by_all_that_is_asked(store: Store) -> None:
    worker(store)
    mail = enqueue(store, queue="mail", key="a")
    image = enqueue(store, OTHER_TASK, queue="mail", key="b")
    later = enqueue(store, delay=MINUTE)

    def found(**filters: object) -> set[str]:
        return {one.id for one in store.find(**filters)}  # type: ignore[arg-type]

    assert found(queue="mail") == {mail, image}
    assert found(task=OTHER_TASK) == {image}
    assert found(key="a") == {mail}
    assert found(state=State.SCHEDULED) == {later}
    assert found(queue="mail", task="send_email") == {mail}
    assert found(queue="mail", state=State.SCHEDULED) == set()
    assert found(queue="mail", before=image) == ({mail} if mail < image else set())


def test_the_failed_are_found_like_all_others(store: Store) -> None:
    worker(store)
    enqueue_many(store, 2)
    enqueue(store, queue="mail", key="k")
    for claimed in claim(store, queues=["default", "mail"]):
        store.settle([finish(claimed, "failed")])
    enqueue(store)

    failed = store.find(state=State.FAILED)

    assert [one.id for one in failed] == sorted((one.id for one in failed), reverse=True)
    assert len(failed) == 3
    assert [one.queue for one in store.find(state=State.FAILED, queue="mail")] == ["mail"]
    assert [one.key for one in store.find(state=State.FAILED, key="k")] == ["k"]
    assert store.find(state=State.FAILED, task=OTHER_TASK) == []
    assert store.find(state=State.FAILED, limit=1) == failed[:1]
    assert store.find(state=State.FAILED, before=failed[0].id) == failed[1:]


def test_a_history_is_told_in_order_with_times_and_workers(
    store: Store, clock: ManualClock
) -> None:
    begun = clock.now()
    claimed = run_one(store)
    clock.advance("3s")
    store.settle([finish(claimed)])

    history = store.history(claimed.lease.execution_id)

    assert [event.seq for event in history] == sorted({event.seq for event in history})
    assert [event.at - begun for event in history] == [timedelta()] * 3 + [timedelta(seconds=3)]
    assert [event.worker_id for event in history] == [None, None, "worker-1", "worker-1"]


def test_every_state_is_counted_zeros_too(store: Store) -> None:
    assert store.counts() == dict.fromkeys(State, 0)
    worker(store)
    enqueue_many(store, 2, delay=MINUTE)
    enqueue_many(store, 3, serial="line")
    enqueue(store)
    first, _ = claim(store, limit=2)
    store.settle([finish(first, "failed")])

    counted = store.counts()

    assert counted == dict.fromkeys(State, 0) | {
        State.SCHEDULED: 2,
        State.WAITING: 1 if first.serial else 2,
        State.READY: counted[State.READY],
        State.RUNNING: 1,
        State.FAILED: 1,
    }
    assert sum(counted.values()) == 6


def test_a_scheduled_execution_waits_for_its_time(store: Store, clock: ManualClock) -> None:
    task_id = enqueue(store, delay=MINUTE)
    clock.advance("20s")

    why = store.explain_waiting(task_id)

    assert why is not None
    assert (why.state, why.due_in) == (State.SCHEDULED, timedelta(seconds=40))
    assert (why.predecessor, why.paused_at, why.ahead) == (None, None, {})


def test_a_ready_execution_waits_for_those_ahead_of_it(store: Store) -> None:
    enqueue(store, priority=-1)
    enqueue(store, queue="elsewhere")
    enqueue_many(store, 2)
    task_id = enqueue(store)
    enqueue(store)
    enqueue(store, priority=1)

    why = store.explain_waiting(task_id)

    assert why is not None
    assert (why.state, why.ahead, why.due_in) == (State.READY, {TASK: 3}, None)


def test_an_execution_in_a_paused_queue_waits_for_the_queue(store: Store) -> None:
    task_id = enqueue(store)
    store.pause("default")

    why = store.explain_waiting(task_id)

    assert why is not None
    assert why.paused_at is not None


def test_an_execution_in_a_serial_waits_for_the_one_ahead(store: Store) -> None:
    first, second, third = enqueue_many(store, 3, serial="line")

    reasons = [store.explain_waiting(task_id) for task_id in (first, second, third)]

    ahead = [why and why.predecessor and why.predecessor.id for why in reasons]
    assert ahead == [None, first, second]
    assert [why and why.state for why in reasons] == [
        State.READY,
        State.WAITING,
        State.WAITING,
    ]


def test_a_finished_execution_waits_for_nothing(store: Store) -> None:
    worker(store)
    first, _ = enqueue_many(store, 2, serial="line")
    (claimed,) = claim(store)
    store.settle([finish(claimed)])

    why = store.explain_waiting(first)

    assert why is not None
    assert (why.state, why.predecessor, why.ahead) == (State.COMPLETED, None, {})


def test_nothing_explains_an_unknown_execution(store: Store) -> None:
    assert store.explain_waiting(new_id()) is None


def test_reading_changes_nothing(store: Store) -> None:
    worker(store)
    (task_id, *_) = enqueue_many(store, 3)
    before = (store.find(), store.history(task_id), store.counts())
    store.explain_waiting(task_id)
    store.workers()
    store.paused()

    assert (store.find(), store.history(task_id), store.counts()) == before
    assert len(drain(store)) == 3
