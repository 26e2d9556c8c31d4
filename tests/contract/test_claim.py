import pytest

from penstock.model.executions import Lease
from penstock.model.ids import new_id
from penstock.model.states import State, SubState
from penstock.store.contract import Store
from penstock.store.low_water import Lane
from penstock.store.sqlite import claiming
from penstock.store.sqlite.transaction import Transaction
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database, SqliteDatabase, count
from tests.contract.support import (
    MINUTE,
    OTHER_TASK,
    TASK,
    WORKER,
    claim,
    enqueue,
    enqueue_many,
    finish,
    get,
    ids,
    last_event,
    new,
    run_one,
    types,
    worker,
)


def test_a_claimed_task_carries_all_that_its_handler_needs(
    store: Store, clock: ManualClock
) -> None:
    worker(store)
    requested = new(args='{"to":"ada"}', queue="mail", priority=3, serial="ada")
    store.create([requested])
    clock.advance(MINUTE)

    (claimed,) = claim(store, queues=["mail"])

    assert claimed.lease == Lease(requested.id, 1, WORKER)
    assert (claimed.task, claimed.args) == (TASK, '{"to":"ada"}')
    assert (claimed.queue, claimed.priority, claimed.serial) == ("mail", 3, "ada")
    assert (claimed.attempt, claimed.retries, claimed.crashes) == (1, 0, 0)
    assert claimed.suspect is False
    assert claimed.claimed_at == clock.now()


@pytest.mark.parametrize("name", ['"quoted"', "back\\slash", "{a,b}", "NULL", "a, b", "naïve ☂"])
def test_queues_and_tasks_may_have_any_signs_in_their_names(store: Store, name: str) -> None:
    worker(store)
    execution_id = enqueue(store, name, queue=name)
    enqueue(store, name, queue="another")
    (claimed,) = claim(store, queues=[name], tasks=[name, f"not {name}"])
    assert claimed.lease.execution_id == execution_id
    assert (claimed.task, claimed.queue) == (name, name)


def test_a_claim_moves_the_task_and_tells_it(
    store: Store, clock: ManualClock, database: Database
) -> None:
    claimed = run_one(store)
    stored = get(store, claimed.lease.execution_id)

    assert (stored.state, stored.sub_state) == (State.RUNNING, SubState.ACTIVE)
    assert (stored.worker_id, stored.fence, stored.attempt) == (WORKER, 1, 1)
    assert (stored.claimed_at, stored.started_at) == (clock.now(), None)
    assert count(database, "task_outbox") == 0
    told = last_event(store, stored.id)
    assert (told.type, told.worker_id, told.at) == ("task.claimed", WORKER, clock.now())
    assert told.data == {"attempt": 1}


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_a_claim_never_exceeds_its_limit(store: Store, limit: int) -> None:
    worker(store)
    for queue in ("a", "b", "c"):
        enqueue_many(store, 4, queue=queue)
        enqueue_many(store, 4, queue=queue, priority=1)

    assert len(claim(store, queues=["a", "b", "c"], limit=limit)) == limit


def test_a_claim_for_no_slots_takes_nothing(store: Store) -> None:
    worker(store)
    enqueue(store)

    assert claim(store, limit=0) == []


def test_a_claim_takes_what_there_is_and_does_not_wait(store: Store) -> None:
    worker(store)
    task_id = enqueue(store)

    assert ids(claim(store, limit=10)) == [task_id]
    assert claim(store, limit=10) == []


def test_no_task_is_handed_out_twice(store: Store) -> None:
    worker(store)
    worker(store, "other")
    enqueue_many(store, 10)

    first, second = claim(store, limit=6), claim(store, "other", limit=6)

    assert len(ids(first)) == 6
    assert len(ids(second)) == 4
    assert set(ids(first)).isdisjoint(ids(second))


def test_higher_priorities_go_first_and_equal_ones_in_their_order(store: Store) -> None:
    worker(store)
    low = [enqueue(store, priority=-5) for _ in range(2)]
    middle = [enqueue(store) for _ in range(2)]
    high = [enqueue(store, priority=9) for _ in range(2)]

    assert ids(claim(store, limit=1)) == high[:1]
    assert ids(claim(store, limit=10)) == [high[1], *middle, *low]


def test_queues_are_emptied_in_the_order_given(store: Store) -> None:
    worker(store)
    urgent_elsewhere = enqueue(store, queue="b", priority=100)
    first, second = enqueue_many(store, 2, queue="a")

    assert ids(claim(store, queues=["a", "b"])) == [first, second, urgent_elsewhere]


def test_the_order_of_the_queues_is_the_order_of_the_call(store: Store) -> None:
    worker(store)
    in_a, in_b = enqueue(store, queue="a"), enqueue(store, queue="b")

    assert ids(claim(store, queues=["b", "a"])) == [in_b, in_a]


def test_only_the_queues_asked_for_are_served(store: Store) -> None:
    worker(store)
    enqueue(store, queue="others")

    assert claim(store, queues=["default", "nobody-uses-this"]) == []
    assert claim(store, queues=[]) == []


