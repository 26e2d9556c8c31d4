-- Runs of workflows. Every statement also runs on a caller's connection.

-- name: start_runs
WITH incoming AS MATERIALIZED (
    SELECT key AS n, value FROM json_each(:runs)
)
INSERT INTO workflow_executions (
    id, workflow, state, graph, fingerprint, inputs, follow_ups, timeout_us, deadline, created_at,
    finished_at, parent_id
)
SELECT json_extract(value, '$.id'),
       json_extract(value, '$.workflow'),
       json_extract(value, '$.state'),
       json_extract(value, '$.graph'),
       json_extract(value, '$.fingerprint'),
       json_extract(value, '$.inputs'),
       json_extract(value, '$.follow_ups'),
       json_extract(value, '$.timeout_us'),
       :now + json_extract(value, '$.timeout_us'),
       :now,
       CASE WHEN json_extract(value, '$.state') <> 'running' THEN :now END,
       json_extract(value, '$.parent_id')
FROM incoming
WHERE true
ORDER BY n
ON CONFLICT DO NOTHING
RETURNING id;

-- name: start_tasks
WITH incoming AS MATERIALIZED (
    SELECT key AS n, value FROM json_each(:tasks)
)
INSERT INTO task_executions (
    id, root_id, task, queue, priority, args, state, max_crashes, follow_ups, trace, created_at,
    finished_at
)
SELECT json_extract(value, '$.id'),
       json_extract(value, '$.root_id'),
       json_extract(value, '$.task'),
       json_extract(value, '$.queue'),
       json_extract(value, '$.priority'),
       json_extract(value, '$.args'),
       json_extract(value, '$.state'),
       json_extract(value, '$.max_crashes'),
       json_extract(value, '$.follow_ups'),
       json_extract(value, '$.trace'),
       :now,
       CASE WHEN json_extract(value, '$.state') = 'skipped' THEN :now END
FROM incoming
ORDER BY n;

-- name: lock_runs
-- There is one writer: whoever runs this inside a write transaction has every lock there is.
SELECT id, workflow, state, graph, inputs, cancel_requested, error, follow_ups
FROM workflow_executions
WHERE id IN (SELECT value FROM json_each(:ids)) AND finished_at IS NULL
ORDER BY id;

-- name: run_states
-- The ids of a run's tasks lie side by side, in the order of its graph.
-- One that awaits something has begun: it neither waits for its dependencies nor is it held.
SELECT json_extract(run.value, '$.first'), (
    SELECT group_concat(task.state, ',') FROM (
        SELECT CASE WHEN awaits IS NULL THEN state WHEN awaits LIKE 'elements:%' THEN awaits ELSE 'running' END AS state
        FROM task_executions
        WHERE id > json_extract(run.value, '$.first') AND id <= json_extract(run.value, '$.last')
        ORDER BY id
    ) AS task
)
FROM json_each(:runs) AS run;

-- name: run_writes
SELECT task.root_id, task.id, task.writes
FROM json_each(:runs) AS run CROSS JOIN task_executions AS task
WHERE task.id > json_extract(run.value, '$.first') AND task.id <= json_extract(run.value, '$.last')
  AND task.writes IS NOT NULL AND task.state = 'completed'
ORDER BY task.id;

-- name: run_results
SELECT id, state, result FROM task_executions
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: run_trace
-- All tasks of a run have the same, so any one of them can tell it.
SELECT trace FROM task_executions WHERE id = :task_id;

-- name: let_go
-- A task that waits is ready by now, or skipped, or scheduled if it was paused while it waited
-- for its time.
WITH element AS MATERIALIZED (
    SELECT value FROM json_each(:tasks)
), batch AS MATERIALIZED (
    SELECT json_extract(value, '$.id') AS id,
           json_extract(value, '$.state') AS state,
           json_extract(value, '$.args') AS args,
           json_extract(value, '$.result') AS result,
           json_extract(value, '$.error') AS error,
           json_extract(value, '$.writes') AS writes,
           json_extract(value, '$.awaits') AS awaits
    FROM element
)
UPDATE task_executions AS task
SET state = CASE WHEN batch.state = 'ready' AND task.run_at > :now THEN 'scheduled' ELSE batch.state END,
    args = coalesce(batch.args, task.args), result = batch.result,
    error = coalesce(batch.error, task.error),
    writes = batch.writes, awaits = batch.awaits,
    finished_at = CASE WHEN batch.state IN ('skipped', 'completed', 'failed', 'cancelled') THEN :now END
FROM batch
WHERE task.id = batch.id AND task.state = 'waiting'
RETURNING id, root_id, task, queue, priority, suspect, state, run_at, error;

-- name: cancel_reasons
-- What was said last to runs that were asked to stop.
SELECT run.value, (
    SELECT event.data FROM execution_events AS event INDEXED BY execution_events_root
    WHERE event.root_id = run.value AND event.type = 'workflow.cancel_requested'
    ORDER BY event.seq DESC
    LIMIT 1
)
FROM json_each(:ids) AS run;

