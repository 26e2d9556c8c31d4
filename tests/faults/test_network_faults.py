"""The network between the workers and PostgreSQL delays, cuts, swallows and falls silent."""

import logging
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from penstock import App, TaskHandle
from penstock.model.events import EventType
from penstock.store.postgres import connecting, deadlines
from penstock.store.postgres import store as postgres_store
from penstock.testing import Faults, Proxy, proxy_to
from tests.support import tasks
from tests.support.auditing import effects_once
from tests.support.handling import effects, make_effects
from tests.support.remote import Remote
from tests.support.workers import QUICK, Place, counted, types, wait_until

pytestmark = pytest.mark.postgres

POLL = 1.0
PATIENCE = 1.0
DEFAULTS = {"most": connecting.MOST_CONNECTIONS, "patience": PATIENCE}


def test_a_network_that_cuts_every_connection_again_and_again_loses_nothing(
    remote: Remote,
) -> None:
    ids = remote.enqueue_steps(600)
    for _ in range(2):
        remote.workers.start(slots=4, **QUICK)
    for share in range(1, 6):
        wait_until(lambda: remote.completed() >= 100 * share)  # noqa: B023
        remote.proxy.cut()
    remote.wait_for(ids)
    assert remote.completed() == len(ids)


def test_work_is_found_although_every_notification_is_dropped(remote: Remote) -> None:
    remote.proxy.drops_notifications = True
    remote.workers.start(slots=2, poll=POLL, **QUICK)
    for number in range(3):
        execution = tasks.step.enqueue(number)
        begun = time.monotonic()
        assert execution.result(timeout=20) == number
        assert time.monotonic() - begun < POLL + 3


@pytest.mark.slow
def test_every_query_delayed_by_two_seconds_costs_time_and_nothing_else(remote: Remote) -> None:
    ids = remote.enqueue_steps(20)
    worker = remote.workers.start(slots=5, heartbeat=3, lease=15)
    held = tasks.hold.enqueue(remote.place.gate).id
    wait_until(lambda: counted(remote.store, [held], EventType.CLAIMED).total() == 1)
    (worker_id,) = remote.workers.ids_of(worker)
    remote.proxy.delay = 1.0  # there and back: two seconds for each answer
    ids += remote.enqueue_steps(10)
    remote.place.open_gate()
    remote.wait_for([*ids, held])
    assert remote.workers.ids_of(worker) == [worker_id]  # nobody took it for dead
    assert counted(remote.store, ids, EventType.RECOVERED).total() == 0
    remote.proxy.delay = 0.0


# --- half-open --------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that takes longer than a second is given up; in production a minute or so."""
    monkeypatch.setattr(deadlines, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(postgres_store, "LONGEST_PULSE", PATIENCE)

    monkeypatch.setattr(connecting.Connections.__init__, "__kwdefaults__", DEFAULTS)


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    with proxy_to(postgres_url) as proxy:
        yield proxy


@pytest.mark.parametrize("operation", ["claim", "settle", "heartbeat"])
def test_a_worker_gives_up_a_connection_that_fell_silent_and_goes_on(
    impatient: None,
    proxy: Proxy,
    postgres_url: str,
    postgres_schema: str,
    operation: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither side learns of it: what is sent is acknowledged, and no answer ever comes."""
    caplog.set_level(logging.INFO, "penstock.worker")
    app = App(proxy.url(postgres_url), schema=postgres_schema, migrate=True)
    runs: list[int] = []

    @app.task
    def step(number: int) -> int:
        runs.append(number)
        time.sleep(0.01)
        return number

    silence = Faults().at(f"before_{operation}", proxy.leave_half_open, skip=2)
    with silence.injected(app), app.worker(heartbeat=0.3, lease=3, poll=0.5) as worker:
        name = worker.id
        executions = [step.enqueue(0)]
        # One after the other: together they could be claimed and settled in a single batch.
        while not silence.happened[f"before_{operation}"]:
            executions[-1].result(timeout=30)
            executions.append(step.enqueue(len(executions)))
        executions += [step.enqueue(len(executions) + more) for more in range(10)]
        everything = list(range(len(executions)))
        assert [one.result(timeout=30) for one in executions] == everything
        assert worker.id == name
    assert sorted(runs) == everything
    assert counted(app.store, [one.id for one in executions], EventType.RECOVERED).total() == 0
    app.close()


# --- a commit whose reply is lost -------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_a_handlers_commit_without_a_reply_is_decided_by_the_database(
    proxy: Proxy,
    postgres_url: str,
    postgres_schema: str,
    make_app_on: Callable[[str, str], App],
    tmp_path_factory: pytest.TempPathFactory,
    committed: bool,
) -> None:
    """The handler sees its commit fail; whether it did, only the database knows."""
    place = Place(postgres_url, postgres_schema, tmp_path_factory.mktemp("place"))
    app, first = make_app_on(postgres_url, postgres_schema), threading.Event()
    app.migrate()
    make_effects(place)

    @app.task(retry=[0, 0])
    def pay(handle: TaskHandle) -> int:
        options = f"-c search_path={postgres_schema}"
        with psycopg.connect(proxy.url(postgres_url), options=options) as connection:
            connection.execute("INSERT INTO effects VALUES (%s)", [handle.execution_id])
            handle.complete(handle.attempt, connection=connection)
            if not first.is_set():
                first.set()
                _lose_the_commit(proxy, place, handle.execution_id, committed=committed)
        return handle.attempt

    execution = pay.enqueue()
    with app.worker():
        result = execution.result(timeout=20)
    assert result == (1 if committed else 2)
    assert effects_once(place, [execution.id]) == []
    assert types(app.store, execution.id).count("task.completed") == 1
    app.close()


def _lose_the_commit(proxy: Proxy, place: Place, id_: str, *, committed: bool) -> None:
    """Cut the connection while its commit is under way: after it took place, or before."""
    if not committed:
        proxy.stall()

    def cut() -> None:
        if committed:
            wait_until(lambda: id_ in effects(place))
        else:
            time.sleep(0.3)
        proxy.cut()
        proxy.resume()
        proxy.swallows_replies = False

    proxy.swallows_replies = committed
    threading.Thread(target=cut, daemon=True).start()


@pytest.fixture
def make_app_on() -> Iterator[Callable[[str, str], App]]:
    made: list[App] = []

    def make(url: str, schema: str) -> App:
        made.append(App(url, schema=schema, migrate=True))
        return made[-1]

    yield make
    for app in made:
        app.close()
