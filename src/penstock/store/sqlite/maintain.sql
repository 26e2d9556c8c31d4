-- name: next_due
SELECT min(run_at) FROM task_executions INDEXED BY task_executions_due
WHERE state = 'scheduled' AND run_at > :after;

-- name: promote
UPDATE task_executions
SET state = 'ready', awaits = NULL
WHERE state = 'scheduled' AND id IN (
    SELECT due.id FROM task_executions AS due INDEXED BY task_executions_due
    WHERE due.state = 'scheduled' AND due.run_at <= :now
    ORDER BY due.run_at
    LIMIT :limit
)
RETURNING id, root_id, task, queue, priority, suspect, run_at;

-- name: hasten
-- By id, and never what waits for a signal or for a run: time is not what keeps that.
UPDATE task_executions
SET state = 'ready'
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'scheduled' AND awaits IS NULL
RETURNING id, root_id, task, queue, priority, suspect, run_at;

-- name: declare_dead
-- The beat is the fence: a worker that has beaten since it was last seen is alive.
DELETE FROM workers
WHERE id <> :observer AND id IN (
    SELECT json_extract(dead.value, '$[0]') FROM json_each(:dead) AS dead
    WHERE json_extract(dead.value, '$[1]') = workers.beat
      AND json_extract(dead.value, '$[0]') = workers.id
)
RETURNING id;

-- name: orphans
-- The comparison is true for every text: with it the scan enters by the workers' index,
-- which is as small as the slots.
SELECT task.id, task.worker_id
FROM task_executions AS task INDEXED BY task_executions_worker
WHERE task.worker_id >= ''
  AND NOT EXISTS (SELECT owner.id FROM workers AS owner WHERE owner.id = task.worker_id)
ORDER BY task.worker_id, task.id
LIMIT :limit;

-- name: recover
-- Plain columns only: in RETURNING, SQLite 3.40 takes every column for one that is never NULL.
UPDATE task_executions
SET state = CASE
        WHEN cancel_requested THEN 'cancelled'
        WHEN started_at IS NOT NULL AND crashes + 1 >= max_crashes THEN 'failed'
        ELSE 'ready'
    END,
    sub_state = NULL,
    attempt = CASE WHEN started_at IS NULL THEN attempt - 1 ELSE attempt END,
    crashes = CASE WHEN started_at IS NULL THEN crashes ELSE crashes + 1 END,
    suspect = 1,
    fence = fence + 1,
    worker_id = NULL,
    error = CASE
        WHEN started_at IS NOT NULL AND crashes + 1 >= max_crashes AND NOT cancel_requested THEN :abandoned
        ELSE error
    END,
    finished_at = CASE
        WHEN cancel_requested OR started_at IS NOT NULL AND crashes + 1 >= max_crashes THEN :now
    END
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id, root_id, task, queue, priority, seq, state, serial, crashes, started_at;

-- name: strangers
-- What the worker has in the database and not in its hands. Its claims and its
-- reconciliations take turns, so nothing here is on its way to it.
SELECT task.id, task.fence, task.serial,
       CASE WHEN task.root_id <> task.id THEN task.root_id END
FROM task_executions AS task INDEXED BY task_executions_worker
WHERE task.worker_id = :worker_id AND task.worker_id IS NOT NULL
  AND (task.id, task.fence) NOT IN (
      SELECT json_extract(held.value, '$.id'), json_extract(held.value, '$.fence')
      FROM json_each(:batch) AS held
  )
ORDER BY task.id;
