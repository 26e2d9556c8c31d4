-- name: register
INSERT INTO workers (id, info, beat_at, started_at) VALUES (:worker_id, :info, :now, :now)
ON CONFLICT (id) DO UPDATE SET info = excluded.info;

-- name: unregister
DELETE FROM workers WHERE id = :worker_id;

-- name: beat
UPDATE workers SET beat = beat + 1, beat_at = :now WHERE id = :worker_id RETURNING id;

-- name: asked_to_stop
SELECT id FROM task_executions INDEXED BY task_executions_worker
WHERE worker_id = :worker_id AND worker_id IS NOT NULL AND cancel_requested
ORDER BY id;

-- name: workers
SELECT id, info, beat, beat_at, started_at FROM workers ORDER BY started_at, id;

-- name: is_alive
SELECT id FROM workers WHERE id = :worker_id;
