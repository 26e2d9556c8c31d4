"""What can happen to an SQLite file: a lock that stays, a death in a transaction, a full disk."""

import asyncio
import gc
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import App, AsyncTaskHandle, TaskFailed, TaskHandle
from penstock.engine import settler
from penstock.engine import worker as worker_module
from penstock.errors import LockKept, StoreBusy, StoreUnavailable
from penstock.model.events import EventType
from penstock.store.sqlite import connecting, sharing
from penstock.store.sqlite.store import SqliteStore
from tests.support import tasks
from tests.support.workers import QUICK, Place, Workers, counted, wait_until

LEASE = 1.5
FOREIGN_WRITER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
connection.execute("ROLLBACK")
"""


@pytest.fixture(params=["sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(f"sqlite:///{tmp_path / 'penstock.db'}", "unused", tmp_path)
    for variable, value in place.environment.items():
        monkeypatch.setenv(variable, value)
    return place


def path_of(place: Place) -> str:
    return place.url.removeprefix("sqlite:///")


@contextmanager
def foreign_lock(place: Place, seconds: float) -> Iterator[None]:
    """Another program has the write lock, and nobody can tell when it will let go."""
    foreigner = subprocess.Popen(
        [sys.executable, "-c", FOREIGN_WRITER, path_of(place), str(seconds)],
        stdout=subprocess.PIPE,
    )
    assert foreigner.stdout is not None
    with foreigner.stdout:
        foreigner.stdout.readline()
    yield
    assert foreigner.wait(60) == 0


def test_a_foreign_write_lock_longer_than_two_leases_takes_no_task_from_its_worker(
    app: App, place: Place, workers: Workers
) -> None:
    ids = [tasks.hold.enqueue(place.gate).id for _ in range(4)]
    both = [workers.start(slots=2, **QUICK) for _ in range(2)]
    wait_until(lambda: counted(app.store, ids, EventType.STARTED).total() == 4)
    names = [workers.ids_of(one) for one in both]
    with foreign_lock(place, 2 * LEASE):
        place.open_gate()
    assert {app.get(one).result(timeout=20) for one in ids} == {one.pid for one in both}
    time.sleep(LEASE)  # whoever is to be declared dead is so by now
    assert [workers.ids_of(one) for one in both] == names
    assert counted(app.store, ids, EventType.RECOVERED).total() == 0


@pytest.mark.parametrize("commits", [2, 6])
def test_a_worker_killed_inside_a_transaction_leaves_a_sound_file(
    app: App, place: Place, workers: Workers, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    ids = [one.id for one in app.enqueue_many([tasks.step.request(n) for n in range(40)])]
    monkeypatch.setenv("PENSTOCK_TEST_COMMITS", str(commits))
    victim = workers.start_with({}, target="tests.support.mid_commit:app", slots=4, **QUICK)
    assert victim.wait() == -signal.SIGKILL

    with closing(sqlite3.connect(path_of(place))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    workers.start(slots=4, **QUICK)
    assert [app.get(one).result(timeout=20) for one in ids] == list(range(40))


def test_a_full_disk_is_waited_for(
    make_app: Callable[[], App], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite is told that the file may not grow: what it says then is what a full disk says."""
    full = threading.Event()
    app, whole = make_app(), connecting.open_writer

    def open_writer(path: str, **how: Any) -> sqlite3.Connection:  # noqa: ANN401
        connection = whole(path, **how)
        if full.is_set():
            connection.execute("PRAGMA max_page_count = 1")  # as much as there is already
        return connection

    monkeypatch.setattr(sharing, "open_writer", open_writer)
    gate = threading.Event()

    @app.task
    def hold(number: int) -> int:
        gate.wait(20)
        return number

    def enqueue_until_full() -> None:
        for number in range(500):
            hold.using(run_after="1d").enqueue(number)

    executions = [hold.enqueue(n) for n in range(3)]
    with app.worker(slots=3, heartbeat=0.3, lease=1.5) as worker:
        wait_until(lambda: all(one.refresh().state == "running" for one in executions))
        name = worker.id
        full.set()
        app.store.close()  # the next write opens the file anew
        with pytest.raises(StoreUnavailable, match="full"):
            enqueue_until_full()
        gate.set()
        time.sleep(2 * LEASE)
        full.clear()
        app.store.close()
        assert [one.result(timeout=20) for one in executions] == [0, 1, 2]
        assert worker.id == name
    assert counted(app.store, [one.id for one in executions], EventType.RECOVERED).total() == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


