-- Ids begin with the time of their making, so nothing younger than the limit is read.

-- name: sweep
-- SKIP LOCKED: a rerun that holds the row keeps it.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) - :older_than::interval AS before
), finished AS MATERIALIZED (
    SELECT task.id
    FROM penstock.task_executions AS task
    WHERE task.id > :after::uuid
      AND task.id < (SELECT (lpad(to_hex(greatest(extract(epoch FROM before) * 1000, 0)::bigint), 12, '0')
                             || '00000000000000000000')::uuid FROM moment)
      AND task.finished_at < (SELECT before FROM moment)
      AND task.state IN ('completed', 'skipped', 'cancelled')
    ORDER BY task.id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
), settled AS (
    DELETE FROM penstock.once_ledger WHERE task_execution_id = ANY (ARRAY(SELECT id FROM finished))
), swept AS (
    DELETE FROM penstock.task_executions
    WHERE id = ANY (ARRAY(SELECT id FROM finished))
    RETURNING id
)
SELECT (SELECT count(*) FROM swept), (SELECT id::text FROM swept ORDER BY id DESC LIMIT 1);

-- name: count_sweepable
-- The same without a lock: whoever only asks disturbs nobody.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) - :older_than::interval AS before
), finished AS MATERIALIZED (
    SELECT task.id
    FROM penstock.task_executions AS task
    WHERE task.id > :after::uuid
      AND task.id < (SELECT (lpad(to_hex(greatest(extract(epoch FROM before) * 1000, 0)::bigint), 12, '0')
                             || '00000000000000000000')::uuid FROM moment)
      AND task.finished_at < (SELECT before FROM moment)
      AND task.state IN ('completed', 'skipped', 'cancelled')
    ORDER BY task.id
    LIMIT :limit
)
SELECT (SELECT count(*) FROM finished), (SELECT id::text FROM finished ORDER BY id DESC LIMIT 1);

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
-- Of an execution that was removed only its history says how and when it ended.
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
WHERE CASE WHEN kept.state IS NULL
      THEN (SELECT last.at < :before::timestamptz
                   AND last.type IN ('task.completed', 'task.skipped', 'task.cancelled')
            FROM penstock.execution_events AS last
            WHERE last.root_id = root.root_id
            ORDER BY last.root_id DESC, last.seq DESC
            LIMIT 1)
      ELSE kept.state IN ('completed', 'skipped', 'cancelled')
           AND kept.finished_at < :before::timestamptz
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
), known AS MATERIALIZED (
    SELECT id FROM penstock.task_executions WHERE id = ANY (:roots::uuid[])
), swept AS (
    DELETE FROM penstock.execution_events
    WHERE root_id = ANY (ARRAY(
        SELECT root.id FROM unnest(:roots::uuid[]) AS root (id)
        WHERE root.id = ANY (ARRAY(SELECT id FROM held))
           OR NOT root.id = ANY (ARRAY(SELECT id FROM known))
    ))
    RETURNING 1
)
SELECT count(*) FROM swept;
