"""Who is measured, with which settings, and how each is asked what it has left to do."""

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

import psycopg

from benchmarks.servers import ask_redis

Kind = Literal["postgres", "sqlite", "redis"]
Left = Callable[[str], int]


def _by_postgres(statement: str) -> Left:
    def left(url: str) -> int:
        with psycopg.connect(url) as connection:
            row = connection.execute(statement.encode()).fetchone()
        return int(row[0]) if row else 0

    return left


def _by_sqlite(statement: str) -> Left:
    def left(url: str) -> int:
        path = url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return int(connection.execute(statement).fetchone()[0])

    return left


def _by_redis(url: str) -> int:
    return sum(ask_redis(url, "LLEN celery", "HLEN unacked"))


@dataclass(frozen=True)
class System:
    """One system on one kind of database."""

    name: str
    title: str
    kind: Kind
    player: str
    settings: str
    left: Left  # how many of its tasks have not ended yet
    needs: str | None = None  # the entry in peers.toml
    pace: float = 1.0  # of the sizes that suit the fastest: slow ones get less to do
    does: frozenset[str] = frozenset({"one", "bulk", "drain", "latency"})
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        return self.needs is None


_OURS_ON_POSTGRES = _by_postgres(
    "SELECT (SELECT count(*) FROM penstock.task_outbox) + (SELECT count(*) "
    "FROM penstock.task_executions WHERE worker_id IS NOT NULL)"
)
_OURS_ON_SQLITE = _by_sqlite(
    "SELECT (SELECT count(*) FROM task_outbox) + (SELECT count(*) "
    "FROM task_executions WHERE worker_id IS NOT NULL)"
)
_ALL = frozenset({"one", "bulk", "drain", "latency", "idle", "runs", "fans"})
_DRAIN_ALONE = frozenset({"drain"})

SYSTEMS: tuple[System, ...] = (
    System(
        "penstock",
        "Penstock, PostgreSQL",
        "postgres",
        "penstock_player.py",
        "defaults; async def",
        _OURS_ON_POSTGRES,
        does=_ALL,
    ),
    System(
        "penstock-def",
        "Penstock, PostgreSQL, threads",
        "postgres",
        "penstock_player.py",
        "defaults; def, so on threads",
        _OURS_ON_POSTGRES,
        does=_DRAIN_ALONE,
        environment={"BENCH_TASK": "on_a_thread"},
    ),
    System(
        "pgqueuer",
        "PgQueuer",
        "postgres",
        "pgqueuer_player.py",
        "asyncpg, uvloop, batch_size=1000",
        _by_postgres("SELECT count(*) FROM pgqueuer"),
        needs="pgqueuer",
        does=frozenset({"one", "bulk", "drain", "latency", "idle"}),
    ),
    System(
        "graphile",
        "Graphile Worker (Node)",
        "postgres",
        "graphile_player.cjs",
        "localQueue 500, completeJobBatchDelay 0, concurrentJobs 24",
        _by_postgres("SELECT count(*) FROM graphile_worker._private_jobs"),
        needs="graphile",
        does=frozenset({"one", "bulk", "drain", "latency", "idle"}),
    ),
    System(
        "procrastinate",
        "procrastinate",
        "postgres",
        "procrastinate_player.py",
        "concurrency=10",
        _by_postgres("SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"),
        needs="procrastinate",
        pace=0.05,
        does=frozenset({"one", "bulk", "drain", "latency", "idle"}),
    ),
    System(
        "dbos",
        "DBOS",
        "postgres",
        "dbos_player.py",
        "polling_interval_sec=0.1",
        _by_postgres(
            "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
        ),
        needs="dbos",
        pace=0.04,
        does=frozenset({"one", "drain", "latency", "idle", "runs", "fans"}),
    ),
    System(
        "celery",
        "Celery, Redis",
        "redis",
        "celery_player.py",
        "acks_late, prefetch 100, prefork -c 1; appendfsync always",
        _by_redis,
        needs="celery",
        pace=0.06,
        does=frozenset({"one", "drain", "latency", "runs", "fans"}),
    ),
    System(
        "penstock-sqlite",
        "Penstock, SQLite",
        "sqlite",
        "penstock_player.py",
        "defaults (synchronous FULL); async def",
        _OURS_ON_SQLITE,
        does=_ALL,
    ),
    System(
        "penstock-sqlite-def",
        "Penstock, SQLite, threads",
        "sqlite",
        "penstock_player.py",
        "defaults (synchronous FULL); def, so on threads",
        _OURS_ON_SQLITE,
        does=_DRAIN_ALONE,
        environment={"BENCH_TASK": "on_a_thread"},
    ),
    System(
        "huey",
        "Huey, SQLite",
        "sqlite",
        "huey_player.py",
        "fsync=True, no results, one thread; at most once",
        _by_sqlite("SELECT count(*) FROM task"),
        needs="huey",
        pace=0.2,
        does=frozenset({"one", "drain", "latency", "runs"}),
    ),
)