@pytest.fixture
def impatient(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """An App whose worker gives up after half a second what it waits for in vain."""
    monkeypatch.setitem(SqliteStore.__init__.__kwdefaults__ or {}, "busy_timeout", 0.3)
    monkeypatch.setattr(settler, "LOCK_PATIENCE", 0.5)
    app = App(f"sqlite:///{path}", migrate=True)
    yield app
    app.close()


def test_a_step_within_a_transaction_of_ones_own_fails_and_keeps_nobody_waiting(
    path: Path, impatient: App
) -> None:
    @impatient.task(retry=None)
    def steps(handle: TaskHandle) -> int:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            return handle.step("once", lambda: 1)

    @impatient.task
    def other() -> int:
        return 2

    with impatient.worker():
        stuck, free = steps.enqueue(), other.enqueue()
        with pytest.raises(TaskFailed, match="LockKept"):
            stuck.result(timeout=20)
        assert free.result(timeout=20) == 2


Lock = Callable[[], object]


def by_a_step(handle: TaskHandle, lock: Lock) -> None:
    lock()
    handle.step("once", lambda: 1)


def by_deferring(handle: TaskHandle, lock: Lock) -> None:
    lock()
    handle.defer_until(lambda: False, every=1)


def by_going_on(handle: TaskHandle, lock: Lock) -> None:
    """Its condition is true as soon as it writes, which begins a transaction."""
    looks = iter(range(2))
    handle.defer_until(lambda: next(looks) == 1 and lock(), every=0.1)


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
@pytest.mark.parametrize("wait", [by_a_step, by_deferring, by_going_on])
def test_a_handler_that_left_a_transaction_open_keeps_nobody_waiting(
    wait: Callable[[TaskHandle, Lock], None], path: Path, impatient: App
) -> None:
    """The garbage collector would close its connection, but nobody knows when it comes by."""

    @impatient.task(retry=None)
    def careless(handle: TaskHandle) -> None:
        connection = sqlite3.connect(path)
        wait(handle, lambda: connection.execute("BEGIN IMMEDIATE"))

    gc.disable()
    try:
        with impatient.worker():
            stuck = careless.enqueue()
            with pytest.raises(TaskFailed, match="LockKept"):
                stuck.result(timeout=20)
    finally:
        gc.enable()


def test_a_step_that_was_refused_is_taken_and_stored_by_who_asks_again(
    path: Path, impatient: App
) -> None:
    taken: list[str] = []

    @impatient.task(retry=[0])
    def steps(handle: TaskHandle) -> None:
        if handle.attempt == 2:
            handle.step("charge", taken.append, "in the second attempt")
            return
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(LockKept):
                handle.step("charge", taken.append, "in vain")
        handle.step("charge", taken.append, "again")
        raise ConnectionError

    with impatient.worker():
        steps.enqueue().result(timeout=20)
    assert taken == ["in vain", "again"]


def test_a_step_whose_answer_was_not_waited_for_is_not_answered_from_memory_alone(
    path: Path, impatient: App
) -> None:
    taken: list[str] = []

    @impatient.task(retry=None)
    async def steps(handle: AsyncTaskHandle) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await handle.step("charge", taken.append, "in vain")
            with pytest.raises(LockKept):
                await handle.step("charge", taken.append, "not yet")
        await handle.step("charge", taken.append, "again")
        await handle.step("charge", taken.append, "once more")

    with impatient.worker():
        steps.enqueue().result(timeout=20)
    assert taken == ["in vain", "again"]


def test_a_run_that_could_not_be_started_is_started_once_by_who_asks_again(
    path: Path, impatient: App
) -> None:
    began: list[int] = []
    leaf = impatient.workflow("leaf")

    @leaf.task
    def only() -> int:
        began.append(1)
        return 7

    @impatient.task(retry=None)
    def parent(handle: TaskHandle) -> Any:  # noqa: ANN401
        if handle.attempt == 1 and not began:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreBusy):
                    handle.run(leaf)
        return handle.run(leaf)

    with impatient.worker():
        assert parent.enqueue().result(timeout=20) == {"only": 7}
    assert began == [1]


def test_who_was_refused_and_goes_on_is_seen_to(path: Path, impatient: App) -> None:
    refused, seen = threading.Event(), threading.Event()

    @impatient.task(retry=None)
    def goes_on(handle: TaskHandle) -> None:
        with closing(sqlite3.connect(path)) as connection, pytest.raises(LockKept):
            by_going_on(handle, lambda: connection.execute("BEGIN IMMEDIATE"))
        refused.set()
        assert seen.wait(20)

    with impatient.worker():
        execution = goes_on.enqueue()
        assert refused.wait(20)
        wait_until(lambda: execution.refresh().sub_state == "active")
        seen.set()
        execution.result(timeout=20)


