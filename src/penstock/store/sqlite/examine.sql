-- What `verify` reads: a stretch of ids at a time. A task is the root of its own history, or it
-- lies right behind its run, which is: so the events and the outbox rows of a stretch lie in the
-- same range as its executions.

-- name: examine_until
-- How far a stretch reaches: as far as none of the three tables has too many rows in it.
SELECT min(
    coalesce((SELECT id FROM task_executions
              WHERE id > :after ORDER BY id LIMIT 1 OFFSET :limit - 1), :highest),
    coalesce((SELECT task_execution_id FROM task_outbox INDEXED BY task_outbox_execution
              WHERE task_execution_id > :after
              ORDER BY task_execution_id LIMIT 1 OFFSET :limit - 1), :highest),
    coalesce((SELECT root_id FROM execution_events INDEXED BY execution_events_root
              WHERE root_id > :after
              ORDER BY root_id, seq LIMIT 1 OFFSET :most_events - 1), :highest)
);

-- name: examine_whether_run
-- Also if only its tasks are left of it.
SELECT EXISTS (SELECT id FROM workflow_executions WHERE id = :id)
       OR coalesce((SELECT root_id = :id AND id <> :id FROM task_executions
                    WHERE id >= :id ORDER BY id LIMIT 1), 0);

-- name: examine_executions
-- There is one writer, so no serial needs a row to be ordered by, and nobody leaves word.
SELECT task.id, task.root_id, task.task, task.queue, task.priority, task.state, task.sub_state,
       task.attempt, task.retries, task.crashes, task.suspect, task.fence, task.worker_id,
       task.run_at IS NOT NULL, task.finished_at IS NOT NULL, task.serial,
       CASE WHEN task.serial IS NOT NULL AND task.finished_at IS NULL THEN (
           SELECT ahead.id FROM task_executions AS ahead INDEXED BY task_executions_serial
           WHERE ahead.serial = task.serial AND ahead.serial IS NOT NULL AND ahead.finished_at IS NULL
             AND ahead.serial_place < task.serial_place
           ORDER BY ahead.serial_place LIMIT 1) END,
       1, 0,
       CASE WHEN task.key IS NOT NULL AND task.finished_at IS NULL THEN (
           SELECT twin.id FROM task_executions AS twin INDEXED BY task_executions_live_key
           WHERE twin.task = task.task AND twin.key = task.key
             AND twin.key IS NOT NULL AND twin.finished_at IS NULL AND twin.id <> task.id
           LIMIT 1) END,
       task.awaits
FROM task_executions AS task
WHERE task.id > :after AND task.id <= :until
ORDER BY task.id;

-- name: examine_runs
-- There is one writer, so nobody leaves word here either.
SELECT run.id, run.state, run.graph, run.cancel_requested, run.error, run.finished_at IS NOT NULL, 0,
       run.parent_id IS NOT NULL AND EXISTS (
           SELECT parent.id FROM task_executions AS parent
           WHERE parent.id = run.parent_id AND parent.state = 'cancelled')
FROM workflow_executions AS run
WHERE run.id > :after AND run.id <= :until
ORDER BY run.id;

-- name: examine_inputs
SELECT inputs FROM workflow_executions WHERE id = :id;

-- name: examine_outbox
SELECT task_execution_id, queue, priority, suspect, task
FROM task_outbox INDEXED BY task_outbox_execution
WHERE task_execution_id > :after AND task_execution_id <= :until
ORDER BY task_execution_id;

-- name: examine_events
-- Of the data only what bears on a counter: tracebacks stay where they are.
SELECT root_id, task_execution_id, type, worker_id,
       CASE WHEN type IN ('task.claimed', 'task.cancelled', 'task.recovered', 'task.abandoned')
            THEN data END
FROM execution_events INDEXED BY execution_events_root
WHERE root_id > :after AND root_id <= :until
ORDER BY root_id, seq;
