"""Runs that start, and tasks of runs that complete, in somebody else's transaction."""

import json

import pytest

from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.store.contract import Store
from tests.contract.callers import PlainCaller, wake_ups
from tests.contract.completing import (
    PLAIN_KINDS,
    Handler,
    complete,
    start_runs,
)
from tests.contract.databases import Database, count
from tests.contract.flows import (
    chain,
    claim_all,
    completed,
    diamond,
    graph,
    live_through,
    new_run,
    node,
    place,
    run_of,
    start,
    states,
)
from tests.contract.support import worker


def test_a_run_exists_exactly_when_its_transaction_committed(
    handler: Handler, store: Store, database: Database
) -> None:
    kept, undone = new_run(diamond()), new_run(diamond())

    async def body(caller: PlainCaller) -> None:
        await start_runs(store, caller, [undone])
        await caller.rollback()
        assert heard() == 0
        await start_runs(store, caller, [kept])
        assert store.runs([kept.id]) == []
        await caller.commit()
        assert heard() == 1

    with wake_ups(database) as heard:
        handler(body)

    assert [run.id for run in store.find_runs()] == [kept.id]
    assert store.history(undone.id) == []
    assert count(database, "task_executions") == 4
    worker(store)
    assert live_through(store) == [0, 1, 2, 3]
    assert run_of(store, kept.id).state is RunState.COMPLETED


def test_dependents_go_on_after_the_commit_of_a_completion(
    handler: Handler, store: Store, database: Database
) -> None:
    worker(store)
    shape = graph(node("a"), node("b", 0, outputs={"value": 0}, context="shared"))
    run_id = start(store, shape)
    (first,) = claim_all(store)

    async def body(caller: PlainCaller) -> None:
        await complete(store, caller, first.lease, result="[1, 2]", writes='{"seen":true}')
        assert states(store, run_id) == [State.RUNNING, State.WAITING]
        await caller.commit()

    handler(body)
    store.propagate()
    (second,) = claim_all(store)
    assert json.loads(second.args) == {
        "value": [1, 2],
        "shared": {"day": "monday", "seen": True},
    }
    store.settle([completed(second)])
    assert run_of(store, run_id).state is RunState.COMPLETED


def test_a_completion_that_is_rolled_back_lets_nobody_go(
    handler: Handler, store: Store, database: Database
) -> None:
    worker(store)
    run_id = start(store, chain(2))
    (first,) = claim_all(store)

    async def body(caller: PlainCaller) -> None:
        await complete(store, caller, first.lease)
        await caller.rollback()

    handler(body)
    assert store.propagate() == 0
    assert states(store, run_id) == [State.RUNNING, State.WAITING]
    assert store.settle([completed(first)]) == []
    assert states(store, run_id) == [State.COMPLETED, State.READY]


@pytest.mark.parametrize("kind", PLAIN_KINDS[1:], indirect=True)
def test_an_open_completion_keeps_no_other_run_waiting(
    handler: Handler, store: Store, database: Database
) -> None:
    """PostgreSQL only: on SQLite an open transaction is the one writer there is."""
    worker(store)
    mine, other = start(store, diamond()), start(store, diamond())
    first, elsewhere = claim_all(store)
    store.settle([completed(first)])
    left, right = claim_all(store)
    assert [place(left), place(right)] == [1, 2]

    async def body(caller: PlainCaller) -> None:
        await complete(store, caller, left.lease)
        # Another run, and even the other branch of the same run.
        assert store.settle([completed(elsewhere)]) == []
        assert store.settle([completed(right)]) == []
        assert live_through(store) == [1, 2, 3]
        assert run_of(store, other).state is RunState.COMPLETED
        assert states(store, mine)[3] is State.WAITING
        await caller.commit()

    handler(body)
    store.propagate()
    assert live_through(store) == [3]
    assert run_of(store, mine).state is RunState.COMPLETED
