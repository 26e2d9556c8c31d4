-- Workflows: their runs, and what the tasks of a run write into its context.
-- A task of a run has the run's id as its root, and an id of its own right behind it.
-- min_compatible: 1

CREATE TABLE penstock.workflow_executions (
    id               uuid        PRIMARY KEY,
    workflow         text        NOT NULL,
    state            text        NOT NULL CHECK (state IN (
        'running', 'paused', 'completed', 'failed', 'cancelled')),
    graph            text        NOT NULL,
    fingerprint      text        NOT NULL,
    inputs           text        NOT NULL,
    parent_id        uuid,
    cancel_requested boolean     NOT NULL DEFAULT false,
    error            text,
    follow_ups       text,
    timeout_us       bigint,
    deadline         timestamptz,
    created_at       timestamptz NOT NULL,
    finished_at      timestamptz
) WITH (fillfactor = 90);

CREATE INDEX workflow_executions_deadline ON penstock.workflow_executions (deadline)
    WHERE deadline IS NOT NULL AND finished_at IS NULL;
CREATE INDEX workflow_executions_failed ON penstock.workflow_executions (id)
    WHERE state = 'failed';
CREATE INDEX workflow_executions_children ON penstock.workflow_executions (parent_id)
    WHERE parent_id IS NOT NULL AND finished_at IS NULL;

-- Runs that have to be looked at, because a task of theirs ended or came back without a
-- settlement. Whoever left the word here could not lock the run.
CREATE TABLE penstock.run_propagations (
    seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id uuid   NOT NULL,
    -- Set if it is to be cancelled, as the task was that started it: what that one's event says.
    cancel text
);

-- What a task has done and need not do again in a later attempt.
CREATE TABLE penstock.step_results (
    task_execution_id uuid        NOT NULL,
    name              text        NOT NULL,
    result            text        NOT NULL,
    at                timestamptz NOT NULL,
    PRIMARY KEY (task_execution_id, name)
);

-- What others have told a task; the first of a name wins.
CREATE TABLE penstock.signals (
    task_execution_id uuid        NOT NULL,
    name              text        NOT NULL,
    data              text        NOT NULL,
    at                timestamptz NOT NULL,
    PRIMARY KEY (task_execution_id, name)
);

-- Tasks that may have what they wait for: a signal, or the end of a run that they started.
CREATE TABLE penstock.task_wakes (
    seq               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_execution_id uuid   NOT NULL
);

ALTER TABLE penstock.task_executions ADD COLUMN writes text;
-- While it is set, the task waits for it without a worker: 'signal:…' or 'run:…'.
ALTER TABLE penstock.task_executions ADD COLUMN awaits text;
ALTER TABLE penstock.task_executions ADD COLUMN trace text;
