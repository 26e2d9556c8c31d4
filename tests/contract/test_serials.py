from collections.abc import Iterator
from datetime import timedelta

import pytest

from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import PostgresDatabase
from tests.contract.support import (
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
    new,
    run_one,
    state_of,
    types,
    worker,
)


def test_a_hundred_of_one_serial_run_one_at_a_time_in_their_order(store: Store) -> None:
    worker(store)
    line = enqueue_many(store, 50, serial="line")
    line += [enqueue(store, serial="line") for _ in range(50)]

    for expected in line:
        (only,) = claim(store, limit=10)
        assert only.lease.execution_id == expected
        store.settle([finish(only)])
    assert claim(store) == []


def test_different_serials_do_not_wait_for_each_other(store: Store) -> None:
    worker(store)
    batch = [new(serial=name) for name in ("a", "b", "a", "c", "b")]
    answers = store.create(batch)

    assert [answer.state for answer in answers] == [
        State.READY,
        State.READY,
        State.WAITING,
        State.READY,
        State.WAITING,
    ]
    assert len(claim(store)) == 3


def test_a_batch_is_handed_out_in_its_order_serials_or_not(store: Store) -> None:
    worker(store)
    batch = [new(serial="b"), new(), new(serial="a"), new()]
    store.create(batch)

    assert ids(claim(store)) == [one.id for one in batch]


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled"])
def test_the_next_one_goes_however_the_first_one_ended(store: Store, ending: str) -> None:
    first = run_one(store, serial="line")
    second = enqueue(store, serial="line")
    assert claim(store) == []

    store.settle([finish(first, ending)])

    assert types(store.history(second)) == ["task.created", "task.marked_ready"]
    assert ids(claim(store)) == [second]


@pytest.mark.parametrize("ending", ["retry", "deferred_for", "released"])
def test_the_next_one_waits_while_the_first_one_comes_back(
    store: Store, clock: ManualClock, ending: str
) -> None:
    first = run_one(store, serial="line")
    second = enqueue(store, serial="line")
    store.settle([finish(first, ending)])
    assert state_of(store, second) is State.WAITING

    clock.advance(MINUTE)
    store.promote()

    assert drain(store) == [first.lease.execution_id, second]


def test_a_scheduled_head_keeps_the_others_waiting(store: Store, clock: ManualClock) -> None:
    worker(store)
    head = enqueue(store, serial="line", delay=MINUTE)
    behind = enqueue(store, serial="line")
    assert (state_of(store, head), state_of(store, behind)) == (State.SCHEDULED, State.WAITING)
    assert claim(store) == []

    clock.advance(MINUTE)
    store.promote()

    assert drain(store) == [head, behind]


def test_one_behind_that_is_due_later_is_scheduled_when_its_turn_comes(
    store: Store, clock: ManualClock
) -> None:
    head = run_one(store, serial="line")
    behind = enqueue(store, serial="line", delay=timedelta(minutes=10))
    assert state_of(store, behind) is State.WAITING
    store.settle([finish(head)])
    assert state_of(store, behind) is State.SCHEDULED

    clock.advance("10m")
    store.promote()

    assert drain(store) == [behind]


def test_one_behind_whose_time_has_passed_goes_at_once(store: Store, clock: ManualClock) -> None:
    head = run_one(store, serial="line")
    behind = enqueue(store, serial="line", delay=MINUTE)
    clock.advance("1h")
    store.settle([finish(head)])

    assert ids(claim(store)) == [behind]


@pytest.mark.parametrize("delay", [None, MINUTE])
def test_cancelling_the_head_lets_the_next_one_go(store: Store, delay: timedelta | None) -> None:
    worker(store)
    head = enqueue(store, serial="line", delay=delay)
    behind = enqueue(store, serial="line")

    store.cancel([head])

    assert ids(claim(store)) == [behind]


def test_cancelling_in_the_middle_lets_nobody_overtake(store: Store) -> None:
    worker(store)
    line = enqueue_many(store, 5, serial="line")
    store.cancel(line[1:3])
    assert len(claim(store, "nobody")) == 0

    assert drain(store) == [line[0], line[3], line[4]]


def test_cancelling_the_whole_serial_leaves_it_free(store: Store) -> None:
    worker(store)
    store.cancel(enqueue_many(store, 3, serial="line"))
    after = enqueue(store, serial="line")

    assert ids(claim(store)) == [after]


