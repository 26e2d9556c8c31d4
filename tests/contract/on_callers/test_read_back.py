"""After a handler that completed in its own transaction, the database says what became of it."""

import asyncio

import pytest

from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.callers import PlainCaller
from tests.contract.completing import PLAIN_KINDS, Handler, Kind, complete
from tests.contract.support import (
    ENDINGS,
    MINUTE,
    WORKER,
    claim,
    declare_dead,
    finish,
    get,
    run_one,
    types,
    worker,
)
from tests.support.workers import wait_until


@pytest.fixture(params=PLAIN_KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


def test_a_committed_completion_is_settled(handler: Handler, store: Store) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease)
        await handler.commit()

    handler(body)

    assert store.read_back([claimed.lease]) == ["settled"]


def test_a_transaction_that_is_left_open_is_not_waited_for(handler: Handler, store: Store) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease)
        asking = asyncio.get_running_loop().time()
        assert store.read_back([claimed.lease]) == ["open"]
        assert asyncio.get_running_loop().time() - asking < 1
        await handler.commit()
        assert store.read_back([claimed.lease]) == ["settled"]

    handler(body)


def test_a_rolled_back_completion_is_undone_and_the_lease_held(
    handler: Handler, store: Store
) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease)
        await handler.rollback()

    handler(body)

    assert store.read_back([claimed.lease]) == ["undone"]
    assert store.settle([finish(claimed, "retry")]) == []


def test_a_connection_that_was_cut_has_undone_it(handler: Handler, store: Store) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease)
        handler.connection.close()

    handler(body)

    wait_until(lambda: store.read_back([claimed.lease]) != ["open"], what="the server hears of it")
    assert store.read_back([claimed.lease]) == ["undone"]


def test_a_lease_that_went_to_somebody_else_is_lost(store: Store) -> None:
    claimed = run_one(store)
    declare_dead(store, WORKER)
    assert store.read_back([claimed.lease]) == ["lost"]

    worker(store, "other")
    (again,) = claim(store, "other")

    assert store.read_back([claimed.lease, again.lease]) == ["lost", "undone"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_the_worker_itself_has_settled_is_settled(store: Store, ending: str) -> None:
    claimed = run_one(store)
    store.settle([finish(claimed, ending)])

    assert store.read_back([claimed.lease]) == ["settled"]


def test_the_answers_come_in_the_order_of_the_questions(handler: Handler, store: Store) -> None:
    settled, undone, lost = run_one(store), run_one(store), run_one(store, "doomed")
    declare_dead(store, "doomed")

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, settled.lease)
        await handler.commit()

    handler(body)

    leases = [lost.lease, settled.lease, undone.lease]
    assert store.read_back(leases) == ["lost", "settled", "undone"]
    assert store.read_back(leases[::-1]) == ["undone", "settled", "lost"]
    assert store.read_back([]) == []


def test_an_execution_that_retention_has_removed_is_not_waited_for(
    handler: Handler, store: Store, clock: ManualClock
) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease)
        await handler.commit()

    handler(body)
    clock.advance("2d")
    assert store.sweep(older_than=MINUTE).removed == 1

    assert store.read_back([claimed.lease]) == ["lost"]


def test_reading_back_changes_nothing(handler: Handler, store: Store) -> None:
    claimed = run_one(store)
    before = get(store, claimed.lease.execution_id)

    store.read_back([claimed.lease])

    assert get(store, before.id) == before
    assert types(store.history(before.id))[-1] == "task.claimed"


# On SQLite there is one writer: nobody can recover anything while this transaction is open.
@pytest.mark.parametrize(
    "kind", [kind for kind in PLAIN_KINDS if "sqlite" not in repr(kind)], indirect=True
)
def test_a_dead_workers_open_completion_is_not_recovered_and_may_commit(
    handler: Handler, store: Store
) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        await complete(store, handler, claimed.lease)
        assert declare_dead(store, WORKER) == []
        await handler.commit()

    handler(body)

    assert store.read_back([claimed.lease]) == ["settled"]
    assert types(store.history(claimed.lease.execution_id))[-1] == "task.completed"


# --- progress ---------------------------------------------------------------------------


def shows(store: Store, execution_id: str) -> str | None:
    return get(store, execution_id).progress


def test_progress_is_shown_and_writes_no_event(store: Store) -> None:
    claimed = run_one(store)

    assert store.progress(claimed.lease, '{"fraction":0.5}') is True

    assert shows(store, claimed.lease.execution_id) == '{"fraction":0.5}'
    assert types(store.history(claimed.lease.execution_id))[-1] == "task.claimed"


def test_who_has_lost_the_lease_shows_nothing(store: Store) -> None:
    claimed = run_one(store)
    declare_dead(store, WORKER)

    assert store.progress(claimed.lease, '{"fraction":0.5}') is False

    assert shows(store, claimed.lease.execution_id) is None


def test_the_next_attempt_begins_without_progress(store: Store) -> None:
    claimed = run_one(store)
    store.progress(claimed.lease, '{"fraction":0.5}')
    store.settle([finish(claimed, "released")])
    assert shows(store, claimed.lease.execution_id) == '{"fraction":0.5}'

    claim(store)

    assert shows(store, claimed.lease.execution_id) is None
