-- name: lock_outbox
SELECT task_execution_id::text FROM penstock.task_outbox
WHERE task_execution_id = ANY (:ids::uuid[])
ORDER BY task_execution_id
FOR UPDATE;

-- name: lock_tasks
SELECT id::text, state, task, key, serial FROM penstock.task_executions
WHERE id = ANY (:ids::uuid[])
ORDER BY id
FOR NO KEY UPDATE;

-- name: serials_of
SELECT DISTINCT serial FROM penstock.task_executions
WHERE id = ANY (:ids::uuid[]) AND serial IS NOT NULL;

-- name: cancel
-- Runs under the locks on the outbox rows and on the tasks.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now
), withdrawn AS (
    DELETE FROM penstock.task_outbox WHERE task_execution_id = ANY (:ids::uuid[])
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = 'cancelled', awaits = NULL, finished_at = moment.now
    FROM moment
    WHERE task.id = ANY (:ids::uuid[]) AND task.state IN ('scheduled', 'waiting', 'ready')
    RETURNING task.id, task.root_id, moment.now
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, data, at)
    SELECT root_id, id, 'task.cancelled', :data, now FROM moved ORDER BY id
)
SELECT id::text FROM moved;

-- name: request_cancel
-- Runs under the locks on the tasks. Who asks again is not told of again.
WITH asked AS (
    UPDATE penstock.task_executions SET cancel_requested = true
    WHERE id = ANY (:ids::uuid[]) AND state = 'running' AND NOT cancel_requested
    RETURNING id, root_id, queue
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, data, at)
    SELECT root_id, id, 'task.cancel_requested', :data, coalesce(:now::timestamptz, clock_timestamp())
    FROM asked ORDER BY id
)
SELECT count(pg_notify(penstock.wake_channel(queue), 'cancel'))
FROM (SELECT DISTINCT queue FROM asked WHERE :notify) AS touched;

-- name: rerun
-- Runs under the locks on the serials and on the tasks; those with a serial wait at first. Steps
-- stay done, but for the deadlines of waits: who has let one pass would let it pass for ever.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = CASE WHEN task.serial IS NULL THEN 'ready' ELSE 'waiting' END,
        retries = 0, crashes = 0, suspect = false, cancel_requested = false, run_at = NULL,
        result = NULL, error = NULL, started_at = NULL, finished_at = NULL,
        serial_place = CASE WHEN task.serial IS NOT NULL THEN coalesce((
            SELECT max(live.serial_place) FROM penstock.task_executions AS live
            WHERE live.serial = task.serial AND live.serial IS NOT NULL AND live.finished_at IS NULL
        ), 0) + place.n END
    FROM moment, unnest(:ids::uuid[]) WITH ORDINALITY AS place (id, n)
    WHERE task.id = place.id
      AND task.state IN ('completed', 'failed', 'skipped', 'cancelled')
    RETURNING task.id, task.root_id, task.task, task.queue, task.priority, task.state, place.n, moment.now
), waiting_anew AS (
    DELETE FROM penstock.step_results AS step USING moved
    WHERE step.task_execution_id = moved.id AND step.name LIKE 'signal:%'
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, task)
    SELECT id, queue, priority, task FROM moved WHERE state = 'ready' ORDER BY n
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, at)
    SELECT moved.root_id, moved.id, event.type, moved.now
    FROM moved CROSS JOIN LATERAL (VALUES
        (1, 'task.rerun'), (2, CASE moved.state WHEN 'ready' THEN 'task.marked_ready' END)
    ) AS event (n, type)
    WHERE event.type IS NOT NULL
    ORDER BY moved.n, event.n
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(queue), 'ready')) AS queues
    FROM (SELECT DISTINCT queue FROM moved WHERE :notify) AS touched
)
SELECT moved.id::text, woken.queues FROM moved CROSS JOIN woken;

-- name: key_holders
SELECT finished.id::text, finished.key, live.id::text
FROM penstock.task_executions AS finished
JOIN penstock.task_executions AS live
  ON live.task = finished.task AND live.key = finished.key
 AND live.key IS NOT NULL AND live.finished_at IS NULL AND live.id <> finished.id
WHERE finished.id = ANY (:ids::uuid[]) AND finished.key IS NOT NULL AND finished.finished_at IS NOT NULL;

-- name: pause
INSERT INTO penstock.paused_queues (queue, paused_at)
VALUES (:queue, coalesce(:now::timestamptz, clock_timestamp()))
ON CONFLICT (queue) DO NOTHING
RETURNING queue;

-- name: unpause
WITH resumed AS (
    DELETE FROM penstock.paused_queues WHERE queue = :queue RETURNING queue
)
SELECT queue, pg_notify(penstock.wake_channel(queue), 'ready') FROM resumed;

-- name: paused
SELECT queue FROM penstock.paused_queues ORDER BY queue;
