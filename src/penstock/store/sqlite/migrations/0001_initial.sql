-- The tables of version 1. Ids are canonical UUIDs as text, so they sort by the time of
-- their making; times are microseconds since 1970; booleans are 0 and 1.
-- min_compatible: 1

CREATE TABLE schema_version (
    version        INTEGER PRIMARY KEY,
    name           TEXT    NOT NULL,
    checksum       TEXT    NOT NULL,
    min_compatible INTEGER NOT NULL,
    database_id    TEXT    NOT NULL,
    applied_at     INTEGER NOT NULL
);

-- The authoritative state of each task.
-- SQLite's integers are wider than PostgreSQL's: without the checks the two would differ.
CREATE TABLE task_executions (
    id               TEXT    PRIMARY KEY NOT NULL,
    root_id          TEXT    NOT NULL,
    task             TEXT    NOT NULL,
    queue            TEXT    NOT NULL,
    priority         INTEGER NOT NULL CHECK (priority BETWEEN -2147483648 AND 2147483647),
    args             TEXT    NOT NULL,
    state            TEXT    NOT NULL CHECK (state IN (
        'scheduled', 'waiting', 'ready', 'running', 'completed', 'failed', 'skipped', 'cancelled')),
    sub_state        TEXT    CHECK (sub_state IN ('active', 'deferred')),
    attempt          INTEGER NOT NULL DEFAULT 0,
    retries          INTEGER NOT NULL DEFAULT 0,
    crashes          INTEGER NOT NULL DEFAULT 0,
    max_crashes      INTEGER NOT NULL CHECK (max_crashes BETWEEN -2147483648 AND 2147483647),
    suspect          INTEGER NOT NULL DEFAULT 0,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    fence            INTEGER NOT NULL DEFAULT 0,
    settled_fence    INTEGER,
    worker_id        TEXT,
    seq              INTEGER,
    key              TEXT,
    serial           TEXT,
    serial_place     INTEGER,
    run_at           INTEGER,
    result           TEXT,
    error            TEXT,
    follow_ups       TEXT,
    progress         TEXT,
    created_at       INTEGER NOT NULL,
    claimed_at       INTEGER,
    started_at       INTEGER,
    finished_at      INTEGER
);

-- Whose task is it? Only running ones have a worker, so the index is as small as the slots.
CREATE INDEX task_executions_worker ON task_executions (worker_id)
    WHERE worker_id IS NOT NULL;
CREATE INDEX task_executions_due ON task_executions (run_at)
    WHERE state = 'scheduled';
CREATE INDEX task_executions_failed ON task_executions (id)
    WHERE state = 'failed';
CREATE UNIQUE INDEX task_executions_live_key ON task_executions (task, key)
    WHERE key IS NOT NULL AND finished_at IS NULL;
CREATE INDEX task_executions_serial ON task_executions (serial, serial_place)
    WHERE serial IS NOT NULL AND finished_at IS NULL;

-- Work ready to be handed out, and nothing else: the only way to a worker.
-- AUTOINCREMENT, because a plain key starts again from the highest one left, and order
-- would be lost.
CREATE TABLE task_outbox (
    seq               INTEGER PRIMARY KEY AUTOINCREMENT,
    task_execution_id TEXT    NOT NULL,
    queue             TEXT    NOT NULL,
    priority          INTEGER NOT NULL,
    suspect           INTEGER NOT NULL DEFAULT 0,
    task              TEXT    NOT NULL
);

-- This is what stops a repeated release from handing a task out twice.
CREATE UNIQUE INDEX task_outbox_execution ON task_outbox (task_execution_id);
-- With the task at its end, stepping over rows of unknown tasks never leaves the index.
CREATE INDEX task_outbox_lanes ON task_outbox (queue, priority DESC, suspect DESC, seq, task);

-- The append-only history. One index, which ends in seq by itself.
CREATE TABLE execution_events (
    seq               INTEGER PRIMARY KEY AUTOINCREMENT,
    root_id           TEXT    NOT NULL,
    task_execution_id TEXT,
    type              TEXT    NOT NULL,
    data              TEXT,
    worker_id         TEXT,
    at                INTEGER NOT NULL
);

CREATE INDEX execution_events_root ON execution_events (root_id);

CREATE TABLE workers (
    id         TEXT    PRIMARY KEY NOT NULL,
    info       TEXT    NOT NULL,
    beat       INTEGER NOT NULL DEFAULT 0,
    beat_at    INTEGER NOT NULL,
    started_at INTEGER NOT NULL
);

CREATE TABLE paused_queues (
    queue     TEXT    PRIMARY KEY NOT NULL,
    paused_at INTEGER NOT NULL
);

-- What an execution has done once and for all, in the transaction that did it.
CREATE TABLE once_ledger (
    task_execution_id TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    at                INTEGER NOT NULL,
    PRIMARY KEY (task_execution_id, name)
) WITHOUT ROWID;
