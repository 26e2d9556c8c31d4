-- Runs of workflows. Text only, as in create.sql: some of this runs on a caller's connection.

-- name: start_runs
-- What each task begins as has been decided already: a start reads nothing but its inputs.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::text::timestamptz, clock_timestamp()) AS now
), incoming AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:runs::text::json) AS new (
        n integer, id uuid, workflow text, state text, graph text, fingerprint text, inputs text,
        timeout_us bigint, follow_ups text, parent_id uuid
    )
), task AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:tasks::text::json) AS new (
        n integer, id uuid, root_id uuid, task text, queue text, priority integer,
        max_crashes integer, args text, state text, follow_ups text, trace text
    )
), run AS (
    INSERT INTO penstock.workflow_executions (
        id, workflow, state, graph, fingerprint, inputs, follow_ups, timeout_us, deadline, created_at,
        finished_at, parent_id
    )
    SELECT new.id, new.workflow, new.state, new.graph, new.fingerprint, new.inputs, new.follow_ups,
           new.timeout_us, moment.now + new.timeout_us * interval '1 microsecond', moment.now,
           CASE WHEN new.state <> 'running' THEN moment.now END, new.parent_id
    FROM incoming AS new, moment
    ORDER BY new.id
    ON CONFLICT DO NOTHING
    RETURNING id, workflow, state
), created AS (
    INSERT INTO penstock.task_executions (
        id, root_id, task, queue, priority, args, state, max_crashes, follow_ups, trace, created_at,
        finished_at
    )
    SELECT task.id, task.root_id, task.task, task.queue, task.priority, task.args, task.state,
           task.max_crashes, task.follow_ups, task.trace, moment.now,
           CASE WHEN task.state = 'skipped' THEN moment.now END
    FROM task JOIN run ON run.id = task.root_id, moment
    ORDER BY task.n
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, task)
    SELECT task.id, task.queue, task.priority, task.task
    FROM task JOIN run ON run.id = task.root_id
    WHERE task.state = 'ready'
    ORDER BY task.n
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, data, at)
    SELECT event.root_id, event.task_id, event.type, event.data, moment.now
    FROM moment, (
        SELECT run.id AS root_id, NULL::uuid AS task_id, fact.type, fact.n AS place, fact.data, 0 AS step
        FROM run CROSS JOIN LATERAL (VALUES
            (0, 'workflow.started', json_build_object('workflow', run.workflow)::text),
            (2147483647, CASE WHEN run.state <> 'running' THEN 'workflow.' || run.state END, NULL)
        ) AS fact (n, type, data)
        WHERE fact.type IS NOT NULL
        UNION ALL
        SELECT task.root_id, task.id, fact.type, task.n + 1, NULL, fact.step
        FROM task JOIN run ON run.id = task.root_id CROSS JOIN LATERAL (VALUES
            (1, 'task.created'),
            (2, CASE task.state WHEN 'ready' THEN 'task.marked_ready' WHEN 'skipped' THEN 'task.skipped' END)
        ) AS fact (step, type)
        WHERE fact.type IS NOT NULL
    ) AS event
    ORDER BY event.root_id, event.place, event.step
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(queue), 'ready')) AS queues
    FROM (
        SELECT DISTINCT task.queue FROM task JOIN run ON run.id = task.root_id
        WHERE task.state = 'ready' AND :notify::text = 'yes'
    ) AS touched
)
SELECT run.id::text, woken.queues FROM run CROSS JOIN woken;

-- name: lock_runs
-- In a statement of its own, before anything is read under the lock: a rule that is looked at
-- in the locking statement sees what was true before it waited.
SELECT id::text, workflow, state, graph, inputs, cancel_requested, error, follow_ups
FROM penstock.workflow_executions
WHERE id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids::text::json)))
  AND finished_at IS NULL
ORDER BY id
FOR NO KEY UPDATE;

-- name: run_states
-- The ids of a run's tasks lie side by side, in the order of its graph.
-- One that awaits something has begun: it neither waits for its dependencies nor is it held.
SELECT run.first::text, (
    SELECT string_agg(task.state, ',') FROM (
        SELECT CASE WHEN awaits IS NULL THEN state WHEN awaits LIKE 'elements:%' THEN awaits ELSE 'running' END AS state
        FROM penstock.task_executions
        WHERE id > run.first AND id <= run.last
        ORDER BY id
    ) AS task
)
FROM json_to_recordset(:runs::text::json) AS run (first uuid, last uuid);

-- name: run_writes
SELECT run.first::text, task.id::text, task.writes
FROM json_to_recordset(:runs::text::json) AS run (first uuid, last uuid)
CROSS JOIN LATERAL (
    SELECT id, writes FROM penstock.task_executions
    WHERE id > run.first AND id <= run.last AND writes IS NOT NULL AND state = 'completed'
    ORDER BY id
) AS task;

