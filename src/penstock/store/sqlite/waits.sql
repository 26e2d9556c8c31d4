-- Steps that a task need not repeat, and what it waits for without a worker.

-- name: store_steps
-- Fenced: whoever lost the task has nothing to remember. The first result of a name stays.
WITH batch AS MATERIALIZED (
    SELECT json_extract(value, '$.id') AS id,
           json_extract(value, '$.fence') AS fence,
           json_extract(value, '$.worker_id') AS worker_id,
           json_extract(value, '$.name') AS name,
           json_extract(value, '$.result') AS result
    FROM json_each(:batch)
)
INSERT INTO step_results (task_execution_id, name, result, at)
SELECT batch.id, batch.name, batch.result, :now
FROM batch CROSS JOIN task_executions AS task
WHERE task.id = batch.id AND task.fence = batch.fence AND task.worker_id IS batch.worker_id
ON CONFLICT DO NOTHING;

-- name: memory
SELECT 'step', name, result FROM step_results WHERE task_execution_id = :id
UNION ALL
SELECT 'signal', name, data FROM signals WHERE task_execution_id = :id;

-- name: remember
INSERT INTO step_results (task_execution_id, name, result, at)
VALUES (:id, :name, :result, :now)
ON CONFLICT DO NOTHING
RETURNING result;

-- name: remembered
SELECT result FROM step_results WHERE task_execution_id = :id AND name = :name;

-- name: wait_anew
-- In a new life all steps stay done, but for the deadlines of waits: who has let one pass would
-- let it pass for ever.
DELETE FROM step_results
WHERE task_execution_id IN (SELECT value FROM json_each(:ids)) AND name GLOB 'signal:*';

-- name: standing_of
SELECT finished_at FROM task_executions WHERE id = :id;

-- name: signal
INSERT INTO signals (task_execution_id, name, data, at) VALUES (:id, :name, :data, :now)
ON CONFLICT DO NOTHING
RETURNING task_execution_id;

-- name: signalled
SELECT data FROM signals WHERE task_execution_id = :id AND name = :name;

-- name: wake_tasks
UPDATE task_executions
SET state = 'ready', awaits = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('waiting', 'scheduled')
  AND CASE
      WHEN awaits LIKE 'signal:%' THEN EXISTS (
          SELECT signal.name FROM signals AS signal
          WHERE signal.task_execution_id = task_executions.id
            AND signal.name = substr(task_executions.awaits, 8))
      WHEN awaits LIKE 'run:%' THEN NOT EXISTS (
          SELECT run.id FROM workflow_executions AS run
          WHERE run.id = substr(task_executions.awaits, 5) AND run.finished_at IS NULL)
      END
RETURNING id, root_id, task, queue, priority, suspect;
