-- name: start_unless_known
-- A statement of its own: an UPDATE cannot say what was there before.
UPDATE task_executions SET started_at = :started_at
WHERE id = :id AND fence = :fence AND worker_id IS :worker_id AND started_at IS NULL
RETURNING id;

-- name: complete
UPDATE task_executions
SET state = 'completed', sub_state = NULL, suspect = 0, settled_fence = fence, fence = fence + 1,
    worker_id = NULL, result = :result, writes = :writes,
    finished_at = :now
WHERE id = :id AND fence = :fence AND worker_id IS :worker_id
RETURNING id, root_id, task, follow_ups, serial, trace;

-- name: holds_lease
SELECT id FROM task_executions WHERE id = :id AND fence = :fence AND worker_id IS :worker_id;

-- name: once
INSERT INTO once_ledger (task_execution_id, name, at) VALUES (:id, :name, :now)
ON CONFLICT (task_execution_id, name) DO NOTHING
RETURNING task_execution_id;

-- name: whereabouts
SELECT id, fence, settled_fence, worker_id FROM task_executions
WHERE id IN (SELECT value FROM json_each(:ids));

-- name: progress
UPDATE task_executions SET progress = :progress
WHERE id = :id AND fence = :fence AND worker_id IS :worker_id
RETURNING id;
