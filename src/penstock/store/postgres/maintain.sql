-- name: promote
-- The longest due first, and in that order into the outbox.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now
), due AS MATERIALIZED (
    SELECT task.id, task.run_at
    FROM penstock.task_executions AS task
    WHERE task.state = 'scheduled' AND task.run_at <= (SELECT now FROM moment)
    ORDER BY task.run_at
    LIMIT :limit
    FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = 'ready', awaits = NULL
    FROM moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM due)) AND task.state = 'scheduled'
    RETURNING task.id, task.root_id, task.task, task.queue, task.priority, task.suspect, task.run_at, moment.now
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, suspect, task)
    SELECT id, queue, priority, suspect, task FROM moved ORDER BY run_at, id
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, at)
    SELECT root_id, id, 'task.marked_ready', now FROM moved ORDER BY run_at, id
), word AS (
    INSERT INTO penstock.run_propagations (run_id)
    SELECT DISTINCT run.id FROM moved JOIN penstock.workflow_executions AS run ON run.id = moved.root_id
    WHERE run.id = ANY (ARRAY(SELECT root_id FROM moved WHERE root_id <> id)) AND run.state = 'paused'
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(queue), 'ready')) AS queues
    FROM (SELECT DISTINCT queue FROM moved WHERE :notify) AS touched
)
SELECT (SELECT count(*) FROM moved) AS promoted,
       least(
           (SELECT min(later.run_at) FROM penstock.task_executions AS later
            WHERE later.state = 'scheduled' AND later.run_at > (SELECT now FROM moment)),
           (SELECT min(run.deadline) FROM penstock.workflow_executions AS run
            WHERE run.deadline IS NOT NULL AND run.finished_at IS NULL
              AND run.deadline > (SELECT now FROM moment))
       ) - (SELECT now FROM moment) AS next_due,
       EXISTS (SELECT FROM penstock.workflow_executions AS run
               WHERE run.deadline IS NOT NULL AND run.finished_at IS NULL
                 AND run.deadline <= (SELECT now FROM moment)) AS overdue,
       woken.queues
FROM woken;

-- name: hasten
-- As above, by id; and never what waits for a signal or for a run: time is not what keeps that.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now
), asked AS MATERIALIZED (
    SELECT task.id FROM penstock.task_executions AS task
    WHERE task.id = ANY (:ids::uuid[]) AND task.state = 'scheduled' AND task.awaits IS NULL
    ORDER BY task.id
    FOR NO KEY UPDATE
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = 'ready'
    FROM moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM asked)) AND task.state = 'scheduled'
    RETURNING task.id, task.root_id, task.task, task.queue, task.priority, task.suspect, task.run_at, moment.now
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, suspect, task)
    SELECT id, queue, priority, suspect, task FROM moved ORDER BY run_at, id
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, data, at)
    SELECT root_id, id, 'task.marked_ready', :data, now FROM moved ORDER BY run_at, id
), word AS (
    INSERT INTO penstock.run_propagations (run_id)
    SELECT DISTINCT run.id FROM moved JOIN penstock.workflow_executions AS run ON run.id = moved.root_id
    WHERE run.id = ANY (ARRAY(SELECT root_id FROM moved WHERE root_id <> id)) AND run.state = 'paused'
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(queue), 'ready')) AS queues
    FROM (SELECT DISTINCT queue FROM moved WHERE :notify) AS touched
)
SELECT moved.id::text, woken.queues FROM moved CROSS JOIN woken;

-- name: observer
SELECT id FROM penstock.workers WHERE id = :observer FOR KEY SHARE;

-- name: declare_dead
-- The beat is the fence: a worker that has beaten since it was last seen is alive.
DELETE FROM penstock.workers AS worker
USING unnest(:worker_ids::text[], :beats::bigint[]) AS dead (id, beat)
WHERE worker.id = dead.id AND worker.beat = dead.beat AND worker.id <> :observer
RETURNING worker.id;

