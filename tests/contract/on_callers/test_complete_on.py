"""Completion in the handler's own transaction: effect and end commit together, or neither."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from penstock.errors import LeaseLost
from penstock.model.executions import Claimed
from penstock.model.follow_ups import FollowUp, encode_follow_ups
from penstock.model.states import State
from penstock.store.connections.callers import ConnectionRefused
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.callers import PlainCaller, wake_ups
from tests.contract.completing import (
    Handler,
    complete,
    take_effect,
)
from tests.contract.databases import Database, count
from tests.contract.support import (
    MINUTE,
    OTHER_TASK,
    QUEUE,
    WORKER,
    claim,
    declare_dead,
    drain,
    enqueue,
    finish,
    get,
    ids,
    new,
    run_one,
    state_of,
    types,
    worker,
)


def test_committed_both_are_there(
    handler: Handler, store: Store, database: Database, effects: str, clock: ManualClock
) -> None:
    claimed = run_one(store)
    started_at = clock.advance("1s")
    clock.advance("5s")

    async def body(handler: PlainCaller) -> None:
        await take_effect(handler, effects, claimed.lease)
        await complete(store, handler, claimed.lease, result='{"n": 1}', started_at=started_at)
        assert state_of(store, claimed.lease.execution_id) is State.RUNNING
        await handler.commit()

    handler(body)

    assert count(database, "effects") == 1
    stored = get(store, claimed.lease.execution_id)
    assert (stored.state, stored.result) == (State.COMPLETED, '{"n": 1}')
    assert (stored.worker_id, stored.sub_state) == (None, None)
    assert (stored.started_at, stored.finished_at) == (started_at, clock.now())
    *_, started, completed = store.history(stored.id)
    assert (started.type, started.at, started.worker_id) == ("task.started", started_at, WORKER)
    assert (completed.type, completed.at) == ("task.completed", clock.now())
    assert completed.worker_id == WORKER


def test_a_start_that_is_known_is_not_told_again(
    handler: Handler, store: Store, clock: ManualClock
) -> None:
    claimed = run_one(store)
    started_at = clock.advance("1s")
    store.start([claimed.lease], started_at=[started_at])

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease, started_at=clock.advance("5s"))
        await handler.commit()

    handler(body)

    assert types(store.history(claimed.lease.execution_id))[-3:] == [
        "task.claimed", "task.started", "task.completed",
    ]  # fmt: skip
    assert get(store, claimed.lease.execution_id).started_at == started_at


def test_rolled_back_neither_is_there_and_the_lease_is_still_held(
    handler: Handler, store: Store, database: Database, effects: str
) -> None:
    claimed = run_one(store)
    before = get(store, claimed.lease.execution_id)

    async def body(handler: PlainCaller) -> None:
        await take_effect(handler, effects, claimed.lease)
        await complete(store, handler, claimed.lease)
        await handler.rollback()

    handler(body)

    assert count(database, "effects") == 0
    assert get(store, claimed.lease.execution_id) == before
    assert types(store.history(claimed.lease.execution_id))[-1] == "task.claimed"
    assert store.settle([finish(claimed, "retry")]) == []


def test_a_savepoint_that_is_rolled_back_takes_the_completion_with_it(
    handler: Handler, store: Store, database: Database, effects: str
) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        undo = await handler.savepoint()
        await take_effect(handler, effects, claimed.lease)
        await complete(store, handler, claimed.lease)
        await undo()
        await handler.commit()

    handler(body)

    assert count(database, "effects") == 0
    assert state_of(store, claimed.lease.execution_id) is State.RUNNING
    assert store.read_back([claimed.lease]) == ["undone"]


def test_a_completion_after_an_undone_one_counts(
    handler: Handler, store: Store, database: Database, effects: str
) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        undo = await handler.savepoint()
        await complete(store, handler, claimed.lease, result="1")
        await undo()
        await take_effect(handler, effects, claimed.lease)
        await complete(store, handler, claimed.lease, result="2")
        await handler.commit()

    handler(body)

    assert count(database, "effects") == 1
    assert get(store, claimed.lease.execution_id).result == "2"
    assert types(store.history(claimed.lease.execution_id)).count("task.completed") == 1


def _recovered(store: Store, claimed: Claimed) -> None:
    declare_dead(store, claimed.lease.worker_id)


def _taken_by_another(store: Store, claimed: Claimed) -> None:
    declare_dead(store, claimed.lease.worker_id)
    worker(store, "other")
    assert ids(claim(store, "other")) == [claimed.lease.execution_id]


def _completed_by_another(store: Store, claimed: Claimed) -> None:
    declare_dead(store, claimed.lease.worker_id)
    worker(store, "other")
    assert drain(store, "other") == [claimed.lease.execution_id]


def _settled_before(store: Store, claimed: Claimed) -> None:
    store.settle([finish(claimed, "retry")])


@pytest.mark.parametrize(
    "lose", [_recovered, _taken_by_another, _completed_by_another, _settled_before]
)
def test_who_has_lost_the_lease_hears_so_and_nothing_is_written(
    handler: Handler,
    store: Store,
    database: Database,
    effects: str,
    lose: Callable[[Store, Claimed], None],
) -> None:
    claimed = run_one(store)
    lose(store, claimed)
    before = get(store, claimed.lease.execution_id)
    history = store.history(before.id)

    async def body(handler: PlainCaller) -> None:
        await take_effect(handler, effects, claimed.lease)
        with pytest.raises(LeaseLost, match="complete it"):
            await complete(store, handler, claimed.lease)
        await handler.rollback()

    handler(body)

    assert count(database, "effects") == 0
    assert get(store, before.id) == before
    assert store.history(before.id) == history


def test_a_lost_lease_leaves_the_rest_of_the_transaction_to_its_owner(
    handler: Handler, store: Store, database: Database, effects: str
) -> None:
    claimed = run_one(store)
    _recovered(store, claimed)

    async def body(handler: PlainCaller) -> None:
        await take_effect(handler, effects, claimed.lease)
        with pytest.raises(LeaseLost):
            await complete(store, handler, claimed.lease)
        await handler.commit()

    handler(body)

    assert count(database, "effects") == 1
    assert state_of(store, claimed.lease.execution_id) is State.READY


def test_the_second_completion_is_refused_and_the_first_one_stands(
    handler: Handler, store: Store, database: Database, effects: str
) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease, result="1")
        with pytest.raises(LeaseLost):
            await complete(store, handler, claimed.lease, result="2")
        await handler.commit()

    handler(body)

    assert get(store, claimed.lease.execution_id).result == "1"
    assert types(store.history(claimed.lease.execution_id)).count("task.completed") == 1


def test_a_completion_after_a_cancel_request_counts(
    handler: Handler, store: Store, database: Database, effects: str
) -> None:
    claimed = run_one(store)
    assert store.cancel([claimed.lease.execution_id]) == ["requested"]

    async def body(handler: PlainCaller) -> None:
        await take_effect(handler, effects, claimed.lease)
        await complete(store, handler, claimed.lease)
        await handler.commit()

    handler(body)

    assert state_of(store, claimed.lease.execution_id) is State.COMPLETED
    assert store.cancel([claimed.lease.execution_id]) == ["finished"]


def test_the_worker_that_settles_it_as_well_changes_nothing(
    handler: Handler, store: Store, effects: str
) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease)
        await handler.commit()

    handler(body)
    before = get(store, claimed.lease.execution_id)

    assert store.settle([finish(claimed, "failed")]) == []

    assert get(store, claimed.lease.execution_id) == before


def test_who_waits_behind_it_goes_after_the_commit_and_not_before(
    handler: Handler, store: Store, database: Database, effects: str
) -> None:
    first = run_one(store, serial="line")
    second = enqueue(store, serial="line")

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, first.lease)
        assert store.propagate() == 0
        assert state_of(store, second) is State.WAITING
        await handler.commit()

    with wake_ups(database) as heard:
        handler(body)
        assert heard() == 1

    store.propagate()
    assert ids(claim(store)) == [second]
    assert types(store.history(second)) == [
        "task.created", "task.marked_ready", "task.claimed",
    ]  # fmt: skip


def test_who_waits_behind_it_goes_on_waiting_after_a_rollback(
    handler: Handler, store: Store, effects: str
) -> None:
    first = run_one(store, serial="line")
    second = enqueue(store, serial="line")

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, first.lease)
        await handler.rollback()

    handler(body)

    assert store.propagate() == 0
    assert state_of(store, second) is State.WAITING


def test_what_follows_it_is_created_with_the_commit_and_exactly_once(
    handler: Handler, store: Store, database: Database, effects: str
) -> None:
    follow_up = FollowUp(
        task=OTHER_TASK, queue=QUEUE, priority=0, max_crashes=3, wants=("execution_id", "result")
    )
    follow_ups = encode_follow_ups(on_success=follow_up, on_failure=None)
    store.create([replace(new(), follow_ups=follow_ups)])
    worker(store)
    (claimed,) = claim(store)

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease, result='"a"')
        await handler.rollback()
        assert count(database, "task_executions") == 1
        await complete(store, handler, claimed.lease, result='"b"')
        assert count(database, "task_executions") == 1
        await handler.commit()

    handler(body)

    store.settle([replace(finish(claimed), has_follow_ups=True)])
    (follower,) = claim(store)
    assert follower.task == OTHER_TASK
    assert follower.args == f'{{"execution_id":"{claimed.lease.execution_id}","result":"b"}}'


def test_a_deferred_task_completes_too(handler: Handler, store: Store, effects: str) -> None:
    claimed = run_one(store)
    store.defer([claimed.lease])

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease)
        await handler.commit()

    handler(body)

    assert state_of(store, claimed.lease.execution_id) is State.COMPLETED


def test_a_new_life_begins_without_the_old_completion(
    handler: Handler, store: Store, effects: str
) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease)
        await handler.commit()

    handler(body)
    store.rerun([claimed.lease.execution_id])
    (again,) = claim(store)

    assert store.read_back([again.lease]) == ["undone"]
    assert store.settle([finish(again, "failed")]) == []


def test_a_connection_that_cannot_carry_it_is_refused(store: Store, effects: str) -> None:
    claimed = run_one(store)

    with pytest.raises(ConnectionRefused):
        store.complete_on(object(), claimed.lease, result="null", started_at=None)

    assert state_of(store, claimed.lease.execution_id) is State.RUNNING


def test_an_open_completion_is_in_nobodys_way(
    handler: Handler, store: Store, database: Database, effects: str, clock: ManualClock
) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease)
        if database.dialect == "postgres":  # SQLite has one writer, and this is it
            other = run_one(store, "another")
            assert store.settle([finish(other)]) == []
            clock.advance(MINUTE)
            declare_dead(store, WORKER)
        await handler.commit()

    handler(body)

    assert state_of(store, claimed.lease.execution_id) is State.COMPLETED
