-- A lane is what has one order: a queue, a priority, and whether its tasks are suspect.
-- INDEXED BY, here and elsewhere: ANALYZE may have seen an almost empty table, and a plan
-- made for that one walks the full one. NOT INDEXED leaves the row's own number to enter by.

-- name: newest_seq
SELECT seq FROM sqlite_sequence WHERE name = 'task_outbox';

-- name: lanes
-- A loose index scan: one step per queue and priority, however deep they are. For each lane,
-- the first of the tasks and the end of its head, at no more than :head rows.
-- In one row: each row more would be one more turn with the interpreter's lock.
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
SELECT json_group_array(json_array(
    step.queue, step.priority, kind.value,
    (
        SELECT seq FROM (
            SELECT seq, task FROM task_outbox INDEXED BY task_outbox_lanes
            WHERE queue = step.queue AND priority = step.priority AND suspect = kind.value
            ORDER BY seq
            LIMIT :head
        )
        WHERE task IN (SELECT value FROM json_each(:tasks))
        LIMIT 1
    ),
    (
        SELECT seq FROM task_outbox INDEXED BY task_outbox_lanes
        WHERE queue = step.queue AND priority = step.priority AND suspect = kind.value
        ORDER BY seq
        LIMIT 1 OFFSET :head
    )
))
FROM step CROSS JOIN json_each(:kinds) AS kind
WHERE step.priority IS NOT NULL;

-- name: first_in_lane
SELECT seq FROM task_outbox INDEXED BY task_outbox_lanes
WHERE queue = :queue AND priority = :priority AND suspect = :suspect AND seq >= :low_water
  AND task IN (SELECT value FROM json_each(:tasks))
ORDER BY seq
LIMIT 1;

-- name: look_at_lane
-- What stands in a lane, with the execution that may be handed out for it, if there is one, as it
-- is then: one fence and one attempt later.
-- In one row: each row more would be one more turn with the interpreter's lock. (JSON holds no
-- BLOB, and somebody may have written one. The whole goes as one, because what is no text in it
-- is nobody else's fault. A moment that no calendar has is left out.)
-- :most_steps bounds the walk over rows of unknown tasks while everybody else waits. Nothing for
-- a worker that has been declared dead while it waited for the lock, and nothing from a queue that
-- has been paused meanwhile.
SELECT CAST(json_group_array(json_array(
    place.seq, place.task_execution_id, task.root_id, task.fence + 1, task.task,
    CAST(task.args AS text), task.queue, task.priority, task.attempt + 1, task.retries, task.crashes,
    task.suspect, CAST(task.serial AS text), CAST(task.follow_ups AS text),
    CASE WHEN coalesce(task.run_at, task.created_at) BETWEEN -62135596800000000 AND 253402300799999999
        THEN coalesce(task.run_at, CASE task.attempt WHEN 0 THEN task.created_at END) END,
    CAST(task.trace AS text)
)) AS blob)
FROM (
    SELECT seq
    FROM (
        SELECT seq, task FROM task_outbox INDEXED BY task_outbox_lanes
        WHERE queue = :queue AND priority = :priority AND suspect = :suspect AND seq >= :low_water
        ORDER BY seq
        LIMIT :most_steps
    )
    WHERE task IN (SELECT value FROM json_each(:tasks))
      AND EXISTS (SELECT id FROM workers WHERE id = :worker_id)
      AND NOT EXISTS (SELECT queue FROM paused_queues WHERE queue = :queue)
    LIMIT :limit
) AS lane
CROSS JOIN task_outbox AS place NOT INDEXED ON place.seq = lane.seq
LEFT JOIN task_executions AS task ON task.id = place.task_execution_id AND task.state = 'ready';

-- name: hand_out
-- SQLite has one writer, and every transaction of ours begins IMMEDIATE: no other claim can
-- start until this one commits, so there are no row locks to take.
UPDATE task_executions AS task INDEXED BY sqlite_autoindex_task_executions_1
SET state = 'running', sub_state = 'active', attempt = attempt + 1, fence = fence + 1,
    worker_id = :worker_id, claimed_at = :now, started_at = NULL, progress = NULL,
    seq = (
        SELECT place.seq FROM task_outbox AS place INDEXED BY task_outbox_execution
        WHERE place.task_execution_id = task.id
    )
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'ready';

-- name: handed_out
SELECT id FROM task_executions AS task INDEXED BY sqlite_autoindex_task_executions_1
WHERE id IN (SELECT value FROM json_each(:ids))
  AND state = 'running' AND worker_id = :worker_id AND claimed_at = :now;

-- name: tell_claimed
-- The batch has for each id the attempt; or its run's id and the attempt in an array, which is no
-- atom.
INSERT INTO execution_events (root_id, task_execution_id, type, data, worker_id, at)
SELECT CASE WHEN atom IS NULL THEN json_extract(value, '$[0]') ELSE key END,
       key,
       'task.claimed',
       '{"attempt":' || coalesce(atom, json_extract(value, '$[1]')) || '}',
       :worker_id,
       :now
FROM json_each(:batch);

-- name: leave_outbox
DELETE FROM task_outbox INDEXED BY task_outbox_execution
WHERE task_execution_id IN (SELECT value FROM json_each(:ids));
