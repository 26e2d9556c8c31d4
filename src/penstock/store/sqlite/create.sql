-- Every statement here also runs on a caller's connection, in the caller's transaction; only those
-- that write one execution at once are for our own.
-- A batch is materialised before it is taken apart: json_each writes an element out anew
-- each time its value is mentioned.

-- name: create_savepoint
SAVEPOINT penstock_create;

-- name: create_undo
ROLLBACK TO penstock_create;

-- name: create_release
RELEASE penstock_create;

-- name: create
-- Those with a serial wait at first; `advance_serials` lets the head of each serial go.
-- Places in a serial rise with the order of the call; gaps between them mean nothing.
WITH batch AS MATERIALIZED (
    SELECT key AS n, value FROM json_each(:batch)
), incoming AS (
    SELECT n, value,
           json_extract(value, '$.id') AS id,
           json_extract(value, '$.serial') AS serial,
           coalesce(json_extract(value, '$.run_at_us'), :now + json_extract(value, '$.delay_us')) AS run_at
    FROM batch
)
INSERT INTO task_executions (
    id, root_id, task, queue, priority, args, state, max_crashes, key, serial, serial_place,
    run_at, follow_ups, trace, created_at
)
SELECT id, id,
       coalesce(json_extract(value, '$.task'), :task),
       coalesce(json_extract(value, '$.queue'), :queue),
       coalesce(json_extract(value, '$.priority'), :priority),
       json_extract(value, '$.args'),
       CASE WHEN serial IS NOT NULL THEN 'waiting' WHEN run_at > :now THEN 'scheduled' ELSE 'ready' END,
       coalesce(json_extract(value, '$.max_crashes'), :max_crashes),
       json_extract(value, '$.key'),
       serial,
       CASE WHEN serial IS NOT NULL THEN coalesce((
           SELECT max(live.serial_place) FROM task_executions AS live INDEXED BY task_executions_serial
           WHERE live.serial = incoming.serial AND live.serial IS NOT NULL AND live.finished_at IS NULL
       ), 0) + 1 + n END,
       run_at,
       json_extract(value, '$.follow_ups'),
       json_extract(value, '$.trace'),
       :now
FROM incoming
WHERE true
ORDER BY n
ON CONFLICT DO NOTHING
RETURNING id, state, run_at;

-- name: create_one
-- The same for a single execution that nothing holds back, as most are: nothing to unpack.
INSERT INTO task_executions (
    id, root_id, task, queue, priority, args, state, max_crashes, follow_ups, trace, created_at
)
VALUES (
    :id, :id, :task, :queue, :priority, :args, 'ready', :max_crashes, :follow_ups, :trace, :now
)
ON CONFLICT DO NOTHING
RETURNING id;

-- name: create_one_place
INSERT INTO task_outbox (task_execution_id, queue, priority, task)
VALUES (:id, :queue, :priority, :task);

-- name: create_one_history
INSERT INTO execution_events (root_id, task_execution_id, type, at)
VALUES (:id, :id, 'task.created', :now), (:id, :id, 'task.marked_ready', :now);

-- name: one_at_once_form
-- On our own connection the three are one: whoever inserts into this view fills the tables. Inside
-- a trigger no index can be prescribed, but rows that are only inserted ask for none.
CREATE TEMP VIEW one_execution AS
SELECT NULL AS id, NULL AS task, NULL AS queue, NULL AS priority, NULL AS args,
       NULL AS max_crashes, NULL AS follow_ups, NULL AS trace, NULL AS now;

-- name: one_at_once_rule
CREATE TEMP TRIGGER create_one_execution INSTEAD OF INSERT ON one_execution
BEGIN
    INSERT INTO task_executions (
        id, root_id, task, queue, priority, args, state, max_crashes, follow_ups, trace, created_at
    )
    VALUES (
        NEW.id, NEW.id, NEW.task, NEW.queue, NEW.priority, NEW.args, 'ready', NEW.max_crashes,
        NEW.follow_ups, NEW.trace, NEW.now
    );
    INSERT INTO task_outbox (task_execution_id, queue, priority, task)
    VALUES (NEW.id, NEW.queue, NEW.priority, NEW.task);
    INSERT INTO execution_events (root_id, task_execution_id, type, at)
    VALUES (NEW.id, NEW.id, 'task.created', NEW.now), (NEW.id, NEW.id, 'task.marked_ready', NEW.now);
END;

-- name: create_one_at_once
-- Fails if the execution is there already.
INSERT INTO one_execution (
    id, task, queue, priority, args, max_crashes, follow_ups, trace, now
)
VALUES (:id, :task, :queue, :priority, :args, :max_crashes, :follow_ups, :trace, :now);

-- name: holders
-- Whoever stands where an execution of the call should have gone: itself, written before,
-- or the live one that has its key.
WITH asked AS MATERIALIZED (
    SELECT key AS n,
           json_extract(value, '$.id') AS id,
           coalesce(json_extract(value, '$.task'), :task) AS task,
           json_extract(value, '$.key') AS key
    FROM json_each(:batch)
)
SELECT asked.n, found.id, found.state
FROM asked CROSS JOIN task_executions AS found
WHERE found.id = coalesce(
    (SELECT id FROM task_executions WHERE id = asked.id),
    (SELECT id FROM task_executions INDEXED BY task_executions_live_key
     WHERE task = asked.task AND key = asked.key AND key IS NOT NULL AND finished_at IS NULL)
);

-- name: advance_serials
-- The head of each serial goes; the others wait behind it.
UPDATE task_executions
SET state = CASE WHEN run_at > :now THEN 'scheduled' ELSE 'ready' END
WHERE state = 'waiting' AND awaits IS NULL AND id IN (
    SELECT (
        SELECT id FROM task_executions INDEXED BY task_executions_serial
        WHERE serial = line.value AND serial IS NOT NULL AND finished_at IS NULL
        ORDER BY serial_place LIMIT 1
    )
    FROM json_each(:serials) AS line
)
RETURNING id, root_id, task, queue, priority, state, run_at;

-- name: fill_outbox
-- A row without a seq gets the next one.
WITH ready AS MATERIALIZED (
    SELECT key AS n, value FROM json_each(:batch)
)
INSERT INTO task_outbox (task_execution_id, seq, queue, priority, suspect, task)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]')
FROM ready
ORDER BY n;

-- name: tell
WITH event AS MATERIALIZED (
    SELECT key AS n, value FROM json_each(:batch)
)
INSERT INTO execution_events (root_id, task_execution_id, type, data, worker_id, at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
       json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]')
FROM event
ORDER BY n;
