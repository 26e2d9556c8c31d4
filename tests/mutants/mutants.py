"""The protections of the engine, each taken out once, and the tests that must notice.

A mutant is a replacement in one file, in one of its named statements if it says so. The text that
goes must be there exactly once: a mutant that no longer fits its file is an error, not a success.
"""

from typing import NamedTuple

PG = "penstock/store/postgres/"
SQLITE = "penstock/store/sqlite/"
ENGINE = "penstock/engine/"
LEASES = "tests/contract/test_leases.py"
SETTLE = "tests/contract/test_settle.py"
RECOVER = "tests/contract/test_recover.py"
WORKERS = "tests/contract/test_workers.py"
OUTBOX = "tests/contract/test_outbox.py"
WAITS = "tests/contract/test_waits.py"
ORPHANS = "tests/contract/test_waits_orphans.py"
ON_CALLERS = "tests/contract/on_callers/test_runs_on_callers.py"
COMPLETE_ON = "tests/contract/on_callers/test_complete_on.py"
COMPLETION = "tests/faults/test_handle_completion.py"


class Mutant(NamedTuple):
    name: str
    file: str  # below src
    before: str
    after: str
    killed_by: tuple[str, ...]
    statement: str | None = None  # the named statement of an .sql file that it is in


MUTANTS = (
    # --- fences -------------------------------------------------------------------------
    Mutant(
        "postgres: settle compares no fence",
        f"{PG}settle.sql",
        "AND task.fence = batch.fence AND task.worker_id",
        "AND task.worker_id",
        (f"{LEASES}::test_another_fence_changes_nothing",),
        "settle",
    ),
    Mutant(
        "postgres: a completion compares no fence",
        f"{PG}settle.sql",
        "AND task.fence = batch.fence AND task.worker_id",
        "AND task.worker_id",
        (f"{LEASES}::test_another_fence_changes_nothing",),
        "settle_completed",
    ),
    Mutant(
        "postgres: the fence does not change when a task completes",
        f"{PG}settle.sql",
        "fence = task.fence + 1,",
        "fence = task.fence,",
        (f"{SETTLE}::test_the_fence_changes_when_a_task_stops_running",),
        "settle_completed",
    ),
    Mutant(
        "sqlite: settle compares no fence",
        f"{SQLITE}settle.sql",
        "AND task.fence = batch.fence AND task.worker_id",
        "AND task.worker_id",
        (f"{LEASES}::test_another_fence_changes_nothing",),
        "settle",
    ),
    Mutant(
        "sqlite: a completion compares no fence",
        f"{SQLITE}settle.sql",
        "AND task.fence = :fence AND task.worker_id",
        "AND task.worker_id",
        (f"{LEASES}::test_another_fence_changes_nothing",),
        "settle_completed",
    ),
    Mutant(
        "sqlite: a completion that is refused is told all the same",
        f"{SQLITE}settling.py",
        "if moved < len(some.ids):",
        "if False:",
        (f"{LEASES}::test_another_fence_changes_nothing",),
    ),
    Mutant(
        "sqlite: the fence does not change when a task completes",
        f"{SQLITE}settle.sql",
        "fence = task.fence + 1,",
        "fence = task.fence,",
        (f"{SETTLE}::test_the_fence_changes_when_a_task_stops_running",),
        "settle_completed",
    ),
    Mutant(
        "postgres: the fence does not change on leaving",
        f"{PG}settle.sql",
        "fence = task.fence + 1,",
        "fence = task.fence,",
        (f"{SETTLE}::test_the_fence_changes_when_a_task_stops_running",),
        "settle",
    ),
    Mutant(
        "sqlite: the fence does not change on leaving",
        f"{SQLITE}settle.sql",
        "fence = task.fence + 1,",
        "fence = task.fence,",
        (f"{SETTLE}::test_the_fence_changes_when_a_task_stops_running",),
        "settle",
    ),
    Mutant(
        "postgres: a repeated settlement is taken for a lost lease",
        f"{PG}settle.sql",
        "AND task.settled_fence = asked.fence",
        "AND false",
        (f"{SETTLE}::test_a_repeated_settlement_is_a_success_and_changes_nothing",),
        "settled_before",
    ),
    Mutant(
        "sqlite: a repeated settlement is taken for a lost lease",
        f"{SQLITE}settle.sql",
        "AND task.settled_fence = json_extract(asked.value, '$.fence')",
        "AND false",
        (f"{SETTLE}::test_a_repeated_settlement_is_a_success_and_changes_nothing",),
        "settled_before",
    ),
    # --- claims -------------------------------------------------------------------------
    Mutant(
        "postgres: the claim does not ask whether its worker lives",
        f"{PG}claim.sql",
        "FROM penstock.workers WHERE id = :worker_id FOR KEY SHARE",
        "",
        ("tests/contract/test_claim.py::test_a_worker_that_never_registered_claims_nothing",),
        "claim_ready",
    ),
    Mutant(
        "sqlite: the claim does not ask whether its worker lives",
        f"{SQLITE}claim.sql",
        "AND EXISTS (SELECT id FROM workers WHERE id = :worker_id)",
        "",
        ("tests/contract/test_claim.py::test_a_worker_that_never_registered_claims_nothing",),
        "look_at_lane",
    ),
    Mutant(
        "sqlite: the claim does not ask again whether its queue is paused",
        f"{SQLITE}claim.sql",
        "AND NOT EXISTS (SELECT queue FROM paused_queues WHERE queue = :queue)",
        "",
        (
            (
                "tests/contract/test_claim.py::"
                "test_a_queue_that_is_paused_while_a_claim_waits_for_the_lock_gives_nothing"
            ),
        ),
        "look_at_lane",
    ),
    Mutant(
        "postgres: a claim waits for rows that somebody holds",
        f"{PG}claim.sql",
        "        FOR UPDATE SKIP LOCKED\n",
        "        FOR UPDATE\n",
        (
            (
                "tests/faults/test_database_transactions.py::"
                "test_a_claim_steps_over_what_somebody_holds"
            ),
        ),
        "claim_ready",
    ),
    Mutant(
        "postgres: the planner sees what a claim asks for",
        f"{PG}claim.sql",
        "LIMIT (SELECT :limit::bigint)",
        "LIMIT :limit::bigint",
        (
            (
                "tests/performance/test_plans_postgres.py::"
                "test_a_claim_is_planned_once_whatever_the_statistics_remember"
            ),
        ),
        "claim_ready",
    ),
    Mutant(
        "postgres: a bulk is sent before its texts are looked at",
        f"{PG}creating.py",
        "    refuse_unstorable_texts([*ids, *args, *names])\n",
        "",
        (
            (
                "tests/contract/test_create_many.py::"
                "test_a_single_one_that_cannot_be_stored_is_refused"
            ),
        ),
    ),
    Mutant(
        "postgres: UNIQUE is taken from the outbox",
        f"{PG}migrations/0001_initial.sql",
        "task_execution_id uuid    PRIMARY KEY,",
        "task_execution_id uuid    NOT NULL,",
        (f"{OUTBOX}::test_a_second_place_in_the_outbox_is_refused",),
    ),
    Mutant(
        "sqlite: UNIQUE is taken from the outbox",
        f"{SQLITE}migrations/0001_initial.sql",
        "CREATE UNIQUE INDEX task_outbox_execution",
        "CREATE INDEX task_outbox_execution",
        (f"{OUTBOX}::test_a_second_place_in_the_outbox_is_refused",),
    ),
    Mutant(
        "sqlite: the sequence starts again",
        f"{SQLITE}migrations/0001_initial.sql",
        "CREATE TABLE task_outbox (\n    seq               INTEGER PRIMARY KEY AUTOINCREMENT,",
        "CREATE TABLE task_outbox (\n    seq               INTEGER PRIMARY KEY,",
        (f"{OUTBOX}::test_the_sequence_does_not_start_again_when_the_outbox_is_empty",),
    ),
    Mutant(
        "sqlite: transactions do not begin immediate",
        f"{SQLITE}sharing.py",
        '"BEGIN IMMEDIATE"',
        '"BEGIN"',
        ("tests/contract/test_concurrency.py::test_four_processes_on_sqlite_claim_each_task_once",),
    ),
    Mutant(
        "sqlite: who fails in a group takes the others with it",
        f"{SQLITE}sharing.py",
        "if is_a_works and len(together.jobs) > 1:",
        "if not together.jobs:",
        ("tests/unit/test_sharing.py::test_who_fails_in_a_group_fails_alone",),
    ),
    Mutant(
        "the outbox is never scanned from zero again",
        "penstock/store/low_water.py",
        "return self._monotonic() >= self._thorough_until",
        'return self._thorough_until == float("-inf")',
        ("tests/faults/test_late_commits.py",),
    ),
    # --- dead workers -------------------------------------------------------------------
    Mutant(
        "postgres: a beat since it was last seen does not save a worker",
        f"{PG}maintain.sql",
        "AND worker.beat = dead.beat ",
        "",
        (f"{WORKERS}::test_a_beat_since_it_was_last_seen_saves_a_worker",),
        "declare_dead",
    ),
    Mutant(
        "postgres: crashes are not counted",
        f"{PG}maintain.sql",
        "ELSE task.crashes + 1 END,",
        "ELSE task.crashes END,",
        (f"{RECOVER}::test_a_started_task_is_charged_with_a_crash_and_keeps_its_attempt",),
        "recover",
    ),
    Mutant(
        "sqlite: crashes are not counted",
        f"{SQLITE}maintain.sql",
        "ELSE crashes + 1 END,",
        "ELSE crashes END,",
        (f"{RECOVER}::test_a_started_task_is_charged_with_a_crash_and_keeps_its_attempt",),
        "recover",
    ),
    Mutant(
        "postgres: what a dead worker left is not suspect",
        f"{PG}maintain.sql",
        "        suspect = true,",
        "        suspect = task.suspect,",
        (f"{RECOVER}::test_what_a_dead_worker_left_is_suspect",),
        "recover",
    ),
    Mutant(
        "postgres: a recovery is not told",
        f"{PG}maintain.sql",
        "FROM moved ORDER BY seq\n), ",
        "FROM moved WHERE false ORDER BY seq\n), ",
        (f"{RECOVER}::test_what_a_dead_worker_left_is_ready_again_and_explained",),
        "recover",
    ),
    Mutant(
        "postgres: a recovery waits for rows that somebody holds",
        f"{PG}maintain.sql",
        "FOR NO KEY UPDATE OF task SKIP LOCKED",
        "FOR NO KEY UPDATE OF task",
        (f"{RECOVER}::test_recovery_steps_over_a_row_that_somebody_holds",),
        "recover",
    ),
    # --- the engine ---------------------------------------------------------------------
    Mutant(
        "one bad outcome fails its whole batch",
        "penstock/store/settling.py",
        "if len(outcomes) > 1:",
        "if len(outcomes) > 1_000_000:",
        (f"{SETTLE}::test_one_bad_outcome_in_a_hundred_fails_alone_and_says_why",),
    ),
    Mutant(
        "what a refused handler has left open stays open",
        f"{ENGINE}settler.py",
        "gc.collect()",
        "pass",
        (
            (
                "tests/faults/test_sqlite_faults.py::"
                "test_a_handler_that_left_a_transaction_open_keeps_nobody_waiting"
            ),
        ),
    ),
    Mutant(
        "who goes on inside a transaction of its own waits for ever",
        f"{ENGINE}settler.py",
        "if sub_state is SubState.DEFERRED else LOCK_PATIENCE",
        "if sub_state is SubState.DEFERRED else math.inf",
        (
            (
                "tests/faults/test_sqlite_faults.py::"
                "test_a_handler_that_left_a_transaction_open_keeps_nobody_waiting"
            ),
        ),
    ),
    Mutant(
        "a worker that stops outlasts every lock",
        f"{ENGINE}worker.py",
        "self._settler.hurry()",
        "pass",
        (
            (
                "tests/faults/test_sqlite_faults.py::"
                "test_a_worker_that_stops_does_not_wait_until_a_step_is_refused_and_settles_the_others"
            ),
        ),
    ),
    Mutant(
        "a settler that has rested is taken for stuck",
        f"{ENGINE}settler.py",
        "since = self._asking_since",
        "since = self._settled_at",
        (
            (
                "tests/faults/test_sqlite_faults.py::"
                "test_a_worker_whose_settler_waits_for_a_lock_after_a_long_rest_is_not_taken_for_stuck"
            ),
        ),
    ),
    Mutant(
        "a stuck settler is not noticed",
        f"{ENGINE}settler.py",
        "            self._asking_since = time.monotonic()\n            lock_is_kept",
        "            self._asking_since = None\n            lock_is_kept",
        (
            (
                "tests/faults/test_sqlite_faults.py::"
                "test_a_worker_whose_settler_gets_no_answer_at_all_gives_itself_up"
            ),
        ),
    ),
    Mutant(
        "a step that was refused looks remembered",
        "penstock/engine/remembering.py",
        "                del self.steps[step]\n",
        "                pass\n",
        (
            (
                "tests/faults/test_sqlite_faults.py::"
                "test_a_step_that_was_refused_is_taken_and_stored_by_who_asks_again"
            ),
        ),
    ),
    Mutant(
        "who has failed waits for the lock of those who fail next",
        "penstock/store/sqlite/sharing.py",
        "if threading.current_thread() is threading.main_thread():",
        "if True:",
        (
            (
                "tests/faults/test_sqlite_faults.py::"
                "test_a_write_that_another_thread_has_done_does_not_wait_for_the_writes_of_others"
            ),
        ),
    ),
    Mutant(
        "what an interrupted leader had not decided counts as written",
        f"{SQLITE}sharing.py",
        "                job.together.fate = Interrupted()\n",
        "                job.together.fate = Fate.COMMITTED\n",
        ("tests/unit/test_interrupted_writers.py",),
    ),
    Mutant(
        "sqlite: what a signal ended before the commit is told as unknown",
        f"{SQLITE}sharing.py",
        "if_ended: Fate | BaseException = Fate.UNDONE",
        "if_ended: Fate | BaseException = Interrupted()",
        (
            (
                "tests/unit/test_sharing.py::"
                "test_what_a_signal_ended_before_the_commit_is_done_by_who_asked_for_it"
            ),
        ),
    ),
    Mutant(
        "sqlite: what a signal ended before it waited is written by somebody else, later",
        f"{SQLITE}sharing.py",
        "        try:\n            self._waiting.append(job)\n",
        "        self._waiting.append(job)\n        try:\n",
        ("tests/unit/test_interrupted_writers.py",),
    ),
    Mutant(
        "sqlite: a fate that is told is taken back",
        f"{SQLITE}sharing.py",
        "                together.fate = Fate.UNDONE\n            elif is_a_works or",
        "                together.fate = error\n                together.fate = Fate.UNDONE\n"
        "            elif is_a_works or",
        ("tests/unit/test_sharing.py::test_what_is_told_is_not_taken_back",),
    ),
    Mutant(
        "who is done by itself after a fault takes others along",
        f"{SQLITE}sharing.py",
        "                    if not alone:\n",
        "                    if True:\n",
        ("tests/unit/test_sharing.py::test_who_writes_alone_after_a_fault_is_not_joined",),
    ),
    Mutant(
        "a run that could not be started counts as started",
        f"{ENGINE}handling.py",
        "            self._recall.run_was_refused(new.workflow)\n",
        "            pass\n",
        (
            (
                "tests/faults/test_sqlite_faults.py::"
                "test_a_run_that_could_not_be_started_is_started_once_by_who_asks_again"
            ),
        ),
    ),
    Mutant(
        "who was refused stays deferred to the eye",
        f"{ENGINE}settler.py",
        "if goes_on(one) or one.sub_state is SubState.ACTIVE",
        "if goes_on(one)",
        (("tests/faults/test_sqlite_faults.py::test_who_was_refused_and_goes_on_is_seen_to"),),
    ),
    Mutant(
        "a step that is not known to be stored is answered from memory",
        f"{ENGINE}handle.py",
        "self._expect_remembered(name, held=await result_of(written))\n            return",
        "pass\n            return",
        (
            (
                "tests/faults/test_sqlite_faults.py::"
                "test_a_step_whose_answer_was_not_waited_for_is_not_answered_from_memory_alone"
            ),
        ),
    ),
    Mutant(
        "a completion that was rolled back is believed",
        f"{ENGINE}settler.py",
        'if whereabouts == "undone":',
        'if whereabouts == "never":',
        (
            (
                "tests/faults/test_handle_completion.py::"
                "test_a_savepoint_that_was_rolled_back_is_found_out_and_the_task_tried_again"
            ),
        ),
    ),
    Mutant(
        "a claim whose reply was lost is not reconciled at once",
        f"{ENGINE}claimer.py",
        "self._reconcile_at = 0.0",
        "self._reconcile_at += 0.0",
        (
            (
                "tests/faults/test_database_lost_replies.py::"
                "test_tasks_of_a_claim_whose_reply_was_lost_are_given_back_and_run_once"
            ),
        ),
    ),
    Mutant(
        "the heart does not beat on a thread of its own",
        f"{ENGINE}worker.py",
        'self._spawn("heart", self._heart.run_until_stopped)',
        "self._loop.call_soon_threadsafe(self._heart.run_until_stopped)",
        (
            (
                "tests/faults/test_stopped_workers.py::"
                "test_a_task_that_blocks_the_loop_is_not_taken_from_a_living_worker"
            ),
        ),
    ),
    Mutant(
        "nobody polls: work without a notification is not looked for",
        f"{ENGINE}claimer.py",
        "longest = LOOK_AGAIN_AFTER if self._look_soon else self._poll",
        "longest = LOOK_AGAIN_AFTER if self._look_soon else 3600.0",
        (
            (
                "tests/faults/test_database_wakeups.py::"
                "test_work_whose_notification_never_came_is_found_by_the_poll"
            ),
        ),
    ),
    Mutant(
        "postgres: an answer may take for ever",
        f"{PG}deadlines.py",
        "        _watch.begin(self)\n",
        "",
        (
            (
                "tests/faults/test_network_faults.py::"
                "test_a_worker_gives_up_a_connection_that_fell_silent_and_goes_on[claim]"
            ),
        ),
    ),
    Mutant(
        "postgres: statements are prepared behind a pooler",
        f"{PG}connecting.py",
        "connection.prepare_threshold = None",
        "pass",
        ("tests/faults/test_pgbouncer.py::test_workers_behind_a_pooler_do_all_that_there_is",),
    ),
    # --- runs ---------------------------------------------------------------------------
    Mutant(
        "postgres: a run is read without its lock",
        f"{PG}runs.sql",
        "ORDER BY id\nFOR NO KEY UPDATE;",
        "ORDER BY id;",
        (
            (
                "tests/contract/test_concurrency.py::"
                "test_a_child_whose_parents_end_at_the_same_time_elsewhere_is_released_once"
            ),
        ),
        "lock_runs",
    ),
    Mutant(
        "a task is let go although a dependency lives",
        "penstock/model/graph.py",
        "if not all(state in FINAL for state in dependencies):",
        "if not any(state in FINAL for state in dependencies):",
        ("tests/contract/test_runs.py::test_a_rule_decides_once_all_dependencies_have_ended",),
    ),
    Mutant(
        "postgres: a completion in a caller's transaction leaves no word for its run",
        f"{PG}complete.sql",
        "SELECT root_id FROM moved WHERE root_id <> id\n",
        "SELECT root_id FROM moved WHERE false\n",
        (f"{ON_CALLERS}::test_dependents_go_on_after_the_commit_of_a_completion",),
        "complete",
    ),
    Mutant(
        "a completion overtakes the start that is just being told",
        f"{ENGINE}desk.py",
        "            self.settler.wait_until_told(self.attempt.claimed.lease)\n",
        "            pass\n",
        (f"{COMPLETION}::test_a_start_that_is_being_told_comes_before_the_completion",),
    ),
    Mutant(
        "sqlite: a completion does not look whether the start is known",
        f"{SQLITE}complete.sql",
        " AND started_at IS NULL",
        "",
        (f"{COMPLETE_ON}::test_a_start_that_is_known_is_not_told_again",),
        "start_unless_known",
    ),
    Mutant(
        "postgres: a completion does not look whether the start is known",
        f"{PG}complete.sql",
        "CASE WHEN before.started_at IS NULL THEN moment.started_at END",
        "moment.started_at",
        (f"{COMPLETE_ON}::test_a_start_that_is_known_is_not_told_again",),
        "complete",
    ),
    Mutant(
        "postgres: the end of a run leaves no word for the task that waits for it",
        f"{PG}runs.sql",
        "SELECT parent_id FROM closed WHERE parent_id IS NOT NULL",
        "SELECT parent_id FROM closed WHERE false",
        (f"{WAITS}::test_the_end_of_a_child_lets_its_parent_go_on",),
        "let_go",
    ),
    Mutant(
        "postgres: word that a run is to be cancelled is gone before it is",
        f"{PG}runs.sql",
        "SELECT seq FROM picked WHERE cancel IS NULL",
        "SELECT seq FROM picked",
        (f"{ORPHANS}::test_children_are_cancelled_although_whoever_cancelled_their_parent_died",),
        "take_run_propagations",
    ),
    Mutant(
        "postgres: whoever cancels a task leaves no word for the runs that it has started",
        f"{PG}people.py",
        "leave_orphans(session, gone)",
        "leave_orphans(session, [])",
        (f"{ORPHANS}::test_children_are_cancelled_although_whoever_cancelled_their_parent_died",),
    ),
    Mutant(
        "postgres: a settled cancellation leaves no word for the runs that the task has started",
        f"{PG}settling.py",
        "leave_orphans(session, cancelled)",
        "leave_orphans(session, [])",
        (f"{ORPHANS}::test_whoever_is_asked_to_stop_leaves_no_child_however_it_ends",),
    ),
    Mutant(
        "sqlite: a settled cancellation leaves the runs alone that the task has started",
        f"{SQLITE}settling.py",
        "row[5] == State.CANCELLED",
        "row[5] == State.SKIPPED",
        (f"{ORPHANS}::test_whoever_is_asked_to_stop_leaves_no_child_however_it_ends",),
    ),
    Mutant(
        "postgres: a recovered cancellation leaves no word for the runs that the task has started",
        f"{PG}maintaining.py",
        "row[1] == State.CANCELLED",
        "row[1] == State.SKIPPED",
        (f"{ORPHANS}::test_whoever_dies_after_it_was_asked_to_stop_leaves_no_child",),
    ),
    Mutant(
        "sqlite: a recovered cancellation leaves the runs alone that the task has started",
        f"{SQLITE}maintaining.py",
        "row[6] == State.CANCELLED",
        "row[6] == State.SKIPPED",
        (f"{ORPHANS}::test_whoever_dies_after_it_was_asked_to_stop_leaves_no_child",),
    ),
    # --- what is told of a write that fails -----------------------------------------------
    Mutant(
        "postgres: what was done before is told to have been kept out",
        f"{PG}connecting.py",
        "if connection.done == done:",
        "if connection.done >= done:",
        (
            (
                "tests/faults/test_database_outages.py::"
                "test_a_full_disk_is_not_told_to_have_kept_out_what_was_done_before"
            ),
        ),
    ),
    Mutant(
        "postgres: what was done is told as unknown when what follows fails",
        f"{PG}store.py",
        "with suppress(StoreUnavailable):",
        "with suppress():",
        (
            (
                "tests/faults/test_database_outages.py::"
                "test_what_was_done_is_told_although_nothing_more_can_be_written"
            ),
        ),
    ),
    Mutant(
        "sqlite: what two signals ended is written by whoever comes next",
        f"{SQLITE}sharing.py",
        "            job.together = NOBODYS\n",
        "",
        (
            (
                "tests/unit/test_interrupted_writers.py::"
                "test_what_a_signal_ended_is_not_written_later_by_somebody_else"
            ),
        ),
    ),
    Mutant(
        "a worker that is stopped while it starts stays at work",
        f"{ENGINE}worker.py",
        "                self.stop(grace=timedelta(0))\n",
        "                pass\n",
        (
            (
                "tests/unit/test_worker_start.py::"
                "test_whoever_stops_a_worker_while_it_starts_finds_nothing_of_it_at_work"
            ),
        ),
    ),
    # --- steps and waits ----------------------------------------------------------------
    Mutant(
        "postgres: whoever lost a task stores steps of it",
        f"{PG}waits.sql",
        "AND task.fence = batch.fence AND task.worker_id IS NOT DISTINCT FROM batch.worker_id",
        "",
        (f"{WAITS}::test_whoever_lost_the_task_has_nothing_to_remember",),
        "store_steps",
    ),
    Mutant(
        "sqlite: whoever lost a task stores steps of it",
        f"{SQLITE}waits.sql",
        " AND task.fence = batch.fence AND task.worker_id IS batch.worker_id",
        "",
        (f"{WAITS}::test_whoever_lost_the_task_has_nothing_to_remember",),
        "store_steps",
    ),
    Mutant(
        "postgres: a step is stored over an earlier one",
        f"{PG}waits.sql",
        "ON CONFLICT DO NOTHING",
        "ON CONFLICT (task_execution_id, name) DO UPDATE SET result = excluded.result",
        (f"{WAITS}::test_the_first_result_of_a_step_stays",),
        "store_steps",
    ),
    Mutant(
        "postgres: whoever lost a task starts runs for it",
        f"{PG}waits.sql",
        " AND fence = :fence AND worker_id IS NOT DISTINCT FROM :worker_id",
        " AND :fence > 0 AND :worker_id <> ''",
        (f"{WAITS}::test_whoever_lost_the_task_starts_no_child",),
        "hold_lease",
    ),
    Mutant(
        "postgres: any signal ends a wait",
        f"{PG}waits.sql",
        "WHERE signal.task_execution_id = task.id AND signal.name = substr(task.awaits, 8))",
        "WHERE signal.task_execution_id = task.id)",
        (f"{WAITS}::test_a_signal_of_another_name_is_kept_and_ends_no_wait",),
        "wake_tasks",
    ),
    Mutant(
        "sqlite: any signal ends a wait",
        f"{SQLITE}waits.sql",
        "            AND signal.name = substr(task_executions.awaits, 8))",
        "            )",
        (f"{WAITS}::test_a_signal_of_another_name_is_kept_and_ends_no_wait",),
        "wake_tasks",
    ),
    Mutant(
        "postgres: a signal that came before the wait is not looked for",
        f"{PG}settling.py",
        "        wake(session, suspended)\n",
        "",
        (f"{WAITS}::test_a_signal_that_came_before_the_wait_ends_it_at_once",),
    ),
)
