"""Who hears of what on SQLite: others' commits and the own client's, not what a worker writes."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.wakeups import ANYTHING, NOTHING
from penstock.store.sqlite.sharing import SharedFile
from penstock.store.sqlite.store import SqliteStore
from penstock.store.sqlite.wakeups import SqliteDistributor
from tests.contract.support import WORKER, claim, enqueue, finish, new, worker

QUIET = 0.2  # seconds: many looks


@pytest.fixture
def listener(store: SqliteStore) -> Iterator[SqliteDistributor]:
    distributor = store.distributor(lambda: ["default"])
    yield distributor
    distributor.close()


def hear_all(listener: SqliteDistributor) -> None:
    while listener.wait_for_work(0.05) is not NOTHING:
        pass


def test_what_a_worker_writes_does_not_wake_it(
    store: SqliteStore, listener: SqliteDistributor
) -> None:
    worker(store)
    enqueue(store)
    hear_all(listener)

    (claimed,) = claim(store)
    store.start([claimed.lease])
    store.progress(claimed.lease, "{}")
    store.settle([finish(claimed)])
    store.heartbeat(WORKER)

    assert listener.wait_for_work(QUIET) is NOTHING


def test_an_end_that_others_wait_for_wakes_it(
    store: SqliteStore, listener: SqliteDistributor
) -> None:
    worker(store)
    enqueue(store, serial="line")
    enqueue(store, serial="line")
    hear_all(listener)
    (head,) = claim(store, limit=2)

    store.settle([finish(head)])

    assert listener.wait_for_work(QUIET) is ANYTHING


def test_what_another_connection_writes_wakes_it(
    store: SqliteStore, listener: SqliteDistributor, tmp_path: Path
) -> None:
    enqueue(store)
    hear_all(listener)
    other = SqliteStore(tmp_path / "penstock.db")

    enqueue(other)

    assert listener.wait_for_work(QUIET) is ANYTHING
    other.close()


@pytest.mark.parametrize(("written", "how_many"), [("write_one", 1), ("write", 2)])
def test_a_write_that_is_interrupted_after_its_commit_wakes_it(
    store: SqliteStore,
    listener: SqliteDistributor,
    monkeypatch: pytest.MonkeyPatch,
    written: str,
    how_many: int,
) -> None:
    enqueue(store)
    hear_all(listener)
    write = getattr(SharedFile, written)

    def write_and_stop(*told: object) -> None:
        write(*told)
        raise KeyboardInterrupt

    monkeypatch.setattr(SharedFile, written, write_and_stop)
    with pytest.raises(KeyboardInterrupt):
        store.create([new() for _ in range(how_many)])

    assert listener.wait_for_work(QUIET) is ANYTHING


def test_work_of_its_own_process_keeps_it_looking_for_that_of_others(
    store: SqliteStore, listener: SqliteDistributor
) -> None:
    enqueue(store)
    hear_all(listener)
    listener._changed_at -= 100

    enqueue(store)

    assert listener.wait_for_work(QUIET) is ANYTHING
    assert time.monotonic() - listener._changed_at < 50


def test_while_the_writer_is_at_work_a_look_now_and_then_is_worth_its_time(
    store: SqliteStore, listener: SqliteDistributor
) -> None:
    enqueue(store)
    hear_all(listener)
    held, go = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        held.set()
        assert go.wait(10)

    thread = threading.Thread(target=store._file.write, args=("hold the lock", hold))
    thread.start()
    assert held.wait(10)

    heard = listener.wait_for_work(5)

    go.set()
    thread.join(10)
    assert heard is ANYTHING
