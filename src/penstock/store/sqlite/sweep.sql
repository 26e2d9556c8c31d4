-- Ids begin with the time of their making, so nothing younger than the limit is read.

-- name: sweepable
SELECT id FROM task_executions
WHERE id > :after AND id < :made_before AND finished_at < :before
  AND state IN ('completed', 'skipped', 'cancelled')
ORDER BY id
LIMIT :limit;

-- name: sweep
-- They were found without the write lock: one that has been rerun since stays.
DELETE FROM task_executions
WHERE id IN (SELECT value FROM json_each(:ids)) AND finished_at < :before
  AND state IN ('completed', 'skipped', 'cancelled')
RETURNING id;

-- name: sweep_once_ledger
DELETE FROM once_ledger WHERE task_execution_id IN (SELECT value FROM json_each(:ids));

-- name: events_to_look_at
-- How far about so many events reach. Roots are taken whole, so the last one may bring more.
SELECT root_id FROM execution_events INDEXED BY execution_events_root
WHERE root_id > :after AND root_id < :made_before
ORDER BY root_id, seq
LIMIT 1 OFFSET :limit - 1;

-- name: roots_to_forget
-- Of an execution that was removed only its history says how and when it ended.
SELECT root.root_id
FROM (
    SELECT DISTINCT root_id FROM execution_events INDEXED BY execution_events_root
    WHERE root_id > :after AND root_id <= :upto
) AS root
LEFT JOIN task_executions AS task ON task.id = root.root_id
WHERE CASE WHEN task.id IS NULL
      THEN (SELECT last.at < :before
                   AND last.type IN ('task.completed', 'task.skipped', 'task.cancelled')
            FROM execution_events AS last INDEXED BY execution_events_root
            WHERE last.root_id = root.root_id
            ORDER BY last.seq DESC
            LIMIT 1)
      ELSE task.state IN ('completed', 'skipped', 'cancelled') AND task.finished_at < :before
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
    )
);

-- name: changed_rows
SELECT changes();
