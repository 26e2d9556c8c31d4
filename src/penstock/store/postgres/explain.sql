-- name: hurdles
SELECT moment.now,
       CASE task.state WHEN 'scheduled' THEN task.run_at - moment.now END,
       (SELECT paused.paused_at FROM penstock.paused_queues AS paused WHERE paused.queue = task.queue)
FROM penstock.task_executions AS task
CROSS JOIN (SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now) AS moment
WHERE task.id = :id::uuid;

-- name: ahead_in_serial
-- The first, the last and the number of the live ones ahead; the predicate is the index's own.
SELECT (SELECT ahead.id::text FROM penstock.task_executions AS ahead
        WHERE ahead.serial = task.serial AND ahead.serial IS NOT NULL AND ahead.finished_at IS NULL
          AND ahead.serial_place < task.serial_place
        ORDER BY ahead.serial, ahead.serial_place LIMIT 1),
       (SELECT ahead.id::text FROM penstock.task_executions AS ahead
        WHERE ahead.serial = task.serial AND ahead.serial IS NOT NULL AND ahead.finished_at IS NULL
          AND ahead.serial_place < task.serial_place
        ORDER BY ahead.serial DESC, ahead.serial_place DESC LIMIT 1),
       (SELECT count(*) FROM penstock.task_executions AS ahead
        WHERE ahead.serial = task.serial AND ahead.serial IS NOT NULL AND ahead.finished_at IS NULL
          AND ahead.serial_place < task.serial_place)
FROM penstock.task_executions AS task
WHERE task.id = :id::uuid AND task.finished_at IS NULL;

-- name: standings
SELECT task.id::text, task.task, task.state,
       CASE task.state WHEN 'running' THEN task.claimed_at ELSE (
           SELECT max(event.at) FROM penstock.execution_events AS event
           WHERE event.root_id = task.root_id AND event.task_execution_id = task.id
       ) END
FROM penstock.task_executions AS task
WHERE task.id = ANY (:ids::uuid[]);

-- name: ahead_in_queue
-- The order of the claim: by priority, suspects first among equals, then by sequence. One
-- range of the index each, so nothing behind it is read.
SELECT ahead.task, count(*)
FROM penstock.task_outbox AS mine CROSS JOIN LATERAL (
    SELECT first.task FROM penstock.task_outbox AS first
    WHERE first.queue = mine.queue AND first.priority > mine.priority
    UNION ALL
    SELECT first.task FROM penstock.task_outbox AS first
    WHERE first.queue = mine.queue AND first.priority = mine.priority AND first.suspect > mine.suspect
    UNION ALL
    SELECT first.task FROM penstock.task_outbox AS first
    WHERE first.queue = mine.queue AND first.priority = mine.priority AND first.suspect = mine.suspect
      AND first.seq < mine.seq
) AS ahead
WHERE mine.task_execution_id = :id::uuid
GROUP BY ahead.task;

-- name: loads
SELECT worker_id, task, count(*), count(*) FILTER (WHERE sub_state = 'active'),
       (array_agg(id::text ORDER BY claimed_at) FILTER (WHERE sub_state = 'active'))[1],
       min(claimed_at) FILTER (WHERE sub_state = 'active')
FROM penstock.task_executions
WHERE worker_id IS NOT NULL
GROUP BY worker_id, task;

-- name: ready_tasks
SELECT queue, task, count(*) FROM penstock.task_outbox GROUP BY queue, task ORDER BY queue, task;

-- name: task_names
-- Of the newest only: a table of millions has no index by task, and a name that somebody types is
-- one that is in use.
SELECT DISTINCT newest.task
FROM (
    SELECT task FROM penstock.task_executions WHERE id < :before::uuid ORDER BY id DESC LIMIT :limit
) AS newest
ORDER BY newest.task;

-- name: depths
-- A place in the outbox is given when a task is marked ready, and kept: so the lowest place has
-- waited longest since its mark.
SELECT depth.queue, depth.ready, coalesce(:now::timestamptz, clock_timestamp()) - coalesce((
    SELECT max(event.at) FROM penstock.execution_events AS event
    WHERE event.root_id = task.root_id AND event.task_execution_id = task.id
      AND event.type = 'task.marked_ready'
), task.created_at)
FROM (
    SELECT queue, count(*) AS ready, min(seq) AS seq FROM penstock.task_outbox GROUP BY queue
) AS depth
CROSS JOIN LATERAL (
    SELECT execution.id, execution.root_id, execution.created_at
    FROM penstock.task_executions AS execution
    WHERE execution.id = (
        SELECT outbox.task_execution_id FROM penstock.task_outbox AS outbox
        WHERE outbox.queue = depth.queue AND outbox.seq = depth.seq
    )
) AS task
ORDER BY depth.queue;

-- name: count
SELECT count(*) FROM penstock.task_executions
WHERE id < :before::uuid
  AND (:task::text IS NULL OR task = :task)
  AND (:queue::text IS NULL OR queue = :queue)
  AND (:state::text IS NULL OR state = :state);

-- name: count_failed
SELECT count(*) FROM penstock.task_executions
WHERE state = 'failed' AND id < :before::uuid
  AND (:task::text IS NULL OR task = :task)
  AND (:queue::text IS NULL OR queue = :queue);
