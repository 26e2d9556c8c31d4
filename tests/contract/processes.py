"""What the processes of the concurrency tests do; each starts anew and opens its own store."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TypeVar

from penstock.store.contract import Store
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase
from tests.contract.support import QUEUE, TASKS, finish, ids, worker

T = TypeVar("T")

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


def migrate(place: Place, _number: int) -> Sequence[int]:
    store = open_at(place)
    ran = store.migrate()
    store.check_schema()
    store.close()
    return ran
