"""Once, in the handler's own transaction: True exactly once for an execution and a name."""

import threading

import pytest

from penstock.errors import LeaseLost
from penstock.store.connections.callers import ConnectionRefused
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.callers import PlainCaller
from tests.contract.completing import (
    Handler,
    complete,
    drop_effects,
    once,
    take_effect,
)
from tests.contract.databases import Database, PostgresDatabase, count
from tests.contract.support import (
    MINUTE,
    WORKER,
    claim,
    declare_dead,
    finish,
    ids,
    run_one,
    types,
    worker,
)


def test_it_is_true_the_first_time_and_false_from_then_on(handler: Handler, store: Store) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        assert await once(store, handler, claimed.lease) is True
        assert await once(store, handler, claimed.lease) is False
        await handler.commit()
        assert await once(store, handler, claimed.lease) is False
        await handler.rollback()

    handler(body)


def test_names_do_not_know_of_each_other(handler: Handler, store: Store) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        assert await once(store, handler, claimed.lease, "charge") is True
        assert await once(store, handler, claimed.lease, "mail; 100 % ü 'x'") is True
        assert await once(store, handler, claimed.lease, "mail; 100 % ü 'x'") is False
        await handler.commit()

    handler(body)


def test_executions_do_not_know_of_each_other(handler: Handler, store: Store) -> None:
    first, second = run_one(store), run_one(store)

    async def body(handler: PlainCaller) -> None:
        assert await once(store, handler, first.lease) is True
        assert await once(store, handler, second.lease) is True
        await handler.commit()

    handler(body)


def test_rolled_back_it_never_was(handler: Handler, store: Store) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        assert await once(store, handler, claimed.lease) is True
        await handler.rollback()
        undo = await handler.savepoint()
        assert await once(store, handler, claimed.lease) is True
        await undo()
        assert await once(store, handler, claimed.lease) is True
        await handler.commit()
        assert await once(store, handler, claimed.lease) is False
        await handler.rollback()

    handler(body)


@pytest.mark.parametrize("ending", ["retry", "deferred_for", "released"])
def test_the_next_attempt_knows_what_was_done(
    handler: Handler, store: Store, clock: ManualClock, ending: str
) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        assert await once(store, handler, claimed.lease) is True
        await handler.commit()
        store.settle([finish(claimed, ending)])
        clock.advance(MINUTE)
        store.promote()
        (again,) = claim(store)
        assert await once(store, handler, again.lease) is False
        await handler.rollback()

    handler(body)


def test_whoever_recovers_it_knows_what_was_done(handler: Handler, store: Store) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        assert await once(store, handler, claimed.lease) is True
        await handler.commit()
        declare_dead(store, WORKER)
        worker(store, "other")
        (again,) = claim(store, "other")
        assert await once(store, handler, again.lease) is False
        await handler.rollback()

    handler(body)


def test_who_has_lost_the_lease_hears_so_and_nothing_is_written(
    handler: Handler, store: Store, database: Database, effects: str
) -> None:
    claimed = run_one(store)
    declare_dead(store, WORKER)

    async def body(handler: PlainCaller) -> None:
        await take_effect(handler, effects, claimed.lease)
        with pytest.raises(LeaseLost, match="'charge' once"):
            await once(store, handler, claimed.lease)
        await handler.rollback()

    handler(body)

    assert (count(database, "effects"), count(database, "once_ledger")) == (0, 0)
    worker(store, "other")
    assert ids(claim(store, "other")) == [claimed.lease.execution_id]


def test_it_commits_with_the_completion(handler: Handler, store: Store, effects: str) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        if await once(store, handler, claimed.lease):
            await take_effect(handler, effects, claimed.lease)
        await complete(store, handler, claimed.lease)
        await handler.commit()

    handler(body)

    assert types(store.history(claimed.lease.execution_id))[-1] == "task.completed"


def test_a_rerun_does_not_do_it_again(handler: Handler, store: Store) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        assert await once(store, handler, claimed.lease) is True
        await complete(store, handler, claimed.lease)
        await handler.commit()
        store.rerun([claimed.lease.execution_id])
        (again,) = claim(store)
        assert await once(store, handler, again.lease) is False
        await handler.rollback()

    handler(body)


def test_a_swept_execution_leaves_nothing_in_the_ledger(
    handler: Handler, store: Store, database: Database, clock: ManualClock
) -> None:
    claimed = run_one(store)

    async def body(handler: PlainCaller) -> None:
        assert await once(store, handler, claimed.lease) is True
        await complete(store, handler, claimed.lease)
        await handler.commit()

    handler(body)
    clock.advance("2d")

    assert store.sweep(older_than=MINUTE).removed == 1
    assert count(database, "once_ledger") == 0


def test_a_connection_that_cannot_carry_it_is_refused(store: Store, effects: str) -> None:
    claimed = run_one(store)

    with pytest.raises(ConnectionRefused):
        store.once_on(object(), claimed.lease, "charge")


# --- two at once ------------------------------------------------------------------------


@pytest.mark.parametrize("first_commits", [True, False])
def test_of_a_zombie_and_its_successor_one_does_it(
    request: pytest.FixtureRequest, clock: ManualClock, first_commits: bool
) -> None:
    """The zombie's transaction is open while its successor asks: the second waits for the first."""
    database: PostgresDatabase = request.getfixturevalue("emptied_postgres")
    store = database.open(clock)
    claimed = run_one(store)
    zombie, successor = database.connect(), database.connect()
    assert store.once_on(zombie, claimed.lease, "charge") is True
    declare_dead(store, WORKER)
    worker(store, "other")
    (again,) = claim(store, "other")
    answers: list[bool] = []
    waiting = threading.Thread(
        target=lambda: answers.append(store.once_on(successor, again.lease, "charge"))
    )
    waiting.start()

    if first_commits:
        zombie.commit()
    else:
        zombie.rollback()
    waiting.join(10)
    successor.commit()

    assert answers == [not first_commits]
    for connection in (zombie, successor):
        connection.close()
    store.close()
    drop_effects(database)