-- name: recover
-- SKIP LOCKED: a late settlement that holds the row decides by itself.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now
), orphan AS MATERIALIZED (
    SELECT task.id, task.worker_id
    FROM penstock.task_executions AS task
    WHERE task.worker_id IS NOT NULL
      AND NOT EXISTS (SELECT FROM penstock.workers AS owner WHERE owner.id = task.worker_id)
    ORDER BY task.worker_id, task.id
    LIMIT :limit
    FOR NO KEY UPDATE OF task SKIP LOCKED
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = CASE
            WHEN task.cancel_requested THEN 'cancelled'
            WHEN task.started_at IS NOT NULL AND task.crashes + 1 >= task.max_crashes THEN 'failed'
            ELSE 'ready'
        END,
        sub_state = NULL,
        attempt = CASE WHEN task.started_at IS NULL THEN task.attempt - 1 ELSE task.attempt END,
        crashes = CASE WHEN task.started_at IS NULL THEN task.crashes ELSE task.crashes + 1 END,
        suspect = true,
        fence = task.fence + 1,
        worker_id = NULL,
        error = CASE
            WHEN task.started_at IS NOT NULL AND task.crashes + 1 >= task.max_crashes
             AND NOT task.cancel_requested THEN :abandoned
            ELSE task.error
        END,
        finished_at = CASE
            WHEN task.cancel_requested
              OR task.started_at IS NOT NULL AND task.crashes + 1 >= task.max_crashes THEN moment.now
        END
    FROM moment, unnest(ARRAY(SELECT id FROM orphan), ARRAY(SELECT worker_id FROM orphan))
        AS orphan (id, worker_id)
    WHERE task.id = ANY (ARRAY(SELECT id FROM orphan))
      AND task.id = orphan.id AND task.worker_id IS NOT DISTINCT FROM orphan.worker_id
    RETURNING task.id, task.root_id, task.task, task.queue, task.priority, task.seq, task.state,
              task.serial, task.crashes, task.started_at, orphan.worker_id AS lost_worker, moment.now
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, seq, queue, priority, suspect, task)
    SELECT id, seq, queue, priority, true, task FROM moved WHERE state = 'ready' ORDER BY seq
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, data, worker_id, at)
    SELECT root_id, id,
           CASE state WHEN 'ready' THEN 'task.recovered' WHEN 'failed' THEN 'task.abandoned' ELSE 'task.cancelled' END,
           json_build_object('lost_worker', lost_worker, 'started', started_at IS NOT NULL, 'crashes', crashes)::text,
           :observer, now
    FROM moved ORDER BY seq
), behind AS (
    INSERT INTO penstock.run_propagations (run_id)
    SELECT DISTINCT root_id FROM moved WHERE root_id <> id
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(queue), 'ready')) AS queues
    FROM (SELECT DISTINCT queue FROM moved WHERE :notify AND state = 'ready') AS touched
)
SELECT moved.id::text, moved.state, moved.serial, moved.lost_worker, woken.queues
FROM moved CROSS JOIN woken
ORDER BY moved.seq;

-- name: strangers
-- What the worker has in the database and not in its hands. Its claims and its
-- reconciliations take turns, so nothing here is on its way to it.
SELECT task.id::text, task.fence, task.serial,
       CASE WHEN task.root_id <> task.id THEN task.root_id::text END
FROM penstock.task_executions AS task
WHERE task.worker_id = :worker_id AND task.worker_id IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM json_to_recordset(:batch::json) AS held (id uuid, fence bigint)
      WHERE held.id = task.id AND held.fence = task.fence
  );

-- name: chores
SELECT EXISTS (SELECT FROM penstock.task_executions AS task
               WHERE task.worker_id IS NOT NULL
                 AND NOT EXISTS (SELECT FROM penstock.workers AS owner WHERE owner.id = task.worker_id)),
       EXISTS (SELECT FROM penstock.propagations) OR EXISTS (SELECT FROM penstock.run_propagations)
         OR EXISTS (SELECT FROM penstock.task_wakes),
       least(
           (SELECT min(task.run_at) FROM penstock.task_executions AS task WHERE task.state = 'scheduled'),
           (SELECT min(run.deadline) FROM penstock.workflow_executions AS run
            WHERE run.deadline IS NOT NULL AND run.finished_at IS NULL)
       ) - coalesce(:now::timestamptz, clock_timestamp());

-- name: wake_channels
SELECT penstock.wake_channel(queue) FROM unnest(:queues::text[]) AS line (queue);
