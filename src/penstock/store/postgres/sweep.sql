-- Ids begin with the time of their making, so nothing younger than the limit is read.

-- name: sweep
-- A task of a run goes with the whole run, so what is found may be less than what goes.
-- The run by a scalar subquery, not by EXISTS: that is hashed, which reads all runs there are.
-- Locked and looked at once more: one that has been rerun meanwhile stays. SKIP LOCKED: so does
-- one that is about to be.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) - :older_than::interval AS before
), finished AS MATERIALIZED (
    SELECT task.id, task.root_id
    FROM penstock.task_executions AS task
    WHERE task.id > :after::uuid
      AND task.id < (SELECT (lpad(to_hex(greatest(extract(epoch FROM before) * 1000, 0)::bigint), 12, '0')
                             || '00000000000000000000')::uuid FROM moment)
      AND task.finished_at < (SELECT before FROM moment)
      AND CASE WHEN task.root_id = task.id THEN task.state IN ('completed', 'skipped', 'cancelled')
          ELSE (
              SELECT run.state IN ('completed', 'cancelled') AND run.finished_at < (SELECT before FROM moment)
              FROM penstock.workflow_executions AS run
              WHERE run.id = task.root_id)
          END
    ORDER BY task.id
    LIMIT :limit
), plain AS MATERIALIZED (
    SELECT task.id
    FROM penstock.task_executions AS task
    WHERE task.id = ANY (ARRAY(SELECT id FROM finished WHERE root_id = id))
      AND task.finished_at < (SELECT before FROM moment)
      AND task.state IN ('completed', 'skipped', 'cancelled')
    FOR UPDATE SKIP LOCKED
), whole AS MATERIALIZED (
    SELECT run.id
    FROM penstock.workflow_executions AS run
    WHERE run.id = ANY (ARRAY(SELECT DISTINCT root_id FROM finished WHERE root_id <> id))
      AND run.finished_at < (SELECT before FROM moment)
      AND run.state IN ('completed', 'cancelled')
    FOR UPDATE SKIP LOCKED
), going AS MATERIALIZED (
    SELECT id FROM plain
    UNION ALL
    SELECT task.id FROM whole CROSS JOIN LATERAL (
        SELECT part.id FROM penstock.task_executions AS part
        WHERE part.id > whole.id AND part.id <= (left(whole.id::text, -6) || 'ffffff')::uuid
          AND part.root_id = whole.id
        ORDER BY part.id
    ) AS task
), settled AS (
    DELETE FROM penstock.once_ledger WHERE task_execution_id = ANY (ARRAY(SELECT id FROM going))
), steps AS (
    DELETE FROM penstock.step_results WHERE task_execution_id = ANY (ARRAY(SELECT id FROM going))
), heard AS (
    DELETE FROM penstock.signals WHERE task_execution_id = ANY (ARRAY(SELECT id FROM going))
), swept AS (
    DELETE FROM penstock.task_executions WHERE id = ANY (ARRAY(SELECT id FROM going))
    RETURNING 1
), swept_runs AS (
    DELETE FROM penstock.workflow_executions WHERE id = ANY (ARRAY(SELECT id FROM whole))
    RETURNING 1
)
SELECT (SELECT count(*) FROM swept) + (SELECT count(*) FROM swept_runs),
       (SELECT count(*) FROM finished),
       (SELECT id::text FROM finished ORDER BY id DESC LIMIT 1),
       (SELECT root_id::text FROM finished ORDER BY id DESC LIMIT 1);

-- name: count_sweepable
-- The same without a lock: whoever only asks disturbs nobody.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) - :older_than::interval AS before
), finished AS MATERIALIZED (
    SELECT task.id, task.root_id
    FROM penstock.task_executions AS task
    WHERE task.id > :after::uuid
      AND task.id < (SELECT (lpad(to_hex(greatest(extract(epoch FROM before) * 1000, 0)::bigint), 12, '0')
                             || '00000000000000000000')::uuid FROM moment)
      AND task.finished_at < (SELECT before FROM moment)
      AND CASE WHEN task.root_id = task.id THEN task.state IN ('completed', 'skipped', 'cancelled')
          ELSE (
              SELECT run.state IN ('completed', 'cancelled') AND run.finished_at < (SELECT before FROM moment)
              FROM penstock.workflow_executions AS run
              WHERE run.id = task.root_id)
          END
    ORDER BY task.id
    LIMIT :limit
), plain AS MATERIALIZED (
    SELECT id FROM finished WHERE root_id = id
), whole AS MATERIALIZED (
    SELECT DISTINCT root_id AS id FROM finished WHERE root_id <> id
), going AS MATERIALIZED (
    SELECT id FROM plain
    UNION ALL
    SELECT task.id FROM whole CROSS JOIN LATERAL (
        SELECT part.id FROM penstock.task_executions AS part
        WHERE part.id > whole.id AND part.id <= (left(whole.id::text, -6) || 'ffffff')::uuid
          AND part.root_id = whole.id
        ORDER BY part.id
    ) AS task
)
SELECT (SELECT count(*) FROM going) + (SELECT count(*) FROM whole),
       (SELECT count(*) FROM finished),
       (SELECT id::text FROM finished ORDER BY id DESC LIMIT 1),
       (SELECT root_id::text FROM finished ORDER BY id DESC LIMIT 1);