-- name: run_results
SELECT id::text, state, result FROM penstock.task_executions
WHERE id = ANY (ARRAY(SELECT value::uuid FROM json_array_elements_text(:ids::text::json)));

-- name: run_trace
-- All tasks of a run have the same, so any one of them can tell it.
SELECT trace FROM penstock.task_executions WHERE id = :task_id::text::uuid;

-- name: cancel_reasons
-- What was said last to runs that were asked to stop.
SELECT run.id, (
    SELECT event.data FROM penstock.execution_events AS event
    WHERE event.root_id = run.id::uuid AND event.type = 'workflow.cancel_requested'
    ORDER BY event.root_id DESC, event.seq DESC
    LIMIT 1
)
FROM json_array_elements_text(:ids::text::json) AS run (id);

-- name: let_go
-- Needs the lock on the runs. A task that waits is ready by now, or skipped, or scheduled if
-- it was paused while it waited for its time.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::text::timestamptz, clock_timestamp()) AS now
), batch AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:tasks::text::json) AS task (
        n integer, id uuid, state text, args text, result text, error text, writes text, awaits text
    )
), ended AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:ends::text::json) AS run (n integer, id uuid, state text, error text, data text)
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = CASE WHEN batch.state = 'ready' AND task.run_at > moment.now THEN 'scheduled' ELSE batch.state END,
        args = coalesce(batch.args, task.args), result = batch.result,
        error = coalesce(batch.error, task.error),
        writes = batch.writes, awaits = batch.awaits,
        finished_at = CASE WHEN batch.state IN ('skipped', 'completed', 'failed', 'cancelled') THEN moment.now END
    FROM batch, moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM batch)) AND task.id = batch.id AND task.state = 'waiting'
    RETURNING task.id, task.root_id, task.task, task.queue, task.priority, task.suspect, task.state,
              task.run_at, task.error, batch.n, moment.now
), closed AS (
    UPDATE penstock.workflow_executions AS run
    SET state = ended.state, error = ended.error, finished_at = moment.now
    FROM ended, moment
    WHERE run.id = ANY (ARRAY(SELECT id FROM ended)) AND run.id = ended.id AND run.finished_at IS NULL
    RETURNING run.id, run.parent_id, run.state, ended.data, ended.n, moment.now
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, suspect, task)
    SELECT id, queue, priority, suspect, task FROM moved WHERE state = 'ready' ORDER BY n
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, data, at)
    SELECT root_id, task_id, type, data, now
    FROM (
        SELECT root_id, id AS task_id,
               CASE state WHEN 'ready' THEN 'task.marked_ready' ELSE 'task.' || state END AS type,
               CASE WHEN state = 'failed' THEN '{"error":' || error || '}' WHEN state = 'scheduled' THEN '{"run_at":"' || to_char(run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"') || '"}' END AS data,
               now, 1 AS step, n
        FROM moved WHERE state <> 'waiting'
        UNION ALL
        SELECT id, NULL, 'workflow.' || state, data, now, 2, n FROM closed
    ) AS fact
    ORDER BY step, n
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(queue), state)) AS queues
    FROM (
        SELECT queue, state FROM moved WHERE state IN ('ready', 'scheduled')
        UNION
        SELECT parent.queue, 'waiting' FROM closed
        JOIN penstock.task_executions AS parent ON parent.id = closed.parent_id
        WHERE parent.id = ANY (ARRAY(SELECT parent_id FROM closed))
    ) AS touched
    WHERE :notify::text = 'yes'
), word AS (
    INSERT INTO penstock.task_wakes (task_execution_id)
    SELECT parent_id FROM closed WHERE parent_id IS NOT NULL
)
SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM closed), woken.queues FROM woken;

-- name: elements
-- Of tasks that run for each element of a list; their ids lie side by side.
SELECT task.id::text, CASE WHEN task.awaits IS NULL THEN task.state ELSE 'running' END, task.args,
       task.result, task.writes
FROM json_to_recordset(:groups::text::json) AS list (first uuid, last uuid)
CROSS JOIN LATERAL (
    SELECT id, state, awaits, args, result, writes FROM penstock.task_executions
    WHERE id >= list.first AND id <= list.last
    ORDER BY id
) AS task;

-- name: element_states
-- How many of each list have not ended, and what of them could go on by now.
SELECT list.first::text, task.live, task.held
FROM json_to_recordset(:groups::text::json) AS list (first uuid, last uuid)
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE finished_at IS NULL) AS live,
           count(*) FILTER (WHERE state = 'waiting' AND awaits IS NULL) AS held
    FROM penstock.task_executions
    WHERE id >= list.first AND id <= list.last
) AS task;

