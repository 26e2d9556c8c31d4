-- What people have looked at and need no more.

-- name: failed_runs
-- Locked for all that follows: one that is being rerun is looked at again once that is done.
SELECT id::text FROM penstock.workflow_executions
WHERE id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids::text::json)))
  AND state = 'failed'
ORDER BY id
FOR UPDATE;

-- name: failed_tasks
-- A task of a run goes with its run.
SELECT id::text FROM penstock.task_executions
WHERE id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids::text::json)))
  AND state = 'failed' AND root_id = id
ORDER BY id
FOR UPDATE;

-- name: tasks_of_runs
SELECT task.id::text
FROM json_to_recordset(:runs::text::json) AS run (first uuid, last uuid)
CROSS JOIN LATERAL (
    SELECT part.id FROM penstock.task_executions AS part
    WHERE part.id > run.first AND part.id <= run.last AND part.root_id = run.first
    ORDER BY part.id
    FOR UPDATE
) AS task;

-- name: dismiss_once
DELETE FROM penstock.once_ledger
WHERE task_execution_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids::text::json)));

-- name: dismiss_steps
DELETE FROM penstock.step_results
WHERE task_execution_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids::text::json)));

-- name: dismiss_signals
DELETE FROM penstock.signals
WHERE task_execution_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids::text::json)));

-- name: dismiss_tasks
DELETE FROM penstock.task_executions
WHERE id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids::text::json)));

-- name: dismiss_runs
DELETE FROM penstock.workflow_executions
WHERE id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids::text::json)));

-- name: dismiss_events
DELETE FROM penstock.execution_events
WHERE root_id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids::text::json)));
