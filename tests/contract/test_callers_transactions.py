"""What a caller's transaction does with the executions in it, for every kind of caller."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.model.executions import Created
from penstock.model.states import State
from penstock.store.contract import Store
from tests.contract.callers import ON_POSTGRES, ON_SQLITE, Opening, PlainCaller, wake_ups
from tests.contract.databases import Database, PostgresDatabase, count
from tests.contract.support import MINUTE, claim, drain, enqueue, ids, new, types, worker

Caller = Callable[[Callable[[PlainCaller], Awaitable[None]]], None]


def _on(database: str, openings: dict[str, Opening]) -> list[object]:
    marks = [pytest.mark.postgres] if "postgres" in database else []
    return [pytest.param((database, name), id=name, marks=marks) for name in openings]


@pytest.fixture(params=_on("sqlite", ON_SQLITE) + _on("emptied_postgres", ON_POSTGRES))
def opening(request: pytest.FixtureRequest) -> tuple[str, str]:
    chosen: tuple[str, str] = request.param
    return chosen


@pytest.fixture
def database(request: pytest.FixtureRequest, opening: tuple[str, str]) -> Iterator[Database]:
    database: Database = request.getfixturevalue(opening[0])
    yield database
    if database.dialect == "postgres":
        database.query("DROP TABLE IF EXISTS orders")


@pytest.fixture
def orders(database: Database, store: Store) -> str:
    """A table of the caller's own, under the name that its connection finds it by."""
    database.query("CREATE TABLE orders (id INTEGER)")
    return f"{database.schema}.orders" if isinstance(database, PostgresDatabase) else "orders"


@pytest.fixture
def caller(opening: tuple[str, str], database: Database, store: Store) -> Caller:
    """Runs a coroutine function with a caller that has just opened its connection."""
    open_for = (ON_SQLITE | ON_POSTGRES)[opening[1]]

    async def use(body: Callable[[PlainCaller], Awaitable[None]]) -> None:
        async with open_for(database) as caller:
            await body(caller)

    return lambda body: asyncio.run(use(body))


def nothing_was_written(database: Database) -> bool:
    return not any(
        count(database, table) for table in ("task_executions", "task_outbox", "execution_events")
    )


def test_committed_there_is_one_execution_and_one_wake_up(
    caller: Caller, store: Store, database: Database, orders: str
) -> None:
    requested = new()

    async def body(caller: PlainCaller) -> None:
        await caller.write(f"INSERT INTO {orders} VALUES (1)")
        answers = await caller.enqueue(store, [requested])
        assert answers == [Created(requested.id, created=True, state=State.READY)]
        assert heard() == 0
        assert nothing_was_written(database)
        await caller.commit()
        assert heard() == 1

    with wake_ups(database) as heard:
        caller(body)

    assert count(database, "orders") == 1
    assert count(database, "task_executions") == 1
    assert count(database, "task_outbox") == 1
    assert types(store.history(requested.id)) == ["task.created", "task.marked_ready"]
    worker(store)
    assert ids(claim(store)) == [requested.id]


def test_rolled_back_there_was_never_an_execution(
    caller: Caller, store: Store, database: Database, orders: str
) -> None:
    async def body(caller: PlainCaller) -> None:
        await caller.write(f"INSERT INTO {orders} VALUES (1)")
        await caller.enqueue(store, [new()])
        await caller.rollback()

    with wake_ups(database) as heard:
        caller(body)
        assert heard() == 0

    assert nothing_was_written(database)
    assert count(database, "orders") == 0


def test_an_execution_that_comes_first_opens_the_transaction(
    caller: Caller, store: Store, database: Database
) -> None:
    async def body(caller: PlainCaller) -> None:
        await caller.enqueue(store, [new()])
        assert nothing_was_written(database)
        await caller.rollback()
        assert nothing_was_written(database)
        await caller.enqueue(store, [new()])
        await caller.commit()

    caller(body)

    assert count(database, "task_executions") == 1


def test_a_rolled_back_savepoint_takes_only_its_own_executions_with_it(
    caller: Caller, store: Store, database: Database
) -> None:
    kept, undone = new(), new()

    async def body(caller: PlainCaller) -> None:
        await caller.enqueue(store, [kept])
        undo = await caller.savepoint()
        await caller.enqueue(store, [undone])
        await undo()
        await caller.commit()

    caller(body)

    worker(store)
    assert drain(store) == [kept.id]
    assert store.get([undone.id]) == []
    assert store.history(undone.id) == []


def test_a_rolled_back_savepoint_alone_leaves_nothing_and_wakes_nobody(
    caller: Caller, store: Store, database: Database
) -> None:
    async def body(caller: PlainCaller) -> None:
        undo = await caller.savepoint()
        await caller.enqueue(store, [new()])
        await undo()
        await caller.commit()

    with wake_ups(database) as heard:
        caller(body)
        # SQLite's workers watch the file, and a commit with nothing in it changes the file.
        assert heard() == 0 or database.dialect == "sqlite"

    assert nothing_was_written(database)


def test_a_thousand_executions_are_one_call_in_their_order(
    caller: Caller, store: Store, database: Database
) -> None:
    requested = [new(args=f'{{"n": {n}, "of": "100 % ü"}}') for n in range(1000)]

    async def body(caller: PlainCaller) -> None:
        answers = await caller.enqueue(store, requested)
        assert [answer.id for answer in answers] == [one.id for one in requested]
        assert all(answer.created for answer in answers)
        await caller.commit()

    with wake_ups(database) as heard:
        caller(body)
        assert heard() == 1

    queued = database.query("SELECT task_execution_id FROM task_outbox ORDER BY seq")
    assert [str(row[0]) for row in queued] == [one.id for one in requested]
    (last,) = store.get([requested[-1].id])
    assert last.args == requested[-1].args


def test_a_taken_key_is_answered_with_its_holder(caller: Caller, store: Store) -> None:
    holder = enqueue(store, key="order-1")
    other = new(key="order-2")

    async def body(caller: PlainCaller) -> None:
        assert await caller.enqueue(store, [new(key="order-1"), other]) == [
            Created(holder, created=False, state=State.READY),
            Created(other.id, created=True, state=State.READY),
        ]
        assert await caller.enqueue(store, [new(key="order-2")]) == [
            Created(other.id, created=False, state=State.READY)
        ]
        await caller.commit()

    caller(body)

    assert {one.id for one in store.find()} == {holder, other.id}


def test_executions_of_one_serial_wait_for_each_other(caller: Caller, store: Store) -> None:
    first, second = new(serial="order-1"), new(serial="order-1")

    async def body(caller: PlainCaller) -> None:
        answers = await caller.enqueue(store, [first])
        answers += await caller.enqueue(store, [second])
        assert [answer.state for answer in answers] == [State.READY, State.WAITING]
        await caller.commit()

    caller(body)

    worker(store)
    assert drain(store) == [first.id, second.id]


def test_a_future_execution_is_scheduled(caller: Caller, store: Store, database: Database) -> None:
    requested = new(delay=MINUTE)

    async def body(caller: PlainCaller) -> None:
        (answer,) = await caller.enqueue(store, [requested])
        assert answer.state is State.SCHEDULED
        await caller.commit()

    caller(body)

    assert count(database, "task_outbox") == 0
    assert types(store.history(requested.id)) == ["task.created", "task.scheduled"]
