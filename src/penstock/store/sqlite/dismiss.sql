-- What people have looked at and need no more. There is one writer: nothing of it changes meanwhile.

-- name: failed_runs
SELECT id FROM workflow_executions
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'failed'
ORDER BY id;

-- name: failed_tasks
-- A task of a run goes with its run.
SELECT id FROM task_executions
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'failed' AND root_id = id
ORDER BY id;

-- name: tasks_of_runs
SELECT task.id FROM json_each(:runs) AS run CROSS JOIN task_executions AS task
WHERE task.id > json_extract(run.value, '$.first') AND task.id <= json_extract(run.value, '$.last')
  AND task.root_id = json_extract(run.value, '$.first');

-- name: dismiss_once
DELETE FROM once_ledger WHERE task_execution_id IN (SELECT value FROM json_each(:ids));

-- name: dismiss_steps
DELETE FROM step_results WHERE task_execution_id IN (SELECT value FROM json_each(:ids));

-- name: dismiss_signals
DELETE FROM signals WHERE task_execution_id IN (SELECT value FROM json_each(:ids));

-- name: dismiss_tasks
DELETE FROM task_executions WHERE id IN (SELECT value FROM json_each(:ids));

-- name: dismiss_runs
DELETE FROM workflow_executions WHERE id IN (SELECT value FROM json_each(:ids));

-- name: dismiss_events
DELETE FROM execution_events INDEXED BY execution_events_root
WHERE root_id IN (SELECT value FROM json_each(:ids));
