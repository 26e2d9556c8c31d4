-- Statements that run on a caller's connection take text only: no codec that the caller
-- has set can get in their way, and every driver can pass it.

-- name: create_savepoint
SAVEPOINT penstock_create;

-- name: create_undo
ROLLBACK TO SAVEPOINT penstock_create;

-- name: create_release
RELEASE SAVEPOINT penstock_create;

-- name: lock_serials
-- An upsert, because it waits for whoever is adding to the same serial, and because a
-- plain insert would miss a row that is deleted meanwhile. Sorted, or two calls deadlock.
INSERT INTO penstock.serials (serial)
SELECT serial FROM json_array_elements_text(:serials::text::json) AS line(serial)
ORDER BY serial
ON CONFLICT (serial) DO UPDATE SET serial = excluded.serial;

-- name: create
-- Keys are taken in sorted order (two calls with opposite orders deadlock otherwise), but
-- the outbox is filled in the order of the call. Those with a serial wait at first, and
-- the others of the call with them (`held`): `advance_serials` lets them go in one order.
-- Places in a serial rise with the order of the call; gaps between them mean nothing.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::text::timestamptz, clock_timestamp()) AS now
), incoming AS MATERIALIZED (
    SELECT new.n, new.id, coalesce(new.task, :task::text) AS task, coalesce(new.queue, :queue::text) AS queue,
           coalesce(new.priority, :priority::text::integer) AS priority, new.args, new.key, new.serial,
           coalesce(new.max_crashes, :max_crashes::text::integer) AS max_crashes, new.follow_ups, new.trace,
           moment.now,
           coalesce(
               'epoch'::timestamptz + new.run_at_us * interval '1 microsecond',
               moment.now + new.delay_us * interval '1 microsecond'
           ) AS run_at
    FROM moment, ROWS FROM (json_to_recordset(:batch::text::json) AS (
        id uuid, task text, queue text, priority integer, args text, key text, serial text,
        max_crashes integer, run_at_us bigint, delay_us bigint, follow_ups text, trace text
    )) WITH ORDINALITY AS new (
        id, task, queue, priority, args, key, serial, max_crashes, run_at_us, delay_us, follow_ups, trace, n
    )
), created AS (
    INSERT INTO penstock.task_executions (
        id, root_id, task, queue, priority, args, state, max_crashes, key, serial, serial_place,
        run_at, follow_ups, trace, created_at
    )
    SELECT id, id, task, queue, priority, args,
           CASE WHEN serial IS NOT NULL THEN 'waiting' WHEN run_at > now THEN 'scheduled' ELSE 'ready' END,
           max_crashes, key, serial,
           CASE WHEN serial IS NOT NULL THEN coalesce((
               SELECT max(live.serial_place) FROM penstock.task_executions AS live
               WHERE live.serial = incoming.serial AND live.serial IS NOT NULL AND live.finished_at IS NULL
           ), 0) + n END,
           run_at, follow_ups, trace, now
    FROM incoming
    ORDER BY task, key NULLS FIRST, n
    ON CONFLICT DO NOTHING
    RETURNING id, task, queue, priority, state, run_at
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, task)
    SELECT created.id, created.queue, created.priority, created.task
    FROM created JOIN incoming ON incoming.id = created.id
    WHERE created.state = 'ready' AND :held::text = 'no'
    ORDER BY incoming.n
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, data, at)
    SELECT id, id, type, data, (SELECT now FROM moment)
    FROM (
        SELECT 1 AS place, id, 'task.created' AS type, NULL AS data FROM created
        UNION ALL
        SELECT 2, id, 'task.marked_ready', NULL FROM created WHERE state = 'ready'
        UNION ALL
        SELECT 2, id, 'task.scheduled',
               '{"run_at":"' || to_char(run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"') || '"}'
        FROM created WHERE state = 'scheduled'
    ) AS event
    ORDER BY place
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(queue), state)) AS queues
    FROM (
        SELECT DISTINCT queue, state FROM created
        WHERE :notify::text = 'yes' AND (state <> 'scheduled' OR run_at <= coalesce((
            SELECT min(due.run_at) FROM penstock.task_executions AS due WHERE due.state = 'scheduled'
              AND due.run_at > (SELECT now FROM moment)
        ), run_at))
    ) AS touched
)
SELECT created.state, string_agg(incoming.n::text, ' '), min(woken.queues)
FROM created JOIN incoming ON incoming.id = created.id CROSS JOIN woken
GROUP BY created.state;

