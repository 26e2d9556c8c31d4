-- Ids begin with the time of their making, so nothing younger than the limit is read.

-- name: sweepable
-- A task of a run goes with the whole run.
SELECT task.id, task.root_id FROM task_executions AS task
WHERE task.id > :after AND task.id < :made_before AND task.finished_at < :before
  AND CASE WHEN task.root_id = task.id THEN task.state IN ('completed', 'skipped', 'cancelled')
      ELSE EXISTS (
          SELECT run.id FROM workflow_executions AS run
          WHERE run.id = task.root_id AND run.state IN ('completed', 'cancelled')
            AND run.finished_at < :before)
      END
ORDER BY task.id
LIMIT :limit;

-- name: count_tasks_of
SELECT count(*) FROM json_each(:runs) AS run CROSS JOIN task_executions AS task
WHERE task.id > json_extract(run.value, '$.first') AND task.id <= json_extract(run.value, '$.last')
  AND task.root_id = json_extract(run.value, '$.first');

-- name: sweep
-- They were found without the write lock: one that has been rerun since stays.
DELETE FROM task_executions
WHERE id IN (SELECT value FROM json_each(:ids)) AND finished_at < :before
  AND state IN ('completed', 'skipped', 'cancelled')
RETURNING id;

-- name: sweep_runs
DELETE FROM workflow_executions
WHERE id IN (SELECT value FROM json_each(:ids)) AND finished_at < :before
  AND state IN ('completed', 'cancelled')
RETURNING id;

-- name: sweep_tasks_of
DELETE FROM task_executions
WHERE id IN (
    SELECT task.id FROM json_each(:runs) AS run CROSS JOIN task_executions AS task
    WHERE task.id > json_extract(run.value, '$.first') AND task.id <= json_extract(run.value, '$.last')
      AND task.root_id = json_extract(run.value, '$.first')
)
RETURNING id;

-- name: sweep_once_ledger
DELETE FROM once_ledger WHERE task_execution_id IN (SELECT value FROM json_each(:ids));

-- name: sweep_step_results
DELETE FROM step_results WHERE task_execution_id IN (SELECT value FROM json_each(:ids));

-- name: sweep_signals
DELETE FROM signals WHERE task_execution_id IN (SELECT value FROM json_each(:ids));

-- name: events_to_look_at
-- How far about so many events reach. Roots are taken whole, so the last one may bring more.
SELECT root_id FROM execution_events INDEXED BY execution_events_root
WHERE root_id > :after AND root_id < :made_before
ORDER BY root_id, seq
LIMIT 1 OFFSET :limit - 1;

-- name: roots_to_forget
-- Of an execution that was removed only its history says how and when it ended: the last event
-- of a root is always about the root itself then.
SELECT root.root_id
FROM (
    SELECT DISTINCT root_id FROM execution_events INDEXED BY execution_events_root
    WHERE root_id > :after AND root_id <= :upto
) AS root
LEFT JOIN task_executions AS task ON task.id = root.root_id
LEFT JOIN workflow_executions AS run ON run.id = root.root_id
WHERE CASE WHEN coalesce(task.id, run.id) IS NULL
      THEN (SELECT last.at < :before
                   AND CASE WHEN last.task_execution_id IS NULL
                       THEN last.type IN ('workflow.completed', 'workflow.cancelled')
                       ELSE last.task_execution_id = last.root_id
                            AND last.type IN ('task.completed', 'task.skipped', 'task.cancelled')
                       END
            FROM execution_events AS last INDEXED BY execution_events_root
            WHERE last.root_id = root.root_id
            ORDER BY last.seq DESC
            LIMIT 1)
      ELSE coalesce(task.state, run.state) IN ('completed', 'skipped', 'cancelled')
           AND coalesce(task.finished_at, run.finished_at) < :before
      END;

-- name: count_events_of
SELECT count(*) FROM execution_events INDEXED BY execution_events_root
WHERE root_id IN (SELECT value FROM json_each(:roots));

-- name: sweep_events
-- They were found without the write lock: one that has been rerun since keeps its history.
DELETE FROM execution_events INDEXED BY execution_events_root
WHERE root_id IN (
    SELECT root.value FROM json_each(:roots) AS root
    WHERE NOT EXISTS (
        SELECT task.id FROM task_executions AS task
        WHERE task.id = root.value
          AND NOT (task.state IN ('completed', 'skipped', 'cancelled') AND task.finished_at < :before)
    ) AND NOT EXISTS (
        SELECT run.id FROM workflow_executions AS run
        WHERE run.id = root.value
          AND NOT (run.state IN ('completed', 'cancelled') AND run.finished_at IS NOT NULL
                   AND run.finished_at < :before)
    )
);

-- name: changed_rows
SELECT changes();
