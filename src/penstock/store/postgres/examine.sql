-- What `verify` reads: a stretch of ids at a time. A task is the root of its own history, or it
-- lies right behind its run, which is: so the events and the outbox rows of a stretch lie in the
-- same range as its executions.

-- name: examine_until
-- How far a stretch reaches: as far as none of the four tables has too many rows in it.
SELECT least(
    coalesce((SELECT id FROM penstock.task_executions
              WHERE id > :after::uuid ORDER BY id OFFSET :limit - 1 LIMIT 1), :highest::uuid),
    coalesce((SELECT task_execution_id FROM penstock.task_outbox
              WHERE task_execution_id > :after::uuid
              ORDER BY task_execution_id OFFSET :limit - 1 LIMIT 1), :highest::uuid),
    coalesce((SELECT id FROM penstock.workflow_executions
              WHERE id > :after::uuid ORDER BY id OFFSET :limit - 1 LIMIT 1), :highest::uuid),
    coalesce((SELECT root_id FROM penstock.execution_events
              WHERE root_id > :after::uuid
              ORDER BY root_id, seq OFFSET :most_events - 1 LIMIT 1), :highest::uuid)
)::text;

-- name: examine_schema
SELECT quote_ident('penstock');

-- name: examine_whether_run
-- Also if only its tasks are left of it.
SELECT EXISTS (SELECT FROM penstock.workflow_executions WHERE id = :id::uuid)
       OR coalesce((SELECT root_id = :id::uuid AND id <> :id::uuid FROM penstock.task_executions
                    WHERE id >= :id::uuid ORDER BY id LIMIT 1), false);

-- name: examine_executions
SELECT task.id::text, task.root_id::text, task.task, task.queue, task.priority, task.state,
       task.sub_state, task.attempt, task.retries, task.crashes, task.suspect, task.fence,
       task.worker_id, task.run_at IS NOT NULL, task.finished_at IS NOT NULL, task.serial,
       CASE WHEN task.serial IS NOT NULL AND task.finished_at IS NULL THEN (
           SELECT ahead.id::text FROM penstock.task_executions AS ahead
           WHERE ahead.serial = task.serial AND ahead.serial IS NOT NULL AND ahead.finished_at IS NULL
             AND ahead.serial_place < task.serial_place
           ORDER BY ahead.serial_place LIMIT 1) END,
       task.serial IS NULL OR EXISTS (
           SELECT FROM penstock.serials AS line WHERE line.serial = task.serial),
       task.serial IS NOT NULL AND task.state = 'waiting' AND EXISTS (
           SELECT FROM penstock.propagations AS word WHERE word.serial = task.serial),
       CASE WHEN task.key IS NOT NULL AND task.finished_at IS NULL THEN (
           SELECT twin.id::text FROM penstock.task_executions AS twin
           WHERE twin.task = task.task AND twin.key = task.key
             AND twin.key IS NOT NULL AND twin.finished_at IS NULL AND twin.id <> task.id
           LIMIT 1) END,
       task.awaits
FROM penstock.task_executions AS task
WHERE task.id > :after::uuid AND task.id <= :until::uuid
ORDER BY task.id;

-- name: examine_runs
SELECT run.id::text, run.state, run.graph, run.cancel_requested, run.error,
       run.finished_at IS NOT NULL,
       run.id = ANY (ARRAY(SELECT word.run_id FROM penstock.run_propagations AS word)),
       run.parent_id IS NOT NULL AND EXISTS (
           SELECT FROM penstock.task_executions AS parent
           WHERE parent.id = run.parent_id AND parent.state = 'cancelled')
FROM penstock.workflow_executions AS run
WHERE run.id > :after::uuid AND run.id <= :until::uuid
ORDER BY run.id;

-- name: examine_inputs
SELECT run.inputs FROM penstock.workflow_executions AS run WHERE run.id = :id::uuid;

-- name: examine_outbox
SELECT place.task_execution_id::text, place.queue, place.priority, place.suspect, place.task
FROM penstock.task_outbox AS place
WHERE place.task_execution_id > :after::uuid AND place.task_execution_id <= :until::uuid
ORDER BY place.task_execution_id;

-- name: examine_events
-- Of the data only what bears on a counter: tracebacks stay where they are.
-- In the order of the column, not of its text: then the index has it, and nothing is sorted.
SELECT event.root_id::text, event.task_execution_id::text, event.type, event.worker_id,
       CASE WHEN event.type IN ('task.claimed', 'task.cancelled', 'task.recovered', 'task.abandoned')
            THEN event.data END
FROM penstock.execution_events AS event
WHERE event.root_id > :after::uuid AND event.root_id <= :until::uuid
ORDER BY event.root_id, event.seq;
