-- name: get
SELECT id::text, root_id::text, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, created_at, claimed_at, started_at, finished_at
FROM penstock.task_executions
WHERE id = ANY (:ids::uuid[]);

-- name: find
SELECT id::text, root_id::text, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, created_at, claimed_at, started_at, finished_at
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
       result, error, progress, created_at, claimed_at, started_at, finished_at
FROM penstock.task_executions
WHERE state = 'failed' AND id < :before::uuid
  AND (:task::text IS NULL OR task = :task)
  AND (:queue::text IS NULL OR queue = :queue)
  AND (:key::text IS NULL OR key = :key)
ORDER BY id DESC
LIMIT :limit;

-- name: history
-- Of a swept execution nothing is left to say which root it belonged to: then it was its own.
SELECT event.seq, event.type, event.at, event.worker_id, event.data
FROM penstock.execution_events AS event
WHERE event.root_id = coalesce(
          (SELECT root_id FROM penstock.task_executions WHERE id = :id::uuid), :id::uuid)
  AND event.task_execution_id = :id::uuid
ORDER BY event.seq;

-- name: counts
SELECT state, count(*) FROM penstock.task_executions GROUP BY state;

-- name: explain_waiting
SELECT task.state,
       CASE task.state WHEN 'scheduled' THEN task.run_at - coalesce(:now::timestamptz, clock_timestamp()) END,
       (SELECT ahead.id::text FROM penstock.task_executions AS ahead
        WHERE ahead.serial = task.serial AND ahead.serial IS NOT NULL AND ahead.finished_at IS NULL
          AND ahead.serial_place < task.serial_place AND task.finished_at IS NULL
        ORDER BY ahead.serial_place DESC LIMIT 1),
       EXISTS (SELECT FROM penstock.paused_queues AS paused WHERE paused.queue = task.queue),
       (SELECT count(*) FROM penstock.task_outbox AS mine JOIN penstock.task_outbox AS ahead
          ON ahead.queue = mine.queue
         AND (ahead.priority > mine.priority OR ahead.priority = mine.priority AND ahead.seq < mine.seq)
        WHERE mine.task_execution_id = task.id)
FROM penstock.task_executions AS task
WHERE task.id = :id::uuid;
