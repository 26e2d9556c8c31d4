-- What a look at a running system asks. None of it locks anything.

-- name: inspect_session
SELECT current_setting('transaction_isolation'),
       current_setting('statement_timeout') <> '0'
           AND current_setting('enable_seqscan') = 'off' AND current_setting('enable_sort') = 'off',
       pg_catalog.pg_jit_available() AND current_setting('server_version_num')::integer < 180000,
       current_setting('autovacuum') = 'on',
       clock_timestamp();

-- name: inspect_indexes
SELECT index.relname
FROM pg_catalog.pg_index AS known
JOIN pg_catalog.pg_class AS index ON index.oid = known.indexrelid
JOIN pg_catalog.pg_namespace AS home ON home.oid = index.relnamespace
WHERE home.nspname = 'penstock' AND known.indisvalid AND known.indisready;

-- name: inspect_dead_tuples
SELECT relname, n_dead_tup, n_live_tup,
       clock_timestamp() - greatest(last_vacuum, last_autovacuum)
FROM pg_catalog.pg_stat_user_tables
WHERE schemaname = 'penstock'
ORDER BY n_dead_tup DESC;

-- name: inspect_transactions
-- Whatever keeps dead rows from being removed: open transactions, also prepared ones. Of what
-- other users do only a superuser or a member of pg_monitor sees the age.
SELECT pid::text, coalesce(nullif(application_name, ''), usename::text, 'somebody'), state,
       clock_timestamp() - xact_start
FROM pg_catalog.pg_stat_activity
WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
  AND backend_type = 'client backend'
UNION ALL
SELECT NULL, gid, 'prepared', clock_timestamp() - prepared
FROM pg_catalog.pg_prepared_xacts
WHERE database = current_database()
ORDER BY 4 DESC
LIMIT 1;

-- name: inspect_backlog
-- The last event of a ready execution is the one that made it ready.
SELECT head.queue, head.task, head.ready,
       coalesce(:now::timestamptz, clock_timestamp()) - coalesce((
           SELECT event.at FROM penstock.execution_events AS event
           WHERE event.root_id = task.root_id AND event.task_execution_id = task.id
           ORDER BY event.root_id DESC, event.seq DESC
           LIMIT 1
       ), task.created_at)
FROM (
    SELECT queue, task, count(*) AS ready, min(seq) AS seq
    FROM penstock.task_outbox GROUP BY queue, task
) AS head
JOIN penstock.task_outbox AS first ON first.queue = head.queue AND first.seq = head.seq
JOIN penstock.task_executions AS task ON task.id = first.task_execution_id
ORDER BY head.queue, head.task;

-- name: inspect_failed
-- Of a run that goes on, or has ended well all the same, a failed task needs nobody.
SELECT count(*), coalesce(:now::timestamptz, clock_timestamp()) - min(finished_at)
FROM penstock.task_executions AS task
WHERE task.state = 'failed'
  AND task.finished_at < coalesce(:now::timestamptz, clock_timestamp()) - :older_than::interval
  AND (task.root_id = task.id OR (
      SELECT run.state FROM penstock.workflow_executions AS run WHERE run.id = task.root_id) = 'failed');

-- name: inspect_knock
SELECT pg_notify(:channel, '');
