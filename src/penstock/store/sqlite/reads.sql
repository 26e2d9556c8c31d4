-- name: get
SELECT id, root_id, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, writes, created_at, claimed_at, started_at, finished_at, awaits
FROM task_executions
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: find
SELECT id, root_id, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, writes, created_at, claimed_at, started_at, finished_at, awaits
FROM task_executions
WHERE id < :before
  AND (:task IS NULL OR task = :task)
  AND (:queue IS NULL OR queue = :queue)
  AND (:state IS NULL OR state = :state)
  AND (:key IS NULL OR key = :key)
ORDER BY id DESC
LIMIT :limit;

-- name: find_failed
-- The dead-letter list has an index of its own: it must not be looked for among the millions.
SELECT id, root_id, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, writes, created_at, claimed_at, started_at, finished_at, awaits
FROM task_executions INDEXED BY task_executions_failed
WHERE state = 'failed' AND id < :before
  AND (:task IS NULL OR task = :task)
  AND (:queue IS NULL OR queue = :queue)
  AND (:key IS NULL OR key = :key)
ORDER BY id DESC
LIMIT :limit;

-- name: history
-- Of a swept execution nothing is left to say which root it belonged to. Then it was its own, or
-- its id tells the run that it was part of.
SELECT seq, type, at, worker_id, data, task_execution_id
FROM execution_events INDEXED BY execution_events_root
WHERE root_id IN (:id, :run_id) AND (root_id = :id OR task_execution_id = :id)
ORDER BY seq;

-- name: counts
SELECT state, count(*) FROM task_executions GROUP BY state;

-- name: gauges
-- Each count has an index of its own that leaves out what has ended, so their cost follows the
-- live and the failed, never the millions that are kept.
SELECT (SELECT count(*) FROM task_executions INDEXED BY task_executions_due WHERE state = 'scheduled'),
       held.running, held.deferred,
       (SELECT count(*) FROM task_executions INDEXED BY task_executions_failed WHERE state = 'failed'),
       present.heard, present.silent
FROM (
    SELECT coalesce(sum(sub_state = 'active'), 0) AS running,
           coalesce(sum(sub_state = 'deferred'), 0) AS deferred
    FROM task_executions INDEXED BY task_executions_worker WHERE worker_id >= ''
) AS held
CROSS JOIN (
    SELECT coalesce(sum(beat_at >= :heard_since), 0) AS heard,
           coalesce(sum(beat_at < :heard_since), 0) AS silent
    FROM workers
) AS present;
