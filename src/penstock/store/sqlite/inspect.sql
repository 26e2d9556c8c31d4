-- What a look at a running system asks. None of it writes.

-- name: inspect_journal
SELECT journal_mode FROM pragma_journal_mode;

-- name: inspect_indexes
SELECT name FROM sqlite_master WHERE type = 'index';

-- name: inspect_backlog
-- The last event of a ready execution is the one that made it ready.
SELECT head.queue, head.task, head.ready,
       :now - coalesce((
           SELECT event.at FROM execution_events AS event INDEXED BY execution_events_root
           WHERE event.root_id = task.root_id AND event.task_execution_id = task.id
           ORDER BY event.seq DESC
           LIMIT 1
       ), task.created_at)
FROM (
    SELECT queue, task, count(*) AS ready, min(seq) AS seq FROM task_outbox GROUP BY queue, task
) AS head
CROSS JOIN task_outbox AS first ON first.seq = head.seq
CROSS JOIN task_executions AS task ON task.id = first.task_execution_id
ORDER BY head.queue, head.task;

-- name: inspect_failed
-- Of a run that goes on, or has ended well all the same, a failed task needs nobody.
SELECT count(*), :now - min(finished_at)
FROM task_executions AS task INDEXED BY task_executions_failed
WHERE task.state = 'failed' AND task.finished_at < :before
  AND (task.root_id = task.id OR (
      SELECT run.state FROM workflow_executions AS run WHERE run.id = task.root_id) = 'failed');
