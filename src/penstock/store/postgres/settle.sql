-- name: settle
-- The whole lease is compared: id, fence and worker. IS NOT DISTINCT FROM, because an
-- equality would let a plan made on stale statistics enter by the index on worker_id.
-- The ids once more as an array, here and below: no plan can do without them and read the
-- whole table, as a mere join made for a small table does.
-- Everything is decided on the row as it is once locked, so a cancel request that
-- committed a moment ago counts.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now
), batch AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:batch::json) AS outcome (
        n integer, id uuid, fence bigint, worker_id text, event text, state text, result text,
        error text, data text, delay_us bigint, started_at_us bigint, gives_back boolean, writes text, awaits text
    )
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = CASE WHEN task.cancel_requested AND batch.state <> 'completed' THEN 'cancelled' ELSE batch.state END,
        sub_state = NULL,
        attempt = CASE WHEN batch.gives_back THEN task.attempt - 1 ELSE task.attempt END,
        retries = CASE WHEN batch.event = 'task.retry_scheduled' THEN task.retries + 1 ELSE task.retries END,
        suspect = task.suspect AND coalesce(batch.gives_back, false),
        fence = task.fence + 1,
        settled_fence = task.fence,
        worker_id = NULL,
        run_at = CASE WHEN batch.state = 'scheduled' THEN moment.now + batch.delay_us * interval '1 microsecond' ELSE task.run_at END,
        result = batch.result,
        writes = batch.writes,
        awaits = CASE WHEN task.cancel_requested THEN NULL ELSE batch.awaits END,
        error = coalesce(batch.error, task.error),
        started_at = coalesce('epoch'::timestamptz + batch.started_at_us * interval '1 microsecond', task.started_at),
        finished_at = CASE
            WHEN batch.state IN ('completed', 'failed', 'cancelled') OR task.cancel_requested THEN moment.now
        END
    FROM batch, moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM batch)) AND task.id = batch.id
      AND task.fence = batch.fence AND task.worker_id IS NOT DISTINCT FROM batch.worker_id
    RETURNING task.id, task.root_id, task.task, task.queue, task.priority, task.state, task.seq,
              task.suspect, task.run_at, batch.n, batch.event, batch.data, batch.started_at_us,
              batch.worker_id, moment.now
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, seq, queue, priority, suspect, task)
    SELECT id, seq, queue, priority, suspect, task FROM moved WHERE state = 'ready' ORDER BY seq
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, data, worker_id, at)
    SELECT root_id, id, type, data, worker_id, at
    FROM (
        SELECT 1 AS place, n, root_id, id, 'task.started' AS type, NULL AS data, worker_id,
               'epoch'::timestamptz + started_at_us * interval '1 microsecond' AS at
        FROM moved WHERE started_at_us IS NOT NULL
        UNION ALL
        SELECT 2, n, root_id, id, CASE state WHEN 'cancelled' THEN 'task.cancelled' ELSE event END, data,
               worker_id, now
        FROM moved
    ) AS event
    ORDER BY place, n
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(queue), state)) AS queues
    FROM (
        SELECT DISTINCT queue, state FROM moved
        WHERE :notify AND (state = 'ready' OR state = 'scheduled' AND run_at <= coalesce((
            SELECT min(due.run_at) FROM penstock.task_executions AS due WHERE due.state = 'scheduled'
              AND due.run_at > (SELECT now FROM moment)
        ), run_at))
    ) AS touched
)
SELECT moved.n, moved.state, woken.queues FROM moved CROSS JOIN woken;

-- name: settle_completed
-- What `settle` does, for completions on which nothing else depends: few members to read, and no
-- rows come back, but their number.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now
), batch AS MATERIALIZED (
    SELECT id, fence, result, writes,
           'epoch'::timestamptz + started_at_us * interval '1 microsecond' AS started_at
    FROM json_to_recordset(:batch::json) AS completed (
        id uuid, fence bigint, started_at_us bigint, result text, writes text
    )
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = 'completed', sub_state = NULL, suspect = false, fence = task.fence + 1,
        settled_fence = task.fence, worker_id = NULL, result = batch.result, writes = batch.writes,
        awaits = NULL, started_at = coalesce(batch.started_at, task.started_at), finished_at = moment.now
    FROM batch, moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM batch)) AND task.id = batch.id
      AND task.fence = batch.fence AND task.worker_id IS NOT DISTINCT FROM :worker_id
    RETURNING task.id, task.root_id, batch.started_at, moment.now
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, worker_id, at)
    SELECT root_id, id, type, :worker_id, at
    FROM (
        SELECT 1 AS place, root_id, id, 'task.started' AS type, started_at AS at
        FROM moved WHERE started_at IS NOT NULL
        UNION ALL
        SELECT 2, root_id, id, 'task.completed', now
        FROM moved
    ) AS event
    ORDER BY place
)
SELECT count(*) FROM moved;