-- name: create_one
-- The same for a single execution that nothing holds back, as most are: most of the time that
-- such a call takes is the server's, and half of that went into a plan that can do everything.
WITH created AS (
    INSERT INTO penstock.task_executions (
        id, root_id, task, queue, priority, args, state, max_crashes, follow_ups, trace, created_at
    )
    VALUES (
        :id::text::uuid, :id::text::uuid, :task::text, :queue::text, :priority::text::integer, :args::text, 'ready',
        :max_crashes::text::integer, :follow_ups::text, :trace::text,
        coalesce(:now::text::timestamptz, clock_timestamp())
    )
    ON CONFLICT DO NOTHING
    RETURNING id, created_at
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, task)
    SELECT id, :queue::text, :priority::text::integer, :task::text FROM created
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, at)
    SELECT id, id, unnest(ARRAY['task.created', 'task.marked_ready']), created_at FROM created
)
SELECT id::text, CASE WHEN :notify::text = 'yes' THEN pg_notify(penstock.wake_channel(:queue::text), 'ready')::text END
FROM created;

-- name: create_fresh
-- The same in a transaction of our own, where it may fail if the execution is there already:
-- nothing has to be compared or handed on, which saves the server about 15 µs.
WITH created AS (
    INSERT INTO penstock.task_executions (
        id, root_id, task, queue, priority, args, state, max_crashes, follow_ups, trace, created_at
    )
    VALUES (
        :id::text::uuid, :id::text::uuid, :task::text, :queue::text, :priority::text::integer, :args::text, 'ready',
        :max_crashes::text::integer, :follow_ups::text, :trace::text, coalesce(:now::text::timestamptz, now())
    )
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, task)
    VALUES (:id::text::uuid, :queue::text, :priority::text::integer, :task::text)
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, at)
    VALUES
        (:id::text::uuid, :id::text::uuid, 'task.created', coalesce(:now::text::timestamptz, now())),
        (:id::text::uuid, :id::text::uuid, 'task.marked_ready', coalesce(:now::text::timestamptz, now()))
)
SELECT CASE WHEN :notify::text = 'yes' THEN pg_notify(penstock.wake_channel(:queue::text), 'ready')::text END;

-- name: create_ready
-- The same for many that nothing holds back. One that is there already fails the statement, so
-- nothing has to be compared with what was written. What all of them have in common comes once, and
-- its array is empty: unnest fills up with NULL. As JSON, to take them apart was a quarter of the
-- server's work. The two events of an execution follow each other: the index of the history then
-- grows at its end, and is smaller by a third.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::text::timestamptz, clock_timestamp()) AS now
), incoming AS MATERIALIZED (
    SELECT new.n, new.id, coalesce(new.task, :task::text) AS task, coalesce(new.queue, :queue::text) AS queue,
           coalesce(new.priority, :priority::text::integer) AS priority, new.args,
           coalesce(new.max_crashes, :max_crashes::text::integer) AS max_crashes,
           coalesce(new.follow_ups, :follow_ups::text) AS follow_ups, coalesce(new.trace, :trace::text) AS trace
    FROM unnest(
        :ids::text::uuid[], :args::text::text[], :tasks::text::text[], :queues::text::text[],
        :priorities::text::integer[], :crashes::text::integer[], :follows::text::text[], :traces::text::text[]
    ) WITH ORDINALITY AS new (id, args, task, queue, priority, max_crashes, follow_ups, trace, n)
), created AS (
    INSERT INTO penstock.task_executions (
        id, root_id, task, queue, priority, args, state, max_crashes, follow_ups, trace, created_at
    )
    SELECT id, id, task, queue, priority, args, 'ready', max_crashes, follow_ups, trace, (SELECT now FROM moment)
    FROM incoming
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, task)
    SELECT id, queue, priority, task FROM incoming ORDER BY n
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, at)
    SELECT id, id, unnest(ARRAY['task.created', 'task.marked_ready']), (SELECT now FROM moment) FROM incoming
)
SELECT count(pg_notify(penstock.wake_channel(queue), 'ready'))
FROM (SELECT DISTINCT queue FROM incoming WHERE :notify::text = 'yes') AS touched;

