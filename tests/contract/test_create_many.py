"""Thousands of executions in one call: all or none, each as it was asked for, in their order."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter

import pytest
from msgspec.structs import replace

from penstock.errors import StoreRefused
from penstock.model.executions import Created, NewExecution
from penstock.model.payloads import encode
from penstock.model.states import State
from penstock.store.contract import Store
from tests.contract.databases import Database, PostgresDatabase, count
from tests.contract.support import (
    MINUTE,
    OTHER_TASK,
    QUEUE,
    TASK,
    Options,
    claim,
    enqueue,
    get,
    new,
    types,
    worker,
)
from tests.e2e.command_line import wait_until

MANY = 2_500  # more than goes into one statement, and not a multiple of it
FOLLOW_UPS = '{"on_success":[]}'


def written(requested: NewExecution) -> Created:
    return Created(requested.id, created=True, state=State.READY)


def test_each_of_thousands_is_stored_as_it_was_asked_for(store: Store) -> None:
    """What most of a call have in common is told once: those that differ must not have it."""
    usual = [new(priority=3, queue="images", max_crashes=7) for _ in range(MANY)]
    others: list[tuple[str, Options]] = [
        (OTHER_TASK, {"priority": 3, "queue": "images", "max_crashes": 7}),
        (TASK, {"priority": 0, "queue": "images", "max_crashes": 7}),
        (TASK, {"priority": -5, "queue": QUEUE, "max_crashes": 7}),
        (TASK, {"priority": 3, "queue": "images", "max_crashes": 1, "delay": MINUTE}),
    ]
    different = {
        at: new(task, **options)
        for at, (task, options) in zip((1, 999, 1000, MANY - 1), others, strict=True)
    }
    batch = [different.get(at, one) for at, one in enumerate(usual)]
    later = different[MANY - 1]

    answers = store.create(batch)

    assert [one.id for one in answers] == [one.id for one in batch]
    assert {one.id for one in answers if one.state is State.SCHEDULED} == {later.id}
    for requested in (batch[0], *different.values(), batch[1001], batch[-2]):
        stored = get(store, requested.id)
        for name in ("task", "queue", "priority", "max_crashes", "args"):
            assert getattr(stored, name) == getattr(requested, name), name


def test_thousands_are_handed_out_in_the_order_of_the_call(store: Store) -> None:
    worker(store)
    batch = sorted((new() for _ in range(MANY)), key=lambda one: one.id, reverse=True)
    store.create(batch)
    claimed = [one.lease.execution_id for _ in range(5) for one in claim(store, limit=MANY // 5)]
    assert claimed == [one.id for one in batch]


@pytest.mark.parametrize("again", [1, 999, 1000, MANY - 1])
def test_an_id_given_twice_among_thousands_is_one_execution(
    store: Store, database: Database, again: int
) -> None:
    batch = [new() for _ in range(MANY)]
    batch[again] = batch[0]
    assert store.create(batch) == [written(one) for one in batch]
    assert count(database, "task_executions") == MANY - 1
    assert count(database, "task_outbox") == MANY - 1
    assert count(database, "execution_events") == 2 * (MANY - 1)


@pytest.mark.parametrize("known", [0, 999, 1000, MANY - 1])
def test_thousands_are_written_though_one_of_them_is_there_already(
    store: Store, database: Database, known: int
) -> None:
    batch = [new() for _ in range(MANY)]
    store.create([batch[known]])
    assert store.create(batch) == [written(one) for one in batch]
    assert store.create(batch) == [written(one) for one in batch]
    assert count(database, "task_outbox") == MANY
    assert count(database, "execution_events") == 2 * MANY


def _nul_in_queue(one: NewExecution) -> NewExecution:
    return replace(one, queue="a\x00b")


def _half_a_sign_in_task(one: NewExecution) -> NewExecution:
    return replace(one, task="\ud800")


def _nul_in_trace(one: NewExecution) -> NewExecution:
    return replace(one, trace="\x00")


def _no_id(one: NewExecution) -> NewExecution:
    return replace(one, id="\x00")


AWKWARD = [
    "plain", "NULL", "{}", "a,b", 'a "quoted" word', "back\\slash", "\\", '"', " spaces ",
    "ünïcode", "'",
]  # fmt: skip
SPOILT = [_nul_in_queue, _half_a_sign_in_task, _nul_in_trace, _no_id]


@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize("at", [0, 1500, MANY - 1])
def test_one_that_cannot_be_stored_refuses_thousands_and_nothing_is_left(
    store: Store, database: Database, spoil: Callable[[NewExecution], NewExecution], at: int
) -> None:
    batch = [new() for _ in range(MANY)]
    batch[at] = spoil(batch[at])
    with pytest.raises(StoreRefused):
        store.create(batch)
    for table in ("task_executions", "task_outbox", "execution_events"):
        assert count(database, table) == 0
    assert enqueue(store)


@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize("beside", [0, 1])
def test_a_single_one_that_cannot_be_stored_is_refused(
    store: Store,
    database: Database,
    spoil: Callable[[NewExecution], NewExecution],
    beside: int,
) -> None:
    with pytest.raises(StoreRefused):
        store.create([*(new() for _ in range(beside)), spoil(new())])
    assert count(database, "task_executions") == 0
    assert enqueue(store)


@pytest.mark.parametrize("times", [1, MANY])
def test_what_each_of_a_call_has_for_itself_does_not_mix(
    store: Store, database: Database, times: int
) -> None:
    batch = [
        replace(
            new(task=text, queue=text, args=encode(text), priority=n % 3, max_crashes=n % 5),
            follow_ups=None if n % 2 else encode([text]),
            trace=encode(text) if n % 3 else None,
        )
        for n, text in enumerate((AWKWARD * times)[: max(len(AWKWARD), times)])
    ]
    assert store.create(batch) == [written(one) for one in batch]

    columns = ("task", "queue", "args", "priority", "max_crashes", "follow_ups", "trace")
    stored = database.query(f"SELECT {', '.join(columns)} FROM task_executions ORDER BY id")
    assert stored == [attrgetter(*columns)(one) for one in batch]
    placed = database.query("SELECT task, queue, priority FROM task_outbox ORDER BY seq")
    assert placed == [(one.task, one.queue, one.priority) for one in batch]


def test_a_single_one_keeps_what_follows_it_and_its_trace(store: Store) -> None:
    requested = replace(new(), follow_ups=FOLLOW_UPS, trace='{"traceparent":"00"}')
    worker(store)
    assert store.create([requested]) == [written(requested)]
    assert store.create([requested]) == [written(requested)]
    assert types(store.history(requested.id)) == ["task.created", "task.marked_ready"]
    (claimed,) = claim(store)
    assert (claimed.has_follow_ups, claimed.trace) == (True, '{"traceparent":"00"}')


@pytest.mark.postgres
def test_a_value_that_the_server_refuses_leaves_nothing_of_thousands(
    emptied_postgres: PostgresDatabase,
) -> None:
    """Found by the server in the middle of a pipeline, whose connection is used again."""
    store = emptied_postgres.open()
    batch = [new() for _ in range(MANY)]
    batch[1500] = replace(batch[1500], priority=2**40)
    for _ in range(2):
        with pytest.raises(StoreRefused):
            store.create(batch)
        assert count(emptied_postgres, "task_executions") == 0
    assert len(store.create([new() for _ in range(MANY)])) == MANY
    store.close()


@pytest.mark.postgres
@pytest.mark.parametrize("committed", [True, False])
def test_a_server_process_that_dies_in_the_middle_leaves_no_half_of_thousands(
    emptied_postgres: PostgresDatabase, *, committed: bool
) -> None:
    """Somebody else is writing one of them, so that there is a middle to die in."""
    store = emptied_postgres.open()
    batch = [new() for _ in range(MANY)]
    killed: set[int] = set()

    def waiting() -> set[int]:
        found = emptied_postgres.query(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock' "
            "AND wait_event_type = 'Lock' AND datname = current_database()"
        )
        return {row[0] for row in found} - killed

    with emptied_postgres.connect() as somebody, ThreadPoolExecutor(1) as pool:
        store.create_on(somebody, [batch[1500]])
        answer = pool.submit(store.create, batch)
        wait_until(lambda: bool(waiting()))
        killed |= waiting()
        for pid in killed:
            emptied_postgres.query("SELECT pg_terminate_backend(:pid)", {"pid": pid})
        wait_until(lambda: bool(waiting()))  # it tries again, on another connection
        assert count(emptied_postgres, "task_executions") == 0
        if committed:
            somebody.commit()
        else:
            somebody.rollback()
        assert answer.result(timeout=60) == [written(one) for one in batch]
    assert count(emptied_postgres, "task_outbox") == MANY
    assert count(emptied_postgres, "execution_events") == 2 * MANY
    store.close()
