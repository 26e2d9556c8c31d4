-- name: get
SELECT id::text, root_id::text, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, writes, created_at, claimed_at, started_at, finished_at, awaits
FROM penstock.task_executions
WHERE id = ANY (:ids::uuid[]);

-- name: find
SELECT id::text, root_id::text, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, writes, created_at, claimed_at, started_at, finished_at, awaits
FROM penstock.task_executions
WHERE id < :before::uuid
  AND (:task::text IS NULL OR task = :task)
  AND (:queue::text IS NULL OR queue = :queue)
  AND (:state::text IS NULL OR state = :state)
  AND (:key::text IS NULL OR key = :key)
ORDER BY id DESC
LIMIT :limit;

-- name: find_failed
-- The dead-letter list has an index of its own: it must not be looked for among the millions.
SELECT id::text, root_id::text, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, writes, created_at, claimed_at, started_at, finished_at, awaits
FROM penstock.task_executions
WHERE state = 'failed' AND id < :before::uuid
  AND (:task::text IS NULL OR task = :task)
  AND (:queue::text IS NULL OR queue = :queue)
  AND (:key::text IS NULL OR key = :key)
ORDER BY id DESC
LIMIT :limit;

-- name: history
-- Of a swept execution nothing is left to say which root it belonged to. Then it was its own, or
-- its id tells the run that it was part of.
SELECT event.seq, event.type, event.at, event.worker_id, event.data, event.task_execution_id::text
FROM penstock.execution_events AS event
WHERE event.root_id = ANY (ARRAY[:id::uuid, :run_id::uuid])
  AND (event.root_id = :id::uuid OR event.task_execution_id = :id::uuid)
ORDER BY event.root_id, event.seq;

-- name: counts
SELECT state, count(*) FROM penstock.task_executions GROUP BY state;

-- name: gauges
-- Each count has an index of its own that leaves out what has ended, so their cost follows the
-- live and the failed, never the millions that are kept.
SELECT (SELECT count(*) FROM penstock.task_executions WHERE state = 'scheduled'),
       held.running, held.deferred,
       (SELECT count(*) FROM penstock.task_executions WHERE state = 'failed'),
       present.heard, present.silent
FROM (
    SELECT count(*) FILTER (WHERE sub_state = 'active') AS running,
           count(*) FILTER (WHERE sub_state = 'deferred') AS deferred
    FROM penstock.task_executions WHERE worker_id IS NOT NULL
) AS held
CROSS JOIN (
    SELECT count(*) FILTER (WHERE beat_at >= heard_since) AS heard,
           count(*) FILTER (WHERE beat_at < heard_since) AS silent
    FROM penstock.workers
    CROSS JOIN (SELECT coalesce(:now::timestamptz, clock_timestamp()) - 2 * :lease::interval AS heard_since) AS limits
) AS present;
