-- Steps that a task need not repeat, and what it waits for without a worker.

-- name: store_steps
-- Fenced: whoever lost the task has nothing to remember. The first result of a name stays.
WITH batch AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:batch::json) AS step (
        n integer, id uuid, fence bigint, worker_id text, name text, result text
    )
), held AS MATERIALIZED (
    SELECT batch.n, batch.id, batch.name, batch.result
    FROM batch JOIN penstock.task_executions AS task ON task.id = batch.id
    WHERE task.id = ANY (ARRAY(SELECT id FROM batch))
      AND task.fence = batch.fence AND task.worker_id IS NOT DISTINCT FROM batch.worker_id
), stored AS (
    INSERT INTO penstock.step_results (task_execution_id, name, result, at)
    SELECT id, name, result, coalesce(:now::timestamptz, clock_timestamp())
    FROM held
    ORDER BY id, name
    ON CONFLICT DO NOTHING
)
SELECT n FROM held;

-- name: memory
SELECT 'step', name, result FROM penstock.step_results WHERE task_execution_id = :id::uuid
UNION ALL
SELECT 'signal', name, data FROM penstock.signals WHERE task_execution_id = :id::uuid;

-- name: hold_lease
-- Locks the task, so that nobody takes it while what it does is written beside it.
SELECT id FROM penstock.task_executions
WHERE id = :id::uuid AND fence = :fence AND worker_id IS NOT DISTINCT FROM :worker_id
FOR NO KEY UPDATE;

-- name: remember
INSERT INTO penstock.step_results (task_execution_id, name, result, at)
VALUES (:id::uuid, :name, :result, coalesce(:now::timestamptz, clock_timestamp()))
ON CONFLICT DO NOTHING
RETURNING result;

-- name: remembered
SELECT result FROM penstock.step_results WHERE task_execution_id = :id::uuid AND name = :name;

-- name: signal
-- Runs on a caller's connection, whose transaction may stay open for long: the task itself is
-- not touched. Word is left that it may go on, and the commit wakes somebody to see to it.
WITH target AS MATERIALIZED (
    SELECT id, queue FROM penstock.task_executions
    WHERE id = :id::text::uuid AND finished_at IS NULL
), told AS (
    INSERT INTO penstock.signals (task_execution_id, name, data, at)
    SELECT id, :name::text, :data::text, coalesce(:now::text::timestamptz, clock_timestamp())
    FROM target
    ON CONFLICT DO NOTHING
    RETURNING task_execution_id
), word AS (
    INSERT INTO penstock.task_wakes (task_execution_id) SELECT task_execution_id FROM told
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(target.queue), 'waiting')) AS queues
    FROM target JOIN told ON told.task_execution_id = target.id
    WHERE :notify::text = 'yes'
)
SELECT EXISTS (SELECT FROM told), EXISTS (SELECT FROM target),
       EXISTS (SELECT FROM penstock.task_executions WHERE id = :id::text::uuid), woken.queues
FROM woken;

-- name: signalled
-- In a statement of its own: the one that found a signal in its way does not see it.
SELECT data FROM penstock.signals WHERE task_execution_id = :id::text::uuid AND name = :name::text;

-- name: take_task_wakes
WITH picked AS MATERIALIZED (
    SELECT seq FROM penstock.task_wakes ORDER BY seq LIMIT :limit FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM penstock.task_wakes WHERE seq = ANY (ARRAY(SELECT seq FROM picked))
    RETURNING task_execution_id
)
SELECT task.id::text, task.root_id::text
FROM taken JOIN penstock.task_executions AS task ON task.id = taken.task_execution_id
WHERE task.id = ANY (ARRAY(SELECT task_execution_id FROM taken));

-- name: leave_task_wakes
INSERT INTO penstock.task_wakes (task_execution_id)
SELECT id FROM penstock.task_executions WHERE id = ANY (:ids::uuid[]) ORDER BY id;

-- name: wake_tasks
-- Needs the lock on the tasks: whoever is about to let one wait must have done so, or must see
-- what has come for it.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = 'ready', awaits = NULL
    FROM moment
    WHERE task.id = ANY (:ids::uuid[]) AND task.state IN ('waiting', 'scheduled')
      AND CASE
          WHEN task.awaits LIKE 'signal:%' THEN EXISTS (
              SELECT FROM penstock.signals AS signal
              WHERE signal.task_execution_id = task.id AND signal.name = substr(task.awaits, 8))
          WHEN task.awaits LIKE 'run:%' THEN NOT EXISTS (
              SELECT FROM penstock.workflow_executions AS run
              WHERE run.id = substr(task.awaits, 5)::uuid AND run.finished_at IS NULL)
          END
    RETURNING task.id, task.root_id, task.task, task.queue, task.priority, task.suspect, moment.now
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, suspect, task)
    SELECT id, queue, priority, suspect, task FROM moved ORDER BY id
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, at)
    SELECT root_id, id, 'task.marked_ready', now FROM moved ORDER BY id
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(queue), 'ready')) AS queues
    FROM (SELECT DISTINCT queue FROM moved WHERE :notify) AS touched
)
SELECT moved.id::text, woken.queues FROM moved CROSS JOIN woken;