-- name: events_to_look_at
-- How far about so many events reach. Roots are taken whole, so the last one may bring more.
SELECT coalesce(
           (SELECT event.root_id FROM penstock.execution_events AS event
            WHERE event.root_id > :after::uuid AND event.root_id < old.root_id
            ORDER BY event.root_id, event.seq
            OFFSET :limit - 1 LIMIT 1),
           old.root_id)::text, old.root_id::text, old.before
FROM (
    SELECT moment.before,
           (lpad(to_hex(greatest(extract(epoch FROM moment.before) * 1000, 0)::bigint), 12, '0')
            || '00000000000000000000')::uuid AS root_id
    FROM (SELECT coalesce(:now::timestamptz, clock_timestamp()) - :older_than::interval AS before)
         AS moment
) AS old;

-- name: roots_to_forget
-- Of an execution that was removed only its history says how and when it ended: the last event
-- of a root is always about the root itself then.
SELECT root.root_id::text
FROM (
    SELECT DISTINCT event.root_id FROM penstock.execution_events AS event
    WHERE event.root_id > :after::uuid AND event.root_id <= :upto::uuid
) AS root
LEFT JOIN LATERAL (
    SELECT task.state, task.finished_at FROM penstock.task_executions AS task
    WHERE task.id = root.root_id
    OFFSET 0
) AS kept ON true
LEFT JOIN LATERAL (
    SELECT run.state, run.finished_at FROM penstock.workflow_executions AS run
    WHERE run.id = root.root_id
    OFFSET 0
) AS kept_run ON true
WHERE CASE WHEN coalesce(kept.state, kept_run.state) IS NULL
      THEN (SELECT last.at < :before::timestamptz
                   AND CASE WHEN last.task_execution_id IS NULL
                       THEN last.type IN ('workflow.completed', 'workflow.cancelled')
                       ELSE last.task_execution_id = last.root_id
                            AND last.type IN ('task.completed', 'task.skipped', 'task.cancelled')
                       END
            FROM penstock.execution_events AS last
            WHERE last.root_id = root.root_id
            ORDER BY last.root_id DESC, last.seq DESC
            LIMIT 1)
      ELSE coalesce(kept.state, kept_run.state) IN ('completed', 'skipped', 'cancelled')
           AND coalesce(kept.finished_at, kept_run.finished_at) < :before::timestamptz
      END;

-- name: count_events_of
SELECT count(*) FROM penstock.execution_events WHERE root_id = ANY (:roots::uuid[]);

-- name: sweep_events
-- An execution that is still there is locked first, and looked at once it is: one that has
-- been rerun meanwhile keeps its history. SKIP LOCKED: so does one that is about to be.
WITH held AS MATERIALIZED (
    SELECT task.id FROM penstock.task_executions AS task
    WHERE task.id = ANY (:roots::uuid[])
      AND task.state IN ('completed', 'skipped', 'cancelled')
      AND task.finished_at < :before::timestamptz
    ORDER BY task.id
    FOR NO KEY UPDATE SKIP LOCKED
), held_runs AS MATERIALIZED (
    SELECT run.id FROM penstock.workflow_executions AS run
    WHERE run.id = ANY (:roots::uuid[])
      AND run.state IN ('completed', 'cancelled')
      AND run.finished_at < :before::timestamptz
    ORDER BY run.id
    FOR NO KEY UPDATE SKIP LOCKED
), known AS MATERIALIZED (
    SELECT id FROM penstock.task_executions WHERE id = ANY (:roots::uuid[])
    UNION ALL
    SELECT id FROM penstock.workflow_executions WHERE id = ANY (:roots::uuid[])
), swept AS (
    DELETE FROM penstock.execution_events
    WHERE root_id = ANY (ARRAY(
        SELECT root.id FROM unnest(:roots::uuid[]) AS root (id)
        WHERE root.id = ANY (ARRAY(SELECT id FROM held))
           OR root.id = ANY (ARRAY(SELECT id FROM held_runs))
           OR NOT root.id = ANY (ARRAY(SELECT id FROM known))
    ))
    RETURNING 1
)
SELECT count(*) FROM swept;