-- name: settled_before
-- Which of these were settled by this very lease: a repeat after a lost reply.
-- A statement of its own, because the first one cannot see what committed while it waited.
SELECT asked.n
FROM json_to_recordset(:batch::json) AS asked (n integer, id uuid, fence bigint)
JOIN penstock.task_executions AS task ON task.id = asked.id
WHERE task.id = ANY (ARRAY(SELECT id FROM json_to_recordset(:batch::json) AS batch (id uuid)))
  AND task.settled_fence = asked.fence;

-- name: start
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now
), batch AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:batch::json) AS held (
        n integer, id uuid, fence bigint, worker_id text, started_at_us bigint
    )
), moved AS (
    UPDATE penstock.task_executions AS task
    SET started_at = coalesce('epoch'::timestamptz + batch.started_at_us * interval '1 microsecond', moment.now)
    FROM batch, moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM batch)) AND task.id = batch.id
      AND task.fence = batch.fence AND task.worker_id IS NOT DISTINCT FROM batch.worker_id
      AND task.started_at IS NULL
    RETURNING task.id, task.root_id, batch.n, batch.worker_id, task.started_at
)
INSERT INTO penstock.execution_events (root_id, task_execution_id, type, worker_id, at)
SELECT root_id, id, 'task.started', worker_id, started_at FROM moved ORDER BY n;

-- name: change_sub_state
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now
), batch AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:batch::json) AS held (n integer, id uuid, fence bigint, worker_id text)
), moved AS (
    UPDATE penstock.task_executions AS task
    SET sub_state = :sub_state
    FROM batch, moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM batch)) AND task.id = batch.id
      AND task.fence = batch.fence AND task.worker_id IS NOT DISTINCT FROM batch.worker_id
      AND task.sub_state <> :sub_state
    RETURNING task.id, task.root_id, batch.n, batch.worker_id, moment.now
)
INSERT INTO penstock.execution_events (root_id, task_execution_id, type, data, worker_id, at)
SELECT root_id, id, :event, :data, worker_id, now FROM moved ORDER BY n;

-- name: held
-- Which of these leases are still the newest.
SELECT asked.n
FROM json_to_recordset(:batch::json) AS asked (n integer, id uuid, fence bigint, worker_id text)
JOIN penstock.task_executions AS task ON task.id = asked.id
WHERE task.id = ANY (ARRAY(SELECT id FROM json_to_recordset(:batch::json) AS batch (id uuid)))
  AND task.fence = asked.fence AND task.worker_id IS NOT DISTINCT FROM asked.worker_id;

-- name: try_lock_serials
-- Never waits: a caller may keep its transaction open for as long as it likes.
SELECT serial FROM penstock.serials
WHERE serial = ANY (:serials::text[])
ORDER BY serial
FOR UPDATE SKIP LOCKED;

-- name: forget_empty_serials
DELETE FROM penstock.serials AS line
WHERE line.serial = ANY (:serials::text[]) AND NOT EXISTS (
    SELECT FROM penstock.task_executions AS live
    WHERE live.serial = line.serial AND live.serial IS NOT NULL AND live.finished_at IS NULL
);

-- name: leave_propagations
-- Only for serials that are there: one that is just being made goes on by itself.
INSERT INTO penstock.propagations (serial)
SELECT serial FROM penstock.serials WHERE serial = ANY (:serials::text[]) ORDER BY serial;

-- name: take_propagations
WITH picked AS MATERIALIZED (
    SELECT seq FROM penstock.propagations ORDER BY seq LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM penstock.propagations WHERE seq = ANY (ARRAY(SELECT seq FROM picked))
RETURNING serial;

-- name: ended
SELECT id::text, task, state, follow_ups, result, error, trace FROM penstock.task_executions
WHERE id = ANY (:ids::uuid[]) AND follow_ups IS NOT NULL;
