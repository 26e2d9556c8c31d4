"""What the processes of the concurrency tests do; each starts anew and opens its own store."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from typing import TypeVar

from penstock.model.executions import Claimed
from penstock.store.contract import Store
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase
from tests.contract.support import QUEUE, TASKS, finish, ids, worker

T = TypeVar("T")

SIDES = 2

Place = tuple[str, str, str]  # the kind of database, and where it is


def place_of(database: Database) -> Place:
    """Return what another process needs to open the same database."""
    match database:
        case PostgresDatabase():
            return "postgres", database.url, database.schema
        case SqliteDatabase():
            return "sqlite", str(database.path), ""
        case _:
            raise TypeError(database)


def open_at(place: Place) -> Store:
    kind, where, schema = place
    if kind == "postgres":
        return PostgresDatabase(where, schema).open()
    return SqliteDatabase(Path(where)).open()


def in_processes(
    count: int, function: Callable[[Place, int], T], database: Database, *, timeout: float = 100
) -> list[T]:
    """Run `function(place, number)` in so many processes at once; raise what one of them raises."""
    # Spawned, not forked: the threads of this process hold locks that a copy would never free.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        started = [pool.submit(function, place_of(database), n) for n in range(count)]
        return [future.result(timeout) for future in started]


def claim_and_complete(place: Place, number: int) -> list[str]:
    """Be a worker until nothing is left; return what was handed to it."""
    store = open_at(place)
    worker_id = worker(store, f"process-{number}")
    done: list[str] = []
    while batch := store.claim(worker_id, queues=[QUEUE], tasks=TASKS, limit=100):
        assert store.settle([finish(one) for one in batch]) == []
        done += ids(batch)
    store.close()
    return done


def complete_one_side(place: Place, number: int) -> list[str]:
    """Claim one of two sides of many runs, wait for the other side, and settle in small batches.

    Both go through the runs in the same order, so that the two parents of a child end together.
    """
    store = open_at(place)
    worker_id = worker(store, f"process-{number}")
    mine: list[Claimed] = []
    while batch := store.claim(worker_id, queues=[f"side-{number}"], tasks=TASKS, limit=500):
        mine += batch
    mine.sort(key=lambda one: one.lease.execution_id)
    worker(store, f"process-{number}-has-claimed")
    while sum(peer.info.id.endswith("-has-claimed") for peer in store.workers()) < SIDES:
        time.sleep(0.001)
    random = Random(number)
    while mine:
        some = random.randint(1, 8)
        assert store.settle([finish(one) for one in mine[:some]]) == []
        del mine[:some]
    store.close()
    return []


def migrate(place: Place, _number: int) -> Sequence[int]:
    store = open_at(place)
    ran = store.migrate()
    store.check_schema()
    store.close()
    return ran
