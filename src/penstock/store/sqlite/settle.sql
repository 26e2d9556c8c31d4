-- name: settle_completed
-- What `settle` does, for completions of one worker and one fence that enqueue nothing: no rows
-- come back, but their number. It begins with UPDATE, or Python would not count.
-- The batch has for each id when the task began (NULL: that is known); or that, its result and its
-- writes in an array, which is no atom.
UPDATE task_executions AS task
SET state = 'completed', sub_state = NULL, suspect = 0, fence = task.fence + 1,
    settled_fence = task.fence, worker_id = NULL,
    result = CASE WHEN batch.atom IS NULL THEN coalesce(json_extract(batch.value, '$[1]'), 'null') ELSE 'null' END,
    writes = CASE WHEN batch.atom IS NULL THEN json_extract(batch.value, '$[2]') END,
    awaits = NULL,
    started_at = coalesce(batch.atom, json_extract(batch.value, '$[0]'), task.started_at),
    finished_at = :now
FROM json_each(:batch) AS batch
WHERE task.id = batch.key AND task.fence = :fence AND task.worker_id IS :worker_id;

-- name: tell_completed
-- Of those that `settle_completed` has just written, all of them.
INSERT INTO execution_events (root_id, task_execution_id, type, worker_id, at)
SELECT task.root_id, task.id, step.type, :worker_id,
       CASE step.type WHEN 'task.started' THEN task.started_at ELSE :now END
FROM json_each(:ids) AS completed
CROSS JOIN task_executions AS task ON task.id = completed.value
CROSS JOIN (SELECT 'task.started' AS type UNION ALL SELECT 'task.completed') AS step
WHERE step.type = 'task.completed' OR :with_start;

-- name: settle
-- The whole lease is compared: id, fence and worker. No id comes twice in a batch, so the
-- rows that come back tell by their id which outcome they belong to.
WITH element AS MATERIALIZED (
    SELECT value FROM json_each(:batch)
), batch AS MATERIALIZED (
    SELECT json_extract(value, '$.id') AS id,
           json_extract(value, '$.fence') AS fence,
           json_extract(value, '$.worker_id') AS worker_id,
           json_extract(value, '$.event') AS event,
           json_extract(value, '$.state') AS state,
           json_extract(value, '$.result') AS result,
           json_extract(value, '$.error') AS error,
           json_extract(value, '$.delay_us') AS delay_us,
           json_extract(value, '$.started_at_us') AS started_at_us,
           json_extract(value, '$.gives_back') AS gives_back,
           json_extract(value, '$.writes') AS writes,
           json_extract(value, '$.awaits') AS awaits
    FROM element
)
UPDATE task_executions AS task
SET state = CASE WHEN task.cancel_requested AND batch.state <> 'completed' THEN 'cancelled' ELSE batch.state END,
    sub_state = NULL,
    attempt = CASE WHEN batch.gives_back THEN task.attempt - 1 ELSE task.attempt END,
    retries = CASE WHEN batch.event = 'task.retry_scheduled' THEN task.retries + 1 ELSE task.retries END,
    suspect = task.suspect AND coalesce(batch.gives_back, false),
    fence = task.fence + 1,
    settled_fence = task.fence,
    worker_id = NULL,
    run_at = CASE WHEN batch.state = 'scheduled' THEN :now + batch.delay_us ELSE task.run_at END,
    result = batch.result,
    writes = batch.writes,
    awaits = CASE WHEN task.cancel_requested THEN NULL ELSE batch.awaits END,
    error = coalesce(batch.error, task.error),
    started_at = coalesce(batch.started_at_us, task.started_at),
    finished_at = CASE
        WHEN batch.state IN ('completed', 'failed', 'cancelled') OR task.cancel_requested THEN :now
    END
FROM batch
WHERE task.id = batch.id AND task.fence = batch.fence AND task.worker_id IS batch.worker_id
RETURNING id, root_id, task, queue, priority, state, seq, suspect, serial;

-- name: tell_settled
-- For those outcomes of the batch that `settle` has just written.
WITH element AS MATERIALIZED (
    SELECT key AS n, value FROM json_each(:batch)
    WHERE key IN (SELECT value FROM json_each(:moved))
), settled AS MATERIALIZED (
    SELECT element.n, element.value, task.id, task.root_id,
           CASE task.state WHEN 'cancelled' THEN 'task.cancelled' ELSE json_extract(element.value, '$.event') END AS type,
           json_extract(element.value, '$.worker_id') AS worker_id,
           json_extract(element.value, '$.started_at_us') AS started_at_us
    FROM element CROSS JOIN task_executions AS task
    WHERE task.id = json_extract(element.value, '$.id')
)
INSERT INTO execution_events (root_id, task_execution_id, type, data, worker_id, at)
SELECT root_id, id, type, data, worker_id, at
FROM (
    SELECT n, 1 AS step, root_id, id, 'task.started' AS type, NULL AS data, worker_id, started_at_us AS at
    FROM settled WHERE started_at_us IS NOT NULL
    UNION ALL
    SELECT n, 2, root_id, id, type, json_extract(value, '$.data'), worker_id, :now
    FROM settled
)
ORDER BY n, step;

-- name: settled_before
-- Which of these were settled by this very lease: a repeat after a lost reply.
SELECT asked.key
FROM json_each(:batch) AS asked CROSS JOIN task_executions AS task
WHERE task.id = json_extract(asked.value, '$.id')
  AND task.settled_fence = json_extract(asked.value, '$.fence');

-- name: held
-- Which of these leases are still the newest.
SELECT asked.key
FROM json_each(:batch) AS asked CROSS JOIN task_executions AS task
WHERE task.id = json_extract(asked.value, '$.id')
  AND task.fence = json_extract(asked.value, '$.fence')
  AND task.worker_id IS json_extract(asked.value, '$.worker_id');

-- name: start
WITH batch AS MATERIALIZED (
    SELECT json_extract(value, '$.id') AS id,
           json_extract(value, '$.fence') AS fence,
           json_extract(value, '$.worker_id') AS worker_id,
           json_extract(value, '$.started_at_us') AS started_at_us
    FROM json_each(:batch)
)
UPDATE task_executions AS task
SET started_at = coalesce(batch.started_at_us, :now)
FROM batch
WHERE task.id = batch.id AND task.fence = batch.fence AND task.worker_id IS batch.worker_id
  AND task.started_at IS NULL
RETURNING id, root_id, worker_id, started_at;

-- name: change_sub_state
WITH batch AS MATERIALIZED (
    SELECT json_extract(value, '$.id') AS id,
           json_extract(value, '$.fence') AS fence,
           json_extract(value, '$.worker_id') AS worker_id
    FROM json_each(:batch)
)
UPDATE task_executions AS task
SET sub_state = :sub_state
FROM batch
WHERE task.id = batch.id AND task.fence = batch.fence AND task.worker_id IS batch.worker_id
  AND task.sub_state <> :sub_state
RETURNING id, root_id, worker_id;

-- name: ended
SELECT id, task, state, follow_ups, result, error, trace FROM task_executions
WHERE id IN (SELECT value FROM json_each(:ids)) AND follow_ups IS NOT NULL;