def test_an_abandoned_head_lets_the_next_one_go(store: Store) -> None:
    worker(store)
    head = enqueue(store, serial="line", max_crashes=1)
    behind = enqueue(store, serial="line")
    crash(store, head)

    assert state_of(store, head) is State.FAILED
    assert ids(claim(store)) == [behind]


def test_a_recovered_head_goes_before_those_behind_it(store: Store) -> None:
    head = run_one(store, serial="line")
    behind = enqueue(store, serial="line")
    declare_dead(store, WORKER)

    assert drain(store, OBSERVER) == [head.lease.execution_id, behind]


def test_a_cancelled_head_of_a_dead_worker_lets_the_next_one_go(store: Store) -> None:
    head = run_one(store, serial="line")
    behind = enqueue(store, serial="line")
    store.cancel([head.lease.execution_id])
    declare_dead(store, WORKER)

    assert ids(claim(store, OBSERVER)) == [behind]


def test_a_serial_spans_tasks_queues_and_priorities(store: Store) -> None:
    worker(store)
    first = enqueue(store, serial="line", queue="a")
    second = enqueue(store, "resize_image", serial="line", queue="b", priority=9)

    assert ids(claim(store, queues=["b", "a"])) == [first]
    assert state_of(store, second) is State.WAITING


def test_one_that_the_database_refused_does_not_hold_up_its_serial(store: Store) -> None:
    head = run_one(store, serial="line")
    behind = enqueue(store, serial="line")
    bad = finish(head, "failed")
    store.settle([type(bad)(lease=bad.lease, serial=bad.serial, error='"\x00"')])  # type: ignore[call-arg]

    assert ids(claim(store)) == [behind]


def test_a_repeated_settlement_lets_nobody_else_go(store: Store) -> None:
    head = run_one(store, serial="line")
    second, third = enqueue_many(store, 2, serial="line")
    for _ in range(2):
        assert store.settle([finish(head)]) == []

    assert ids(claim(store)) == [second]
    store.settle([finish(head)])
    assert state_of(store, third) is State.WAITING


def test_a_batch_of_heads_lets_all_their_successors_go(store: Store) -> None:
    worker(store)
    names = [f"line-{n}" for n in range(5)]
    for _ in range(2):
        store.create([new(serial=name) for name in names])
    heads = claim(store)
    store.settle([finish(one) for one in heads])

    successors = claim(store)

    assert sorted(str(one.serial) for one in successors) == names
    assert set(ids(heads)).isdisjoint(ids(successors))


@pytest.fixture
def on_postgres(postgres: PostgresDatabase, clock: ManualClock) -> Iterator[Store]:
    store = postgres.open(clock)
    store.migrate()
    yield store
    store.close()


def test_a_caller_who_is_adding_to_a_serial_does_not_hold_up_a_settlement(
    on_postgres: Store, postgres: PostgresDatabase
) -> None:
    head = run_one(on_postgres, serial="line")
    behind = enqueue(on_postgres, serial="line")
    with postgres.connect() as caller:
        # What adding to the serial does first, in a transaction that stays open.
        caller.execute("SET LOCAL lock_timeout = '5s'")
        caller.execute("SELECT 1 FROM serials WHERE serial = 'line' FOR UPDATE")

        assert on_postgres.settle([finish(head)]) == []
        assert state_of(on_postgres, head.lease.execution_id) is State.COMPLETED
        assert state_of(on_postgres, behind) is State.WAITING
        on_postgres.propagate()
        assert state_of(on_postgres, behind) is State.WAITING

    assert on_postgres.propagate() == 1
    assert ids(claim(on_postgres)) == [behind]
    assert on_postgres.propagate() == 0


def test_however_many_were_held_up_go_on_together_once_nobody_is_in_the_way(
    on_postgres: Store, postgres: PostgresDatabase
) -> None:
    serials = [f"line {n}" for n in range(250)]
    worker(on_postgres)
    on_postgres.create([new(serial=serial) for serial in serials])
    heads = claim(on_postgres, limit=len(serials))
    on_postgres.create([new(serial=serial) for serial in serials])
    with postgres.connect() as caller:
        caller.execute("SELECT 1 FROM serials FOR UPDATE")
        on_postgres.settle([finish(head) for head in heads])
        assert on_postgres.propagate() == 0  # and it does not go on asking

    assert on_postgres.propagate() == len(serials)
    assert len(claim(on_postgres, limit=1000)) == len(serials)


def test_there_is_nothing_to_propagate_when_nobody_was_in_the_way(store: Store) -> None:
    worker(store)
    enqueue_many(store, 3, serial="line")
    drain(store)

    assert store.propagate() == 0
