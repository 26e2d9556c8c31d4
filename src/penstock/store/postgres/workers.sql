-- name: register
INSERT INTO penstock.workers (id, info, beat_at, started_at)
SELECT :worker_id, :info, moment.now, moment.now
FROM (SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now) AS moment
ON CONFLICT (id) DO UPDATE SET info = excluded.info;

-- name: unregister
DELETE FROM penstock.workers WHERE id = :worker_id;

-- name: beat
-- One statement: a heartbeat is most of what an idle worker does.
WITH beaten AS (
    UPDATE penstock.workers
    SET beat = beat + 1, beat_at = coalesce(:now::timestamptz, clock_timestamp())
    WHERE id = :worker_id
    RETURNING id
)
SELECT EXISTS (SELECT FROM beaten),
       ARRAY(SELECT id::text FROM penstock.task_executions
             WHERE worker_id = :worker_id AND worker_id IS NOT NULL AND cancel_requested),
       ARRAY(SELECT id FROM penstock.workers WHERE id <> :worker_id ORDER BY started_at, id),
       ARRAY(SELECT info FROM penstock.workers WHERE id <> :worker_id ORDER BY started_at, id),
       ARRAY(SELECT beat FROM penstock.workers WHERE id <> :worker_id ORDER BY started_at, id),
       ARRAY(SELECT beat_at FROM penstock.workers WHERE id <> :worker_id ORDER BY started_at, id),
       ARRAY(SELECT started_at FROM penstock.workers WHERE id <> :worker_id ORDER BY started_at, id);

-- name: workers
SELECT id, info, beat, beat_at, started_at FROM penstock.workers ORDER BY started_at, id;

-- name: asked_to_stop
SELECT id::text FROM penstock.task_executions
WHERE worker_id = :worker_id AND worker_id IS NOT NULL AND cancel_requested;
