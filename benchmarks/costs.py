"""What the work costs besides time: statements, memory, starting, WAL, commits, dead tuples."""

import compileall
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg

import penstock
from benchmarks.driving import Bench
from benchmarks.figures import Measured
from benchmarks.sizes import Sizes
from tests.support.servers import Server

MEGABYTE = 1_000_000
STATISTICS_PATIENCE = 1.5  # seconds until the server has counted what ended


class Meter:
    """What PostgreSQL wrote for one system between two moments; nothing elsewhere."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._before = (0, 0, 0)

    def begin(self) -> None:
        if self._bench.system.kind == "postgres":
            time.sleep(STATISTICS_PATIENCE)
            self._before = self._read()

    def per_task(self, tasks: int) -> Measured:
        if self._bench.system.kind != "postgres":
            return {}
        time.sleep(STATISTICS_PATIENCE)
        after = self._read()
        wal, commits, _ = (now - then for now, then in zip(after, self._before, strict=True))
        return {"wal": wal / tasks, "commits": commits / tasks, "dead": after[2] / tasks}

    def _read(self) -> tuple[int, int, int]:
        with psycopg.connect(self._bench.url) as connection:
            row = connection.execute(
                "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, "
                "(SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()), "
                "(SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables)"
            ).fetchone()
        assert row is not None
        return row[0], row[1], row[2]


def idle_statements(bench: Bench, server: Server, sizes: Sizes) -> Measured:
    """What a worker with nothing to do sends, by the log of a server that nobody else uses."""
    with bench.workers():
        time.sleep(5.0)  # what it does at its start is over
        place = server.end_of_log()
        time.sleep(sizes.idle)
        sent = [
            text
            for text in server.statements_since(place)
            # Ends of transactions are no work of their own.
            if not text.upper().startswith(("BEGIN", "COMMIT", "ROLLBACK"))
        ]
    return {"idle statements": len(sent) / sizes.idle}


def idle_memory(bench: Bench) -> Measured:
    with bench.workers() as crew:
        time.sleep(5.0)
        return {"memory": crew.memory() / MEGABYTE}


def start_up() -> Measured:
    """How long it takes until an interpreter has imported Penstock, and until `--help` is there."""
    # An installation has compiled it; a checkout in a place that cannot be written to has not.
    compileall.compile_dir(Path(penstock.__file__).parent, quiet=1)
    return {
        "import": _milliseconds([sys.executable, "-c", "import penstock"]),
        "help": _milliseconds([sys.executable, "-m", "penstock", "--help"]),
    }


def _milliseconds(command: Sequence[str]) -> float:
    begun = time.monotonic()
    environment = {**os.environ, "NO_COLOR": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return (time.monotonic() - begun) * 1000
