from datetime import timedelta

import pytest
from msgspec.structs import replace

from penstock.errors import StoreRefused
from penstock.model.executions import Created
from penstock.model.ids import new_id
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database, count
from tests.contract.support import (
    MINUTE,
    claim,
    enqueue,
    get,
    ids,
    last_event,
    new,
    run_one,
    types,
    worker,
)

MICROSECOND = timedelta(microseconds=1)


def test_a_due_execution_is_ready_and_in_the_outbox(store: Store, database: Database) -> None:
    requested = new()

    assert store.create([requested]) == [Created(requested.id, created=True, state=State.READY)]

    assert count(database, "task_outbox") == 1
    assert types(store.history(requested.id)) == ["task.created", "task.marked_ready"]


@pytest.mark.parametrize("too_long", [{"priority": 2**31}, {"max_crashes": 2**63}])
@pytest.mark.parametrize("beside", [0, 3])
def test_a_number_that_one_database_has_no_room_for_is_refused_by_both(
    store: Store, database: Database, too_long: dict[str, int], beside: int
) -> None:
    others = [new() for _ in range(beside)]

    with pytest.raises(StoreRefused):
        store.create([*others, replace(new(), **too_long)])

    assert count(database, "task_executions") == 0


def test_an_execution_is_stored_as_it_was_asked_for(store: Store, clock: ManualClock) -> None:
    requested = new(
        "resize_image",
        args='{"size": 3}',
        queue="images",
        priority=-7,
        key="picture-9",
        serial="album-1",
        max_crashes=5,
    )
    store.create([requested])

    stored = get(store, requested.id)

    assert (stored.id, stored.root_id) == (requested.id, requested.id)
    assert (stored.task, stored.args) == ("resize_image", '{"size": 3}')
    assert (stored.queue, stored.priority) == ("images", -7)
    assert (stored.key, stored.serial, stored.max_crashes) == ("picture-9", "album-1", 5)
    assert (stored.attempt, stored.retries, stored.crashes, stored.fence) == (0, 0, 0, 0)
    assert (stored.suspect, stored.cancel_requested) == (False, False)
    assert stored.created_at == clock.now()
    assert (stored.sub_state, stored.worker_id) == (None, None)
    assert (stored.claimed_at, stored.started_at, stored.finished_at) == (None, None, None)
    assert (stored.result, stored.error) == (None, None)


def test_a_batch_is_answered_and_handed_out_in_its_order(store: Store) -> None:
    worker(store)
    # Ids in the opposite order: what counts is the order of the call.
    batch = sorted((new() for _ in range(20)), key=lambda one: one.id, reverse=True)

    answers = store.create(batch)

    assert [answer.id for answer in answers] == [one.id for one in batch]
    assert ids(claim(store, limit=20)) == [one.id for one in batch]


def test_later_calls_come_after_earlier_ones(store: Store) -> None:
    worker(store)
    in_order = [enqueue(store) for _ in range(5)]

    assert ids(claim(store, limit=5)) == in_order


def test_an_empty_batch_is_answered_with_nothing(store: Store) -> None:
    assert store.create([]) == []


def test_a_batch_of_a_thousand_is_written_whole(store: Store, database: Database) -> None:
    answers = store.create([new() for _ in range(1000)])

    assert all(answer.created for answer in answers)
    assert count(database, "task_outbox") == 1000
    assert count(database, "execution_events") == 2000


def test_an_execution_for_a_later_moment_is_scheduled_and_not_in_the_outbox(
    store: Store, clock: ManualClock, database: Database
) -> None:
    due = clock.now() + MINUTE
    (answer,) = store.create([new(run_at=due)])

    assert answer.state is State.SCHEDULED
    assert get(store, answer.id).run_at == due
    assert count(database, "task_outbox") == 0
    assert types(store.history(answer.id)) == ["task.created", "task.scheduled"]
    assert "run_at" in last_event(store, answer.id).data


@pytest.mark.parametrize(
    ("ahead", "state"),
    [
        (MICROSECOND, State.SCHEDULED),
        (timedelta(), State.READY),
        (-MICROSECOND, State.READY),
        (timedelta(days=-3650), State.READY),
    ],
)
def test_an_execution_waits_only_for_a_moment_that_has_not_come(
    store: Store, clock: ManualClock, ahead: timedelta, state: State
) -> None:
    (answer,) = store.create([new(run_at=clock.now() + ahead)])

    assert answer.state is state


def test_a_delay_counts_from_the_clock_of_the_database(store: Store, clock: ManualClock) -> None:
    delayed, at_once = store.create([new(delay=MINUTE), new(delay=timedelta())])

    assert (delayed.state, at_once.state) == (State.SCHEDULED, State.READY)
    assert get(store, delayed.id).run_at == clock.now() + MINUTE


def test_creating_again_after_a_lost_reply_changes_nothing(
    store: Store, database: Database
) -> None:
    batch = [new(key="once"), new(delay=MINUTE), new(serial="line"), new(serial="line")]
    first = store.create(batch)
    events = count(database, "execution_events")

    assert store.create(batch) == first

    assert count(database, "task_executions") == 4
    assert count(database, "execution_events") == events


@pytest.mark.parametrize("key", [None, "order-1"])
def test_creating_again_tells_how_far_the_execution_has_come(store: Store, key: str | None) -> None:
    requested = new(key=key)
    worker(store)
    store.create([requested])
    claim(store)

    assert store.create([requested]) == [Created(requested.id, created=True, state=State.RUNNING)]


def test_creating_again_writes_only_what_is_missing(store: Store) -> None:
    known, unknown = new(), new()
    store.create([known])

    answers = store.create([known, unknown])

    assert [answer.id for answer in answers] == [known.id, unknown.id]
    assert len(store.find()) == 2


def test_an_id_given_twice_in_one_batch_is_one_execution(store: Store, database: Database) -> None:
    requested = new()

    answers = store.create([requested, requested])

    assert answers == [Created(requested.id, created=True, state=State.READY)] * 2
    assert count(database, "task_outbox") == 1


@pytest.mark.parametrize("unstorable", ['"\x00"', '"\ud800"'])
def test_a_batch_with_one_unstorable_execution_is_refused_whole(
    store: Store, unstorable: str
) -> None:
    with pytest.raises(StoreRefused):
        store.create([new(), new(args=unstorable), new()])

    assert store.find() == []


def test_a_new_execution_does_not_touch_a_running_one(store: Store) -> None:
    running = run_one(store)
    before = get(store, running.lease.execution_id)

    enqueue(store)

    assert get(store, running.lease.execution_id) == before


def test_an_id_that_was_never_created_is_unknown(store: Store) -> None:
    unknown = new_id()

    assert store.get([unknown]) == []
    assert store.history(unknown) == []
