-- name: hurdles
SELECT CASE task.state WHEN 'scheduled' THEN task.run_at - :now END,
       (SELECT paused.paused_at FROM paused_queues AS paused WHERE paused.queue = task.queue)
FROM task_executions AS task
WHERE task.id = :id;

-- name: ahead_in_serial
-- The first, the last and the number of the live ones ahead; the predicate is the index's own.
SELECT (SELECT ahead.id FROM task_executions AS ahead INDEXED BY task_executions_serial
        WHERE ahead.serial = task.serial AND ahead.serial IS NOT NULL AND ahead.finished_at IS NULL
          AND ahead.serial_place < task.serial_place
        ORDER BY ahead.serial_place LIMIT 1),
       (SELECT ahead.id FROM task_executions AS ahead INDEXED BY task_executions_serial
        WHERE ahead.serial = task.serial AND ahead.serial IS NOT NULL AND ahead.finished_at IS NULL
          AND ahead.serial_place < task.serial_place
        ORDER BY ahead.serial_place DESC LIMIT 1),
       (SELECT count(*) FROM task_executions AS ahead INDEXED BY task_executions_serial
        WHERE ahead.serial = task.serial AND ahead.serial IS NOT NULL AND ahead.finished_at IS NULL
          AND ahead.serial_place < task.serial_place)
FROM task_executions AS task
WHERE task.id = :id AND task.finished_at IS NULL;

-- name: standings
SELECT task.id, task.task, task.state,
       CASE task.state WHEN 'running' THEN task.claimed_at ELSE (
           SELECT max(event.at) FROM execution_events AS event INDEXED BY execution_events_root
           WHERE event.root_id = task.root_id AND event.task_execution_id = task.id
       ) END
FROM task_executions AS task
WHERE task.id IN (SELECT value FROM json_each(:ids));

-- name: ahead_in_queue
-- The order of the claim: by priority, suspects first among equals, then by sequence. One
-- range of the index each, so nothing behind it is read.
SELECT task, sum(executions) FROM (
    SELECT ahead.task AS task, count(*) AS executions
    FROM task_outbox AS mine INDEXED BY task_outbox_execution
    CROSS JOIN task_outbox AS ahead INDEXED BY task_outbox_lanes
    WHERE mine.task_execution_id = :id
      AND ahead.queue = mine.queue AND ahead.priority > mine.priority
    GROUP BY ahead.task
    UNION ALL
    SELECT ahead.task, count(*)
    FROM task_outbox AS mine INDEXED BY task_outbox_execution
    CROSS JOIN task_outbox AS ahead INDEXED BY task_outbox_lanes
    WHERE mine.task_execution_id = :id
      AND ahead.queue = mine.queue AND ahead.priority = mine.priority AND ahead.suspect > mine.suspect
    GROUP BY ahead.task
    UNION ALL
    SELECT ahead.task, count(*)
    FROM task_outbox AS mine INDEXED BY task_outbox_execution
    CROSS JOIN task_outbox AS ahead INDEXED BY task_outbox_lanes
    WHERE mine.task_execution_id = :id
      AND ahead.queue = mine.queue AND ahead.priority = mine.priority AND ahead.suspect = mine.suspect
      AND ahead.seq < mine.seq
    GROUP BY ahead.task
)
GROUP BY task;

-- name: loads
-- The comparison is true for every text: with it the scan enters by the workers' index. The id
-- stands alone on purpose: SQLite takes it from the row that has the minimum.
SELECT worker_id, task, count(*), sum(sub_state = 'active'),
       id, min(CASE sub_state WHEN 'active' THEN claimed_at END)
FROM task_executions INDEXED BY task_executions_worker
WHERE worker_id >= ''
GROUP BY worker_id, task;

-- name: ready_tasks
SELECT queue, task, count(*) FROM task_outbox GROUP BY queue, task ORDER BY queue, task;

-- name: task_names
-- Of the newest only: a table of millions has no index by task, and a name that somebody types is
-- one that is in use.
SELECT DISTINCT newest.task
FROM (
    SELECT task FROM task_executions WHERE id < :before ORDER BY id DESC LIMIT :limit
) AS newest
ORDER BY newest.task;

-- name: depths
-- One step of the index per queue, then a range of it each. A place in the outbox is given when
-- a task is marked ready, and kept: so the lowest place has waited longest since its mark.
WITH RECURSIVE step (queue) AS (
    SELECT min(queue) FROM task_outbox
    UNION ALL
    SELECT (SELECT min(next.queue) FROM task_outbox AS next WHERE next.queue > step.queue)
    FROM step
    WHERE step.queue IS NOT NULL
), depth AS MATERIALIZED (
    SELECT step.queue,
           (SELECT count(*) FROM task_outbox AS ready INDEXED BY task_outbox_lanes
            WHERE ready.queue = step.queue) AS ready,
           (SELECT found.task_execution_id FROM task_outbox AS found WHERE found.seq = (
               SELECT min(oldest.seq) FROM task_outbox AS oldest INDEXED BY task_outbox_lanes
               WHERE oldest.queue = step.queue
           )) AS oldest_id
    FROM step
    WHERE step.queue IS NOT NULL
)
SELECT depth.queue, depth.ready, :now - coalesce((
    SELECT max(event.at) FROM execution_events AS event INDEXED BY execution_events_root
    WHERE event.root_id = task.root_id AND event.task_execution_id = task.id
      AND event.type = 'task.marked_ready'
), task.created_at)
FROM depth CROSS JOIN task_executions AS task
WHERE task.id = depth.oldest_id
ORDER BY depth.queue;

-- name: count
SELECT count(*) FROM task_executions
WHERE id < :before
  AND (:task IS NULL OR task = :task)
  AND (:queue IS NULL OR queue = :queue)
  AND (:state IS NULL OR state = :state);

-- name: count_failed
SELECT count(*) FROM task_executions INDEXED BY task_executions_failed
WHERE state = 'failed' AND id < :before
  AND (:task IS NULL OR task = :task)
  AND (:queue IS NULL OR queue = :queue);
