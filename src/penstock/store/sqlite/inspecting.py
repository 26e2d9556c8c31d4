"""A look at a running SQLite store: what is well, what is not, and what to do about it."""

import re
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from penstock.model.health import UNREADABLE, Finding, ok, problem, warning
from penstock.store.batches import microseconds_in, moment_at
from penstock.store.decoding import decode_peer
from penstock.store.judging import (
    UNSEEN,
    Backlog,
    is_silent,
    judge_backlog,
    judge_failed,
    judge_workers,
)
from penstock.store.sql import Statement
from penstock.store.sqlite.migrating import shipped
from penstock.store.sqlite.statistics import GROWING
from penstock.store.sqlite.transaction import Transaction

# What runs all the time, and what maintenance does: each must enter its tables by an index.
HOT = (
    "lanes", "first_in_lane", "look_at_lane", "hand_out",
    "tell_claimed", "leave_outbox", "tell_completed", "settle_completed", "settle",
    "settled_before", "next_due", "promote", "orphans", "recover", "strangers",
    "asked_to_stop", "holders", "advance_serials", "lock_runs", "run_states", "let_go", "end_runs",
    "sweepable", "sweep", "sweep_runs", "sweep_tasks_of", "events_to_look_at", "roots_to_forget",
    "sweep_events",
)  # fmt: skip

# Before it, two connections that write and checkpoint at once can, rarely, corrupt the file.
WAL_RESET_FIXED = (3, 51, 3)
LARGE_LOG = 100_000_000  # bytes; we checkpoint at about 16 MB when nobody is in the way

_CREATED = re.compile(r"^CREATE (?:UNIQUE )?INDEX (\w+)", re.MULTILINE)


def inspect(view: Transaction, path: str, *, lease: timedelta) -> Iterator[Finding]:
    yield judge_version(sqlite3.sqlite_version_info)
    yield _judge_journal(view)
    yield judge_log(Path(f"{path}-wal"))
    yield _judge_indexes(view)
    try:
        yield from list(_judge_work(view, lease=lease))
    except sqlite3.OperationalError as error:
        if "no such index" not in str(error):
            raise
        yield problem(
            UNREADABLE,
            f"What waits and what failed cannot be looked at: {error}.",
            remedy="Create the index again, as said above.",
        )


# --- the library and the file -----------------------------------------------------------


def judge_version(version: tuple[int, ...]) -> Finding:
    shown = ".".join(map(str, version))
    if version >= WAL_RESET_FIXED:
        return ok("SQLite version", f"{shown}, in which all that we know of is fixed.")
    return warning(
        "SQLite version",
        f"{shown} has the WAL-reset bug: two processes that write and checkpoint at the same "
        "moment can, very rarely, corrupt the file.",
        remedy=f"Use a Python with SQLite {'.'.join(map(str, WAL_RESET_FIXED))} or later, or write "
        "from one process alone; keep backups either way.",
    )


def _judge_journal(view: Transaction) -> Finding:
    ((mode,),) = view.rows("inspect_journal")
    if mode == "wal":
        return ok("journal mode", "WAL: readers and the writer do not wait for each other.")
    return problem(
        "journal mode",
        f"The journal mode is {mode!r}, so readers and the writer wait for each other.",
        remedy="The next worker turns WAL on. If it does not last, another program changes it, or "
        "the file is on a network file system: move it to a local one.",
    )


def judge_log(log: Path) -> Finding:
    size = log.stat().st_size if log.exists() else 0
    if size <= LARGE_LOG:
        return ok("write-ahead log", f"{size / 1e6:.1f} MB.")
    return warning(
        "write-ahead log",
        f"{size / 1e6:.0f} MB wait to be written into the database: a reader that never ends its "
        "transaction holds the checkpoint back.",
        remedy="End long reads (also those of shells and backups); then run PRAGMA "
        "wal_checkpoint(TRUNCATE).",
    )


# --- the tables -------------------------------------------------------------------------


def _judge_indexes(view: Transaction) -> Finding:
    there = {row[0] for row in view.rows("inspect_indexes")}
    lost = sorted(
        name
        for migration in shipped()
        for name in _CREATED.findall(migration.sql)
        if name not in there
    )
    scans = sorted(
        {
            f"{name} reads all of {table}"
            for name in HOT
            for table in _read_whole(view, view.statements[name])
        }
    )
    if not lost and not scans:
        return ok("indexes", f"All {len(HOT)} hot statements enter their tables by an index.")
    told = [f"{', '.join(lost)} missing"] if lost else []
    return problem(
        "indexes",
        f"{'; '.join(told + scans)}.",
        remedy="`penstock admin sql` prints every index: create those that are missing again."
        if lost
        else "None is missing. If ANALYZE was run while the tables were almost empty, start a "
        "worker: it removes what was found then.",
    )


def _read_whole(view: Transaction, statement: Statement) -> Iterator[str]:
    try:
        plan = view.connection.execute(
            f"EXPLAIN QUERY PLAN {statement.sql}", dict.fromkeys(statement.parameters)
        ).fetchall()
    except sqlite3.OperationalError:
        return  # it names an index that is not there, which is told already
    for table in GROWING:
        names = {name for name in re.findall(rf"\b{table}\b(?: AS (\w+))?", statement.sql) if name}
        for name in names | {table}:
            # A whole index that leaves out what has ended is as small as what lives.
            # Before 3.36 SQLite said "SCAN TABLE task_executions AS task".
            small = r"(?! USING (COVERING )?INDEX task_executions_)"
            scan = rf"SCAN (?:TABLE )?(?:\w+ AS )?{name}\b{small}"
            if any(re.match(scan, step[-1]) for step in plan):
                yield table


# --- the work ---------------------------------------------------------------------------


def _judge_work(view: Transaction, *, lease: timedelta) -> Iterator[Finding]:
    now = moment_at(view.now)
    peers = [decode_peer(row, moment_at) for row in view.rows("workers")]
    paused = [row[0] for row in view.rows("paused")]
    yield from judge_workers(peers, now=now, lease=lease)
    alive = [peer for peer in peers if not is_silent(peer, now=now, lease=lease)]
    backlog = [
        Backlog(queue, task, ready, timedelta(microseconds=age))
        for queue, task, ready, age in view.rows("inspect_backlog", now=view.now)
    ]
    yield from judge_backlog(backlog, alive, paused=paused)
    unseen = view.now - (microseconds_in(UNSEEN) or 0)
    ((failed, oldest),) = view.rows("inspect_failed", now=view.now, before=unseen)
    yield judge_failed(failed, None if oldest is None else timedelta(microseconds=oldest))
