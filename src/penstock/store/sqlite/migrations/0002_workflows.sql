-- Workflows: their runs, and what the tasks of a run write into its context.
-- A task of a run has the run's id as its root, and an id of its own right behind it.
-- min_compatible: 1

CREATE TABLE workflow_executions (
    id               TEXT    PRIMARY KEY NOT NULL,
    workflow         TEXT    NOT NULL,
    state            TEXT    NOT NULL CHECK (state IN (
        'running', 'paused', 'completed', 'failed', 'cancelled')),
    graph            TEXT    NOT NULL,
    fingerprint      TEXT    NOT NULL,
    inputs           TEXT    NOT NULL,
    parent_id        TEXT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    error            TEXT,
    follow_ups       TEXT,
    timeout_us       INTEGER,
    deadline         INTEGER,
    created_at       INTEGER NOT NULL,
    finished_at      INTEGER
);

CREATE INDEX workflow_executions_deadline ON workflow_executions (deadline)
    WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX workflow_executions_failed ON workflow_executions (id)
    WHERE state = 'failed';
CREATE INDEX workflow_executions_children ON workflow_executions (parent_id)
    WHERE parent_id IS NOT NULL AND finished_at IS NULL;

-- What a task has done and need not do again in a later attempt.
CREATE TABLE step_results (
    task_execution_id TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    result            TEXT    NOT NULL,
    at                INTEGER NOT NULL,
    PRIMARY KEY (task_execution_id, name)
) WITHOUT ROWID;

-- What others have told a task; the first of a name wins.
CREATE TABLE signals (
    task_execution_id TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    data              TEXT    NOT NULL,
    at                INTEGER NOT NULL,
    PRIMARY KEY (task_execution_id, name)
) WITHOUT ROWID;

ALTER TABLE task_executions ADD COLUMN writes TEXT;
-- While it is set, the task waits for it without a worker: 'signal:…' or 'run:…'.
ALTER TABLE task_executions ADD COLUMN awaits TEXT;
ALTER TABLE task_executions ADD COLUMN trace TEXT;