-- name: holders
-- Read in a statement of its own: the one that met the conflict cannot see who caused it.
SELECT asked.n::integer, found.id::text, found.state
FROM ROWS FROM (json_to_recordset(:batch::text::json) AS (id uuid, task text, key text))
    WITH ORDINALITY AS asked (id, task, key, n)
CROSS JOIN LATERAL (
    SELECT id, state FROM penstock.task_executions WHERE id = asked.id
    UNION ALL
    SELECT id, state FROM penstock.task_executions
    WHERE task = coalesce(asked.task, :task::text) AND key = asked.key AND key IS NOT NULL AND finished_at IS NULL
    LIMIT 1
) AS found;

-- name: advance_serials
-- The head of each serial goes; the others wait behind it. Needs the lock on its row.
-- `created` names the executions of a call in their order: those of them that are ready
-- have been held back, so that they enter the outbox in that order too.
WITH moment AS MATERIALIZED (
    SELECT coalesce(:now::text::timestamptz, clock_timestamp()) AS now
), head AS MATERIALIZED (
    SELECT first.id
    FROM json_array_elements_text(:serials::text::json) AS line(serial)
    CROSS JOIN LATERAL (
        SELECT id, state, awaits FROM penstock.task_executions
        WHERE serial = line.serial AND serial IS NOT NULL AND finished_at IS NULL
        ORDER BY serial_place LIMIT 1
    ) AS first
    WHERE first.state = 'waiting' AND first.awaits IS NULL
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = CASE WHEN task.run_at > moment.now THEN 'scheduled' ELSE 'ready' END
    FROM moment
    WHERE task.id = ANY (ARRAY(SELECT id FROM head)) AND task.state = 'waiting'
    RETURNING task.id, task.root_id, task.task, task.queue, task.priority, task.state, task.run_at, moment.now
), call AS MATERIALIZED (
    SELECT place.id::uuid AS id, place.n
    FROM json_array_elements_text(:created::text::json) WITH ORDINALITY AS place (id, n)
), ready AS (
    INSERT INTO penstock.task_outbox (task_execution_id, queue, priority, task)
    SELECT due.id, due.queue, due.priority, due.task
    FROM (
        SELECT id, queue, priority, task FROM moved WHERE state = 'ready'
        UNION ALL
        SELECT held.id, held.queue, held.priority, held.task
        FROM call JOIN penstock.task_executions AS held ON held.id = call.id
        WHERE held.id = ANY (ARRAY(SELECT id FROM call)) AND held.state = 'ready'
    ) AS due LEFT JOIN call ON call.id = due.id
    ORDER BY call.n NULLS FIRST, due.id
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, data, at)
    SELECT root_id, id,
           CASE state WHEN 'ready' THEN 'task.marked_ready' ELSE 'task.scheduled' END,
           CASE state WHEN 'scheduled' THEN '{"run_at":"' || to_char(run_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"') || '"}' END,
           now
    FROM moved ORDER BY id
), woken AS (
    SELECT count(pg_notify(penstock.wake_channel(queue), state)) AS queues
    FROM (SELECT DISTINCT queue, state FROM moved WHERE :notify::text = 'yes') AS touched
)
SELECT moved.id::text, moved.state, woken.queues FROM moved CROSS JOIN woken;
