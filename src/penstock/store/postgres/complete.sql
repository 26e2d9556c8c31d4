-- Statements of a handler that completes in its own transaction: text only, one row locked.

-- name: complete
-- The same fenced write as a settlement's. Who waits behind it is released after the commit:
-- a caller's transaction may stay open for long, and must not lock what others need.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::text::timestamptz, clock_timestamp()) AS now,
           :started_at::text::timestamptz AS started_at
), before AS MATERIALIZED (
    -- Its worker may have told the start a moment ago.
    SELECT task.id, task.started_at FROM penstock.task_executions AS task
    WHERE task.id = :id::text::uuid AND task.fence = :fence::text::bigint
      AND task.worker_id IS NOT DISTINCT FROM :worker_id::text
    FOR NO KEY UPDATE
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = 'completed', sub_state = NULL, suspect = false, fence = task.fence + 1,
        settled_fence = task.fence, worker_id = NULL, result = :result::text,
        writes = :writes::text,
        started_at = coalesce(before.started_at, moment.started_at), finished_at = moment.now
    FROM moment, before
    WHERE task.id = :id::text::uuid AND task.id = before.id AND task.fence = :fence::text::bigint
      AND task.worker_id IS NOT DISTINCT FROM :worker_id::text
    RETURNING task.id, task.root_id, task.task, task.queue, task.serial, task.follow_ups,
              task.trace, moment.now,
              CASE WHEN before.started_at IS NULL THEN moment.started_at END AS unknown_start
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, worker_id, at)
    SELECT moved.root_id, moved.id, event.type, :worker_id::text, event.at
    FROM moved CROSS JOIN LATERAL (VALUES
        (1, 'task.started', moved.unknown_start), (2, 'task.completed', moved.now)
    ) AS event (n, type, at)
    WHERE event.at IS NOT NULL
    ORDER BY event.n
), behind AS (
    INSERT INTO penstock.propagations (serial)
    SELECT serial FROM moved WHERE serial IS NOT NULL
), word AS (
    INSERT INTO penstock.run_propagations (run_id)
    SELECT root_id FROM moved WHERE root_id <> id
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(queue), 'waiting')) AS queues
    FROM moved WHERE (serial IS NOT NULL OR root_id <> id) AND :notify::text = 'yes'
)
SELECT moved.id::text, moved.task, 'completed', moved.follow_ups, :result::text, NULL::text,
       moved.trace
FROM moved CROSS JOIN woken;

-- name: once
-- Nothing is written without the lease: whoever lost it must not act any more.
WITH held AS MATERIALIZED (
    SELECT task.id FROM penstock.task_executions AS task
    WHERE task.id = :id::text::uuid AND task.fence = :fence::text::bigint
      AND task.worker_id IS NOT DISTINCT FROM :worker_id::text
), first AS (
    INSERT INTO penstock.once_ledger (task_execution_id, name, at)
    SELECT held.id, :name::text, coalesce(:now::text::timestamptz, clock_timestamp()) FROM held
    ON CONFLICT (task_execution_id, name) DO NOTHING
    RETURNING task_execution_id
)
SELECT EXISTS (SELECT FROM held), EXISTS (SELECT FROM first);

-- name: not_locked
-- Those that nobody's open transaction has touched. Never waits.
SELECT task.id::text, task.fence, task.settled_fence, task.worker_id
FROM penstock.task_executions AS task
WHERE task.id = ANY (:ids::uuid[])
ORDER BY task.id
FOR NO KEY UPDATE SKIP LOCKED;

-- name: still_there
SELECT task.id::text FROM penstock.task_executions AS task WHERE task.id = ANY (:ids::uuid[]);

-- name: progress
UPDATE penstock.task_executions SET progress = :progress
WHERE id = :id::uuid AND fence = :fence AND worker_id IS NOT DISTINCT FROM :worker_id
RETURNING id;