def test_a_worker_gets_only_tasks_that_it_knows(store: Store) -> None:
    worker(store)
    enqueue(store, OTHER_TASK)
    known = enqueue(store, TASK)

    assert ids(claim(store, tasks=[TASK])) == [known]
    assert claim(store, tasks=[TASK]) == []
    assert claim(store, tasks=[]) == []
    assert len(claim(store, tasks=[TASK, OTHER_TASK])) == 1


def test_unknown_tasks_at_the_head_do_not_hide_known_ones(store: Store) -> None:
    worker(store)
    strangers = enqueue_many(store, 50, OTHER_TASK)
    known = enqueue_many(store, 3, TASK)

    assert ids(claim(store, tasks=[TASK], limit=2)) == known[:2]
    assert ids(claim(store, tasks=[TASK], limit=2)) == known[2:]
    assert ids(claim(store, tasks=[OTHER_TASK], limit=100)) == strangers


def test_a_paused_queue_gives_nothing_and_the_others_go_on(store: Store) -> None:
    worker(store)
    held = enqueue(store, queue="a")
    free = enqueue(store, queue="b")
    store.pause("a")

    assert ids(claim(store, queues=["a", "b"])) == [free]
    store.unpause("a")
    assert ids(claim(store, queues=["a", "b"])) == [held]


def test_a_queue_that_is_paused_while_a_claim_waits_for_the_lock_gives_nothing(
    sqlite: SqliteDatabase, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite looks before it takes the lock; PostgreSQL looks and takes in one statement."""
    store, operator = sqlite.open(clock), sqlite.open(clock)
    store.migrate()
    worker(store)
    held = enqueue(store, queue="a")
    glance = claiming.glance

    def glance_and_be_overtaken(
        view: Transaction, wanted: claiming.Wanted
    ) -> list[tuple[Lane, int]] | None:
        found = glance(view, wanted)
        operator.pause("a")
        return found

    monkeypatch.setattr(claiming, "glance", glance_and_be_overtaken)
    assert claim(store, queues=["a"]) == []

    monkeypatch.undo()
    operator.unpause("a")
    assert ids(claim(store, queues=["a"])) == [held]
    store.close()
    operator.close()


def test_pausing_says_whether_it_changed_anything(store: Store) -> None:
    assert store.pause("a") is True
    assert store.pause("a") is False
    store.pause("A")
    assert store.paused() == ["A", "a"]
    assert store.unpause("a") is True
    assert store.unpause("a") is False
    assert store.paused() == ["A"]


def test_a_worker_that_never_registered_claims_nothing(store: Store) -> None:
    enqueue(store)

    assert claim(store, "nobody") == []


def test_a_worker_that_stopped_claims_nothing(store: Store) -> None:
    worker(store)
    enqueue(store)
    store.unregister(WORKER)

    assert claim(store) == []


def test_every_lease_has_a_higher_fence_than_those_before_it(store: Store) -> None:
    worker(store)
    enqueue(store)
    fences = []
    for _ in range(4):
        (claimed,) = claim(store)
        fences.append(claimed.lease.fence)
        store.settle([finish(claimed, "released")])

    assert fences == sorted(set(fences))


def test_a_released_task_comes_back_at_its_old_place(store: Store) -> None:
    worker(store)
    first, second, third = [enqueue(store) for _ in range(3)]
    taken = claim(store, limit=2)
    store.settle([finish(one, "released") for one in reversed(taken)])

    assert ids(claim(store, limit=3)) == [first, second, third]


def test_a_released_task_goes_before_what_came_after_it(store: Store) -> None:
    worker(store)
    first = run_one(store)
    run_one(store)
    enqueue_many(store, 3)
    store.settle([finish(first, "released")])

    assert ids(claim(store, limit=1)) == [first.lease.execution_id]


def test_queue_and_task_names_are_taken_as_they_are(store: Store) -> None:
    worker(store)
    name = "Ünïcode 'quoted\" %s :name {} -- ;"
    task_id = enqueue(store, name, queue=name, key=name, serial=name)

    assert ids(claim(store, queues=[name], tasks=[name])) == [task_id]
    assert get(store, task_id).queue == name


def test_a_finished_task_is_not_handed_out_again(store: Store) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed)])

    assert claim(store) == []
    assert types(store.history(claimed.lease.execution_id))[-1] == "task.completed"


def test_what_another_store_committed_is_seen_at_once(
    store: Store, database: Database, clock: ManualClock
) -> None:
    worker(store)
    assert claim(store) == []
    elsewhere = database.open(clock)
    try:
        task_id = enqueue(elsewhere)
    finally:
        elsewhere.close()

    assert ids(claim(store)) == [task_id]


def test_an_unknown_lease_is_no_lease(store: Store) -> None:
    worker(store)
    made_up = Lease(new_id(), 1, WORKER)

    assert store.start([made_up]) == [made_up]