def test_a_write_that_another_thread_has_done_does_not_wait_for_the_writes_of_others(
    path: Path,
) -> None:
    """Each that waits for the file's lock in vain takes its time, and they may be many."""
    busy_timeout = 0.3
    file = sharing.SharedFile(str(path), busy_timeout=busy_timeout)
    file.write("begin", lambda connection: connection.execute("CREATE TABLE pages (n INTEGER)"))
    took: list[float] = []

    def write_in_vain() -> None:
        for _ in range(4):
            begun = time.monotonic()
            with pytest.raises(StoreBusy):
                file.write(
                    "add", lambda connection: connection.execute("INSERT INTO pages VALUES (1)")
                )
            took.append(time.monotonic() - begun)

    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        writers = [threading.Thread(target=write_in_vain) for _ in range(8)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
    file.close()
    assert len(took) == 32
    assert max(took) < 3.5 * busy_timeout


def test_a_worker_that_stops_does_not_wait_until_a_step_is_refused_and_settles_the_others(
    path: Path, impatient: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settler, "LOCK_PATIENCE", 60.0)
    locked = threading.Event()

    @impatient.task(retry=None)
    def steps(handle: TaskHandle) -> int:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            locked.set()
            time.sleep(0.15)  # the worker tries in vain to tell its start meanwhile
            return handle.step("once", lambda: 1)

    @impatient.task
    def other() -> int:
        assert locked.wait(20)
        return 2

    with impatient.worker(slots=2, grace=20):
        stuck, free = steps.enqueue(), other.enqueue()
        assert locked.wait(20)
    assert (stuck.refresh().state, free.refresh().state) == ("failed", "completed")
    assert counted(impatient.store, [free.id], EventType.RECOVERED).total() == 0


def test_a_worker_whose_settler_waits_for_a_lock_after_a_long_rest_is_not_taken_for_stuck(
    path: Path, impatient: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settler, "LOCK_PATIENCE", 60.0)
    monkeypatch.setattr(worker_module, "STUCK_AFTER", 1.0)
    locked, go_on = threading.Event(), threading.Event()

    @impatient.task
    def steps(handle: TaskHandle) -> int:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            locked.set()
            assert go_on.wait(20)
        return handle.step("once", lambda: 1)

    @impatient.task
    def other() -> int:
        assert locked.wait(20)
        return 2

    with impatient.worker(slots=2, poll=0.1) as worker:
        time.sleep(1.5)  # longer than a turn may take, with nothing to settle
        stuck, free = steps.enqueue(), other.enqueue()
        assert locked.wait(20)
        inner = worker._worker
        assert inner is not None
        wait_until(lambda: inner.vitals().unsettled > 0)
        for _ in range(20):
            inner.check_threads()
            time.sleep(0.1)
        assert not inner.vitals().given_up
        go_on.set()
        assert (stuck.result(timeout=20), free.result(timeout=20)) == (1, 2)


def test_a_worker_whose_settler_gets_no_answer_at_all_gives_itself_up(
    impatient: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "STUCK_AFTER", 0.5)
    answer = threading.Event()
    settle = SqliteStore.settle

    def settle_late(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401
        assert answer.wait(20)
        return settle(*arguments, **more)

    monkeypatch.setattr(SqliteStore, "settle", settle_late)

    @impatient.task
    def other() -> int:
        return 2

    with impatient.worker(heartbeat=0.1, lease=1, poll=0.1) as worker:
        other.enqueue()
        inner = worker._worker
        assert inner is not None
        wait_until(lambda: inner.vitals().given_up)
        answer.set()


def test_a_step_outlasts_a_lock_that_somebody_else_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SqliteStore.__init__.__kwdefaults__ or {}, "busy_timeout", 0.1)
    path = tmp_path / "penstock.db"
    app = App(f"sqlite:///{path}", migrate=True)
    taken: list[int] = []
    with closing(sqlite3.connect(path, check_same_thread=False)) as other:

        def charge() -> int:
            other.execute("BEGIN IMMEDIATE")
            taken.append(1)
            return 1

        @app.task(retry=[0])
        def steps(handle: TaskHandle) -> int:
            return handle.step("charge", charge)

        with app.worker():
            execution = steps.enqueue()
            wait_until(lambda: taken == [1])
            time.sleep(0.5)  # several times as long as the store waits for a lock
            other.rollback()
            assert execution.result(timeout=20) == 1
    assert taken == [1]
    app.close()