-- name: add_elements
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::text::timestamptz, clock_timestamp()) AS now
), task AS MATERIALIZED (
    SELECT * FROM json_to_recordset(:tasks::text::json) AS new (
        n integer, id uuid, root_id uuid, task text, queue text, priority integer,
        max_crashes integer, args text, state text, follow_ups text, trace text
    )
), created AS (
    INSERT INTO penstock.task_executions (
        id, root_id, task, queue, priority, args, state, max_crashes, follow_ups, trace, created_at
    )
    SELECT task.id, task.root_id, task.task, task.queue, task.priority, task.args, task.state,
           task.max_crashes, task.follow_ups, task.trace, moment.now
    FROM task, moment
    ORDER BY task.n
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, task)
    SELECT id, queue, priority, task FROM task ORDER BY n
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, at)
    SELECT task.root_id, task.id, fact.type, moment.now
    FROM moment, task CROSS JOIN (VALUES (1, 'task.created'), (2, 'task.marked_ready')) AS fact (step, type)
    ORDER BY task.n, fact.step
)
SELECT count(pg_notify(penstock.wake_channel(queue), 'ready'))
FROM (SELECT DISTINCT queue FROM task WHERE :notify::text = 'yes') AS touched;

-- name: reset_tasks
-- Ended tasks wait again; what they knew before is in the history.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::text::timestamptz, clock_timestamp()) AS now
), wanted AS MATERIALIZED (
    SELECT value::uuid AS id FROM json_array_elements_text(:ids::text::json)
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = 'waiting', retries = 0, crashes = 0, suspect = false, cancel_requested = false,
        run_at = NULL, result = NULL, error = NULL, writes = NULL, progress = NULL,
        started_at = NULL, finished_at = NULL
    FROM moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM wanted))
      AND task.state IN ('completed', 'failed', 'skipped', 'cancelled')
    RETURNING task.id, task.root_id, moment.now
), waiting_anew AS (
    DELETE FROM penstock.step_results AS step USING moved
    WHERE step.task_execution_id = moved.id AND step.name LIKE 'signal:%'
)
INSERT INTO penstock.execution_events (root_id, task_execution_id, type, at)
SELECT root_id, id, 'task.rerun', now FROM moved ORDER BY id;

-- name: hold
-- Takes back what has not begun of a paused run. The outbox first, as the claim does.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::text::timestamptz, clock_timestamp()) AS now
), wanted AS MATERIALIZED (
    SELECT value::uuid AS id FROM json_array_elements_text(:ids::text::json)
), withdrawn AS (
    DELETE FROM penstock.task_outbox WHERE task_execution_id = ANY (ARRAY(SELECT id FROM wanted))
    RETURNING task_execution_id
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = 'waiting'
    FROM moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM wanted))
      AND (task.state = 'scheduled'
           OR task.state = 'ready' AND task.id = ANY (ARRAY(SELECT task_execution_id FROM withdrawn)))
    RETURNING task.id, task.root_id, moment.now
), word AS (
    -- One that was promoted a moment ago is ready and not withdrawn: somebody looks once more.
    INSERT INTO penstock.run_propagations (run_id)
    SELECT DISTINCT task.root_id FROM penstock.task_executions AS task
    WHERE task.id = ANY (ARRAY(SELECT id FROM wanted))
)
INSERT INTO penstock.execution_events (root_id, task_execution_id, type, at)
SELECT root_id, id, 'task.paused', now FROM moved ORDER BY id;

-- name: change_run
-- Pausing, resuming and asking to stop. Needs the lock on the run.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::text::timestamptz, clock_timestamp()) AS now
), changed AS (
    UPDATE penstock.workflow_executions AS run
    SET state = coalesce(:state::text, run.state),
        cancel_requested = run.cancel_requested OR :cancel::text = 'yes',
        error = coalesce(:error::text, run.error),
        deadline = CASE WHEN :cancel::text = 'yes' THEN NULL ELSE run.deadline END
    WHERE run.id = :id::text::uuid AND run.finished_at IS NULL
    RETURNING run.id
)
INSERT INTO penstock.execution_events (root_id, type, data, at)
SELECT changed.id, :event::text, :data::text, moment.now FROM changed, moment WHERE :event::text IS NOT NULL;

-- name: lock_run
-- Also one that has ended: it is to live again.
SELECT id::text, workflow, state, graph, inputs, cancel_requested, error, follow_ups
FROM penstock.workflow_executions
WHERE id = :id::text::uuid
FOR NO KEY UPDATE;

