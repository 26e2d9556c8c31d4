-- name: tasks
SELECT id, state, task, key, serial, finished_at FROM task_executions
WHERE id IN (SELECT value FROM json_each(:ids))
ORDER BY id;

-- name: withdraw
DELETE FROM task_outbox INDEXED BY task_outbox_execution
WHERE task_execution_id IN (SELECT value FROM json_each(:ids));

-- name: cancel
UPDATE task_executions
SET state = 'cancelled', awaits = NULL, finished_at = :now
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('scheduled', 'waiting', 'ready')
RETURNING id, root_id, serial;

-- name: request_cancel
-- Who asks again is not told of again.
UPDATE task_executions SET cancel_requested = 1
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'running' AND NOT cancel_requested
RETURNING id, root_id;

-- name: rerun
-- Those with a serial wait at first, at its end in the order of the ids.
WITH place AS MATERIALIZED (
    SELECT asked.key AS n, asked.value AS id, (
        SELECT max(live.serial_place) FROM task_executions AS live INDEXED BY task_executions_serial
        WHERE live.serial = mine.serial AND live.serial IS NOT NULL AND live.finished_at IS NULL
    ) AS last
    FROM json_each(:ids) AS asked CROSS JOIN task_executions AS mine
    WHERE mine.id = asked.value
)
UPDATE task_executions AS task
SET state = CASE WHEN task.serial IS NULL THEN 'ready' ELSE 'waiting' END,
    retries = 0, crashes = 0, suspect = 0, cancel_requested = 0, run_at = NULL,
    result = NULL, error = NULL, started_at = NULL, finished_at = NULL,
    serial_place = CASE WHEN task.serial IS NOT NULL THEN coalesce(place.last, 0) + 1 + place.n END
FROM place
WHERE task.id = place.id AND task.state IN ('completed', 'failed', 'skipped', 'cancelled')
RETURNING id, root_id, task, queue, priority, state, serial;

-- name: key_holders
SELECT finished.id, finished.key, live.id
FROM json_each(:ids) AS asked
CROSS JOIN task_executions AS finished
CROSS JOIN task_executions AS live INDEXED BY task_executions_live_key
WHERE finished.id = asked.value AND finished.key IS NOT NULL AND finished.finished_at IS NOT NULL
  AND live.task = finished.task AND live.key = finished.key
  AND live.key IS NOT NULL AND live.finished_at IS NULL
ORDER BY finished.id;

-- name: pause
INSERT INTO paused_queues (queue, paused_at) VALUES (:queue, :now)
ON CONFLICT (queue) DO NOTHING
RETURNING queue;

-- name: unpause
DELETE FROM paused_queues WHERE queue = :queue RETURNING queue;

-- name: paused
SELECT queue FROM paused_queues ORDER BY queue;
