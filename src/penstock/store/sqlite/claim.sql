-- A lane is what has one order: a queue, a priority, and whether its tasks are suspect.
-- INDEXED BY, here and elsewhere: ANALYZE may have seen an almost empty table, and a plan
-- made for that one walks the full one.

-- name: is_alive
SELECT id FROM workers WHERE id = :worker_id;

-- name: newest_seq
SELECT seq FROM sqlite_sequence WHERE name = 'task_outbox';

-- name: lanes
-- A loose index scan: one step per queue and priority, however deep they are.
WITH RECURSIVE step (queue, priority) AS (
    SELECT wanted.value, (SELECT max(priority) FROM task_outbox WHERE queue = wanted.value)
    FROM json_each(:queues) AS wanted
    WHERE NOT EXISTS (SELECT queue FROM paused_queues WHERE queue = wanted.value)
    UNION ALL
    SELECT step.queue, (
        SELECT max(next.priority) FROM task_outbox AS next
        WHERE next.queue = step.queue AND next.priority < step.priority
    )
    FROM step
    WHERE step.priority IS NOT NULL
)
SELECT queue, priority FROM step WHERE priority IS NOT NULL;

-- name: first_near_head
-- Looks at no more than :most_steps rows.
SELECT seq FROM (
    SELECT seq, task FROM task_outbox INDEXED BY task_outbox_lanes
    WHERE queue = :queue AND priority = :priority AND suspect = :suspect
    ORDER BY seq
    LIMIT :most_steps
)
WHERE task IN (SELECT value FROM json_each(:tasks))
LIMIT 1;

-- name: end_of_head
SELECT seq FROM task_outbox INDEXED BY task_outbox_lanes
WHERE queue = :queue AND priority = :priority AND suspect = :suspect
ORDER BY seq
LIMIT 1 OFFSET :most_steps;

-- name: first_in_lane
SELECT seq FROM task_outbox INDEXED BY task_outbox_lanes
WHERE queue = :queue AND priority = :priority AND suspect = :suspect AND seq >= :low_water
  AND task IN (SELECT value FROM json_each(:tasks))
ORDER BY seq
LIMIT 1;

-- name: take_from_outbox
-- SQLite has one writer, and every transaction of ours begins IMMEDIATE: no other claim can
-- start until this one commits, so there are no row locks to take.
-- :most_steps bounds the walk over rows of unknown tasks while everybody else waits.
DELETE FROM task_outbox INDEXED BY task_outbox_execution
WHERE task_execution_id IN (
    SELECT (SELECT found.task_execution_id FROM task_outbox AS found WHERE found.seq = lane.seq)
    FROM (
        SELECT seq, task FROM task_outbox INDEXED BY task_outbox_lanes
        WHERE queue = :queue AND priority = :priority AND suspect = :suspect AND seq >= :low_water
        ORDER BY seq
        LIMIT :most_steps
    ) AS lane
    WHERE task IN (SELECT value FROM json_each(:tasks))
    LIMIT :limit
)
RETURNING seq, task_execution_id;

-- name: hand_out
WITH taken AS MATERIALIZED (
    SELECT json_extract(value, '$[0]') AS seq, json_extract(value, '$[1]') AS id
    FROM json_each(:taken)
)
UPDATE task_executions
SET state = 'running', sub_state = 'active', attempt = attempt + 1, fence = fence + 1,
    worker_id = :worker_id, seq = taken.seq, claimed_at = :now, started_at = NULL, progress = NULL
FROM taken
WHERE task_executions.id = taken.id AND task_executions.state = 'ready'
RETURNING id, root_id, fence, task, args, queue, priority, seq, attempt, retries, crashes,
          suspect, serial, follow_ups,
          coalesce(run_at, CASE attempt WHEN 1 THEN created_at END) AS due_at,
          trace;
