"""Effect and completion in one transaction, whatever is killed: one effect for each task."""

import threading
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from penstock import App, TaskHandle
from penstock.model.events import EventType
from penstock.testing import Faults
from tests.support import handling
from tests.support.handling import connect, effects, make_effects, reached, start
from tests.support.workers import PATIENCE, QUICK, Place, Workers, counted, types, wait_until

# 200 runs in all. SQLite has one writer: of those that have begun to write, one comes further,
# and the others wait for it where they are.
CROWD = {"sqlite": 16, "postgresql": 20}
FEW = {"sqlite": 2, "postgresql": 10}


@pytest.fixture
def dialect(place: Place, app: App) -> str:
    make_effects(place)
    return place.url.partition(":")[0]


def there_is_one_effect_of_each(app: App, place: Place, ids: Sequence[str]) -> None:
    for one in ids:
        app.get(one).result(timeout=30)
    assert sorted(effects(place)) == sorted(ids)
    assert counted(app.store, ids, EventType.COMPLETED).total() == len(ids)


@pytest.mark.parametrize("stop_at", ["before", "effect", "completed", "committed"])
def test_a_worker_killed_on_the_way_leaves_one_effect_of_each_task(
    app: App, place: Place, workers: Workers, dialect: str, stop_at: str
) -> None:
    count = CROWD[dialect]
    requests = [handling.pay.request(stop_at=stop_at, gate=place.gate) for _ in range(count)]
    ids = [one.id for one in app.enqueue_many(requests)]
    first = start(workers, slots=count, **QUICK)
    writes = stop_at in {"effect", "completed"}
    expected = 1 if writes and dialect == "sqlite" else count
    wait_until(lambda: reached(place, stop_at) >= expected)

    first.kill()
    done_before = len(effects(place))
    place.open_gate()
    start(workers, slots=count, **QUICK)

    there_is_one_effect_of_each(app, place, ids)
    assert done_before == (count if stop_at == "committed" else 0)
    ran_again = {run.execution_id for run in place.runs() if run.pid != str(first.pid)}
    assert len(ran_again) == count - done_before


@pytest.mark.parametrize("stop_at", ["completed", "committed"])
def test_a_child_that_is_killed_on_the_way_leaves_one_effect(
    app: App, place: Place, workers: Workers, dialect: str, stop_at: str
) -> None:
    execution = handling.pay_in_process.enqueue(stop_at, place.gate)
    worker = start(workers, slots=1, **QUICK)
    wait_until(lambda: reached(place, stop_at) == 1)

    worker.signal_children(9)
    place.open_gate()

    there_is_one_effect_of_each(app, place, [execution.id])
    retries = types(app.store, execution.id).count("task.retry_scheduled")
    assert retries == (1 if stop_at == "completed" else 0)


def test_a_savepoint_that_was_rolled_back_is_found_out_and_the_task_tried_again(
    app: App, place: Place, workers: Workers, dialect: str
) -> None:
    count = CROWD[dialect]
    ids = [handling.pay_in_savepoint.enqueue().id for _ in range(count)]
    start(workers, slots=4, **QUICK)

    there_is_one_effect_of_each(app, place, ids)
    for one in ids:
        assert app.get(one).result() == 2
        assert types(app.store, one).count("task.retry_scheduled") == 1
    assert "was rolled back" in str(app.get(ids[0]).error)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_left_open_decides_when_it_ends(
    app: App, place: Place, workers: Workers, dialect: str, commits: bool
) -> None:
    count = FEW[dialect]
    ids = [handling.pay_later.enqueue(commits, place.gate).id for _ in range(count)]
    start(workers, slots=count, **QUICK)
    wait_until(lambda: reached(place, "open") >= 1)
    assert app.counts()["completed"] == 0

    there_is_one_effect_of_each(app, place, ids)
    attempts = {app.get(one).result() for one in ids}
    assert attempts == {1 if commits else 2}


def test_a_worker_killed_with_a_transaction_left_open_leaves_one_effect(
    app: App, place: Place, workers: Workers, dialect: str
) -> None:
    count = FEW[dialect]
    ids = [handling.pay_later.enqueue(True, place.gate).id for _ in range(count)]
    first = start(workers, slots=count, **QUICK)
    wait_until(lambda: reached(place, "open") >= (1 if dialect == "sqlite" else count))

    first.kill()
    assert effects(place) == []
    place.open_gate()
    start(workers, slots=count, **QUICK)

    there_is_one_effect_of_each(app, place, ids)


def test_a_start_that_is_being_told_comes_before_the_completion(
    make_app: Callable[[], App], place: Place
) -> None:
    """Behind it, the start would wait for the handler's transaction, and everybody for the start.

    SQLite has one writer: there everybody waits in any case.
    """
    app, gate = make_app(), threading.Event()
    telling, completed = threading.Event(), threading.Event()

    def let_the_handler_go_ahead() -> None:
        telling.set()
        completed.wait(0.5)

    @app.task
    def pay(handle: TaskHandle) -> None:
        telling.wait(PATIENCE)
        with closing(connect(place.url, place.schema)) as connection:
            handle.complete(None, connection=connection)
            completed.set()
            gate.wait(PATIENCE)
            connection.commit()

    @app.task
    def other() -> int:
        return 1

    paid = pay.enqueue()
    faults = Faults().at("before_start", let_the_handler_go_ahead)
    with faults.injected(app), app.worker(slots=2):
        assert completed.wait(PATIENCE)
        if place.url.startswith("sqlite"):
            gate.set()
        assert other.enqueue().result(timeout=10) == 1
        gate.set()
        paid.result(timeout=20)

    assert [event.type for event in paid.history()][-3:] == [
        "task.claimed", "task.started", "task.completed",
    ]  # fmt: skip