-- name: end_runs
WITH ended AS MATERIALIZED (
    SELECT json_extract(value, '$.id') AS id,
           json_extract(value, '$.state') AS state,
           json_extract(value, '$.error') AS error
    FROM json_each(:ends)
)
UPDATE workflow_executions AS run
SET state = ended.state, error = ended.error, finished_at = :now
FROM ended
WHERE run.id = ended.id AND run.finished_at IS NULL
RETURNING id, parent_id;

-- name: elements
-- Of tasks that run for each element of a list; their ids lie side by side.
SELECT task.id, CASE WHEN task.awaits IS NULL THEN task.state ELSE 'running' END, task.args,
       task.result, task.writes
FROM json_each(:groups) AS list CROSS JOIN task_executions AS task
WHERE task.id >= json_extract(list.value, '$.first') AND task.id <= json_extract(list.value, '$.last')
ORDER BY task.id;

-- name: element_states
-- How many of each list have not ended, and what of them could go on by now.
SELECT json_extract(list.value, '$.first'),
       count(*) FILTER (WHERE task.finished_at IS NULL),
       count(*) FILTER (WHERE task.state = 'waiting' AND task.awaits IS NULL)
FROM json_each(:groups) AS list CROSS JOIN task_executions AS task
WHERE task.id >= json_extract(list.value, '$.first') AND task.id <= json_extract(list.value, '$.last')
GROUP BY list.key;

-- name: hold
UPDATE task_executions SET state = 'waiting'
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('ready', 'scheduled')
RETURNING id, root_id;

-- name: change_run
UPDATE workflow_executions
SET state = coalesce(:state, state),
    cancel_requested = cancel_requested OR :cancel = 'yes',
    error = coalesce(:error, error),
    deadline = CASE WHEN :cancel = 'yes' THEN NULL ELSE deadline END
WHERE id = :id AND finished_at IS NULL
RETURNING id;

-- name: lock_run
-- Also one that has ended: it is to live again.
SELECT id, workflow, state, graph, inputs, cancel_requested, error, follow_ups
FROM workflow_executions
WHERE id = :id;

-- name: revive
UPDATE workflow_executions
SET state = CASE WHEN finished_at IS NULL THEN state ELSE 'running' END,
    cancel_requested = 0, error = NULL, finished_at = NULL, deadline = :now + timeout_us
WHERE id = :id;

-- name: reset_tasks
-- What they knew before is in the history.
UPDATE task_executions
SET state = 'waiting', retries = 0, crashes = 0, suspect = 0, cancel_requested = 0,
    run_at = NULL, result = NULL, error = NULL, writes = NULL, progress = NULL,
    started_at = NULL, finished_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids))
  AND state IN ('completed', 'failed', 'skipped', 'cancelled')
RETURNING id, root_id;

-- name: run_state
SELECT state FROM workflow_executions WHERE id = :id;

-- name: overdue_runs
SELECT id FROM workflow_executions INDEXED BY workflow_executions_deadline
WHERE deadline IS NOT NULL AND finished_at IS NULL AND deadline <= :now
ORDER BY deadline
LIMIT :limit;

-- name: next_deadline
SELECT min(deadline) FROM workflow_executions INDEXED BY workflow_executions_deadline
WHERE deadline IS NOT NULL AND finished_at IS NULL;

-- name: children
-- The live runs that cancelled tasks have started, and what the tasks were told.
SELECT run.id, coalesce((
    SELECT event.data FROM execution_events AS event INDEXED BY execution_events_root
    WHERE event.root_id = parent.root_id AND event.task_execution_id = parent.id
      AND event.type = CASE WHEN parent.cancel_requested THEN 'task.cancel_requested' ELSE 'task.cancelled' END
    ORDER BY event.root_id DESC, event.seq DESC
    LIMIT 1
), '{}')
FROM workflow_executions AS run INDEXED BY workflow_executions_children
CROSS JOIN task_executions AS parent
WHERE run.parent_id IN (SELECT value FROM json_each(:ids)) AND run.parent_id IS NOT NULL
  AND run.finished_at IS NULL AND parent.id = run.parent_id
ORDER BY run.id;

-- name: runs
SELECT id, workflow, state, graph, fingerprint, inputs, cancel_requested, error, deadline,
       created_at, finished_at
FROM workflow_executions
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: count_runs
SELECT state, count(*) FROM workflow_executions GROUP BY state;

-- name: find_runs
SELECT id, workflow, state, graph, fingerprint, inputs, cancel_requested, error, deadline,
       created_at, finished_at
FROM workflow_executions
WHERE id < :before
  AND (:workflow IS NULL OR workflow = :workflow)
  AND (:state IS NULL OR state = :state)
ORDER BY id DESC
LIMIT :limit;

-- name: elements_of
SELECT id, root_id, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, writes, created_at, claimed_at, started_at, finished_at, awaits
FROM task_executions
WHERE id >= :first AND id <= :last AND root_id = :run_id
ORDER BY id;

-- name: count_elements
-- By the digits that tell the task, and a few more: whoever asks adds up.
SELECT min(id), state, count(*)
FROM task_executions
WHERE id >= :first AND id <= :last
GROUP BY substr(id, 31, 3), state;

-- name: tasks_of
SELECT id, root_id, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, writes, created_at, claimed_at, started_at, finished_at, awaits
FROM task_executions
WHERE id > :run_id AND id <= :last AND root_id = :run_id
ORDER BY id;