-- name: revive
-- Needs the lock on the run.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::text::timestamptz, clock_timestamp()) AS now
), run AS (
    UPDATE penstock.workflow_executions AS run
    SET state = CASE WHEN run.finished_at IS NULL THEN run.state ELSE 'running' END,
        cancel_requested = false, error = NULL, finished_at = NULL,
        deadline = moment.now + run.timeout_us * interval '1 microsecond'
    FROM moment
    WHERE run.id = :id::text::uuid
    RETURNING run.id, moment.now
)
INSERT INTO penstock.execution_events (root_id, type, at)
SELECT id, 'workflow.rerun', now FROM run WHERE :ended::text = 'yes';

-- name: run_state
SELECT state FROM penstock.workflow_executions WHERE id = :id::text::uuid;

-- name: overdue_runs
SELECT id::text FROM penstock.workflow_executions
WHERE deadline IS NOT NULL AND finished_at IS NULL
  AND deadline <= coalesce(:now::text::timestamptz, clock_timestamp())
ORDER BY deadline
LIMIT :limit
FOR NO KEY UPDATE SKIP LOCKED;

-- name: take_run_propagations
-- Word that a run is to be cancelled stays until it is: that is another transaction, and whoever
-- is about to begin it may die before.
WITH picked AS MATERIALIZED (
    SELECT seq, run_id, cancel FROM penstock.run_propagations
    ORDER BY seq
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM penstock.run_propagations
    WHERE seq = ANY (ARRAY(SELECT seq FROM picked WHERE cancel IS NULL))
)
SELECT seq, run_id::text, cancel FROM picked;

-- name: take_orphan
DELETE FROM penstock.run_propagations WHERE seq = :seq RETURNING seq;

-- name: leave_run_propagations
INSERT INTO penstock.run_propagations (run_id)
SELECT DISTINCT task.root_id FROM penstock.task_executions AS task
WHERE task.id = ANY (:ids::uuid[]) AND task.root_id <> task.id;

-- name: leave_orphans
-- Word that the live runs are to be cancelled which cancelled tasks have started. They are told
-- what the tasks were. In a statement of its own: a start may have been waited for by the last.
WITH orphan AS MATERIALIZED (
    SELECT run.id, parent.queue, coalesce((
        SELECT event.data FROM penstock.execution_events AS event
        WHERE event.root_id = parent.root_id AND event.task_execution_id = parent.id
          AND event.type = CASE WHEN parent.cancel_requested THEN 'task.cancel_requested' ELSE 'task.cancelled' END
        ORDER BY event.root_id DESC, event.seq DESC
        LIMIT 1
    ), '{}') AS said
    FROM penstock.workflow_executions AS run
    JOIN penstock.task_executions AS parent ON parent.id = run.parent_id
    WHERE run.parent_id = ANY (:ids::uuid[]) AND run.parent_id IS NOT NULL AND run.finished_at IS NULL
      AND parent.id = ANY (:ids::uuid[])
), word AS (
    INSERT INTO penstock.run_propagations (run_id, cancel) SELECT id, said FROM orphan ORDER BY id
)
SELECT count(pg_notify(penstock.wake_channel(queue), 'waiting'))
FROM (SELECT DISTINCT queue FROM orphan WHERE :notify) AS touched;

-- name: runs
SELECT id::text, workflow, state, graph, fingerprint, inputs, cancel_requested, error, deadline,
       created_at, finished_at
FROM penstock.workflow_executions
WHERE id = ANY (:ids::uuid[]);

-- name: count_runs
SELECT state, count(*) FROM penstock.workflow_executions GROUP BY state;

-- name: find_runs
SELECT id::text, workflow, state, graph, fingerprint, inputs, cancel_requested, error, deadline,
       created_at, finished_at
FROM penstock.workflow_executions
WHERE id < :before::uuid
  AND (:workflow::text IS NULL OR workflow = :workflow)
  AND (:state::text IS NULL OR state = :state)
ORDER BY id DESC
LIMIT :limit;

-- name: elements_of
SELECT id::text, root_id::text, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, writes, created_at, claimed_at, started_at, finished_at, awaits
FROM penstock.task_executions
WHERE id >= :first::uuid AND id <= :last::uuid AND root_id = :run_id::uuid
ORDER BY id;

-- name: count_elements
-- By the digits that tell the task, and a few more: whoever asks adds up.
SELECT min(id::text), state, count(*)
FROM penstock.task_executions
WHERE id >= :first::uuid AND id <= :last::uuid
GROUP BY substr(id::text, 31, 3), state;

-- name: tasks_of
SELECT id::text, root_id::text, task, args, queue, priority, state, sub_state, attempt, retries,
       crashes, max_crashes, suspect, cancel_requested, fence, worker_id, key, serial, run_at,
       result, error, progress, writes, created_at, claimed_at, started_at, finished_at, awaits
FROM penstock.task_executions
WHERE id > :run_id::uuid AND id <= :last::uuid AND root_id = :run_id::uuid
ORDER BY id;
