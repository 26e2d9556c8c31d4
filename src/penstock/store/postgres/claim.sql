-- A lane is what has one order: a queue, a priority, and whether its tasks are suspect.

-- name: lanes
-- A loose index scan: one step per lane, however deep the lanes are.
WITH RECURSIVE lane AS (
    (SELECT queue, priority, suspect FROM penstock.task_outbox
     ORDER BY queue, priority DESC, suspect DESC LIMIT 1)
    UNION ALL
    SELECT next.queue, next.priority, next.suspect
    FROM lane CROSS JOIN LATERAL (
        (SELECT queue, priority, suspect FROM penstock.task_outbox
         WHERE queue = lane.queue AND priority = lane.priority AND suspect < lane.suspect
         ORDER BY queue, priority DESC, suspect DESC LIMIT 1)
        UNION ALL
        (SELECT queue, priority, suspect FROM penstock.task_outbox
         WHERE queue = lane.queue AND priority < lane.priority
         ORDER BY queue, priority DESC, suspect DESC LIMIT 1)
        UNION ALL
        (SELECT queue, priority, suspect FROM penstock.task_outbox
         WHERE queue > lane.queue
         ORDER BY queue, priority DESC, suspect DESC LIMIT 1)
        LIMIT 1
    ) AS next
)
SELECT queue, priority, suspect FROM lane;

-- name: claim_ready
-- KEY SHARE on the worker's row: declaring it dead deletes the row and so waits for this
-- claim, or this claim finds no row and takes nothing.
-- SKIP LOCKED: workers step over each other's rows instead of waiting for them.
-- LATERAL under one LIMIT: rows are locked one by one as they are pulled, lane after lane,
-- so none is locked that is not taken. MATERIALIZED: a nested loop would repeat the scan
-- and claim past the limit.
-- (SELECT :value): a plan for one lane looks cheaper than one for any number of them, and would be made
-- anew for each claim, which takes longer than the claim. Like this the planner cannot tell.
-- The outbox by ctid, the tasks by an array of ids: no plan can read others to get at these,
-- where a join to the CTE could hash the whole table, or walk it for every row. What belongs
-- to an id is found in arrays that are sorted by it, because width_bucket halves its way there.
WITH alive AS MATERIALIZED (
    SELECT coalesce(:now::timestamptz, clock_timestamp()) AS now
    FROM penstock.workers WHERE id = :worker_id FOR KEY SHARE
), lane AS MATERIALIZED (
    SELECT lane.queue, lane.priority, lane.suspect, lane.low_water, lane.most
    FROM alive, unnest((SELECT :queues::text[]), (SELECT :priorities::integer[]), (SELECT :suspects::boolean[]),
                       (SELECT :low_waters::bigint[]), (SELECT :most::integer[]))
        WITH ORDINALITY AS lane (queue, priority, suspect, low_water, most, turn)
    WHERE NOT EXISTS (SELECT FROM penstock.paused_queues AS paused WHERE paused.queue = lane.queue)
    ORDER BY lane.turn
), due AS MATERIALIZED (
    SELECT next.place, next.task_execution_id, next.seq
    FROM lane CROSS JOIN LATERAL (
        SELECT outbox.ctid AS place, outbox.task_execution_id, outbox.seq
        FROM penstock.task_outbox AS outbox
        WHERE outbox.queue = lane.queue AND outbox.priority = lane.priority
          AND outbox.suspect = lane.suspect AND outbox.seq >= lane.low_water
          AND outbox.task = ANY ((SELECT :tasks::text[])::text[])
        ORDER BY outbox.seq
        LIMIT lane.most
        FOR UPDATE SKIP LOCKED
    ) AS next
    LIMIT (SELECT :limit::bigint)
), handed_out AS (
    DELETE FROM penstock.task_outbox WHERE ctid = ANY (ARRAY(SELECT place FROM due))
), moved AS (
    UPDATE penstock.task_executions AS task
    SET state = 'running', sub_state = 'active', attempt = task.attempt + 1, fence = task.fence + 1,
        worker_id = :worker_id, claimed_at = alive.now, started_at = NULL, progress = NULL,
        seq = (ARRAY(SELECT seq FROM due ORDER BY task_execution_id))[
            width_bucket(task.id, ARRAY(SELECT task_execution_id FROM due ORDER BY task_execution_id))]
    FROM alive
    WHERE task.id = ANY (ARRAY(SELECT task_execution_id FROM due)) AND task.state = 'ready'
    RETURNING task.id, task.root_id, task.fence, task.task, task.args, task.queue, task.priority,
              task.seq, task.attempt, task.retries, task.crashes, task.suspect, task.serial,
              task.follow_ups IS NOT NULL AS has_follow_ups, task.claimed_at,
              CASE WHEN task.root_id <> task.id THEN task.root_id::text END AS run_id,
              coalesce(task.run_at, CASE task.attempt WHEN 1 THEN task.created_at END) AS due_at,
              task.trace
), told AS (
    INSERT INTO penstock.execution_events (root_id, task_execution_id, type, data, worker_id, at)
    SELECT root_id, id, 'task.claimed', '{"attempt":' || attempt || '}', :worker_id, claimed_at
    FROM moved
)
SELECT id::text, fence, task, args, queue, priority, seq, attempt, retries, crashes, suspect,
       serial, has_follow_ups, claimed_at, run_id, due_at, trace
FROM moved ORDER BY seq;
