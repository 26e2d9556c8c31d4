"""Every fault that the engine is held to, how it is brought about, and which tests show the rest.

`make matrix` runs these tests and writes the table into docs/explanation/reliability.md. A row is
added here together with its test, or with one that exists already elsewhere.
"""

from typing import NamedTuple


class Row(NamedTuple):
    fault: str
    injected: str
    expected: str
    tests: tuple[str, ...]  # "file below tests/::name"


CRASH = "faults/test_crash_points.py::"
MEMORY = "faults/test_memory_faults.py::"
FLOWS = "faults/test_workflow_kills.py::"
KILLED = "faults/test_killed_workers.py::"
STOPPED = "faults/test_stopped_workers.py::"
REPLIES = "faults/test_database_lost_replies.py::"
NETWORK = "faults/test_network_faults.py::"
SERVER = "faults/test_server_faults.py::"
WAKEUPS = "faults/test_database_wakeups.py::"
SQLITE = "faults/test_sqlite_faults.py::"
HARMFUL = "faults/test_harmful_tasks.py::"
SKEWED = "contract/test_skewed_clocks.py::"

ROWS = (
    # --- workers ------------------------------------------------------------------------
    Row(
        "kill -9 in the middle of a handler",
        "SIGKILL to a worker process with 50 running tasks",
        "each runs once more, at once on the same host and after the lease elsewhere",
        (
            f"{KILLED}test_what_a_killed_worker_ran_runs_again_at_once_on_the_same_host",
            f"{KILLED}test_where_nobody_can_see_the_process_it_runs_again_after_the_lease",
        ),
    ),
    Row(
        "kill -9 between claim and start, before and after a settlement",
        "SIGKILL at a crash point inside the worker",
        "what was committed is not repeated; what was not, runs, and its history says why",
        (f"{CRASH}test_a_worker_killed_at_this_point_loses_nothing",),
    ),
    Row(
        "kill -9 after the effect, before the settlement",
        "SIGKILL at each step of a handler's own transaction",
        "one effect of each task, and one completion",
        (
            "faults/test_handle_completion.py::test_a_worker_killed_on_the_way_leaves_one_effect_of_each_task",
            "faults/test_handle_completion.py::test_a_child_that_is_killed_on_the_way_leaves_one_effect",
        ),
    ),
    Row(
        "a zombie: stopped for longer than its lease, then continued",
        "SIGSTOP and SIGCONT, at random and at crash points",
        "others take over; whatever the zombie says afterwards is refused",
        (
            f"{STOPPED}test_a_worker_that_was_stopped_for_long_is_refused_and_goes_on_under_a_new_id",
            f"{CRASH}test_a_worker_that_stood_still_at_this_point_changes_nothing_any_more",
            "faults/test_handle_zombies.py::test_a_zombie_that_wakes_before_it_completes_takes_no_effect",
        ),
    ),
    Row(
        "SIGTERM in every phase",
        "SIGTERM at crash points from registering to leaving",
        "the worker ends with status 0, gives back what it cannot finish, and costs no attempt",
        (
            f"{CRASH}test_sigterm_in_this_phase_ends_a_worker_in_good_order",
            "faults/test_shutdown.py::test_sigterm_lets_tasks_finish_for_the_grace_period_and_gives_back_the_rest",
        ),
    ),
    Row(
        "a thread of the worker dies",
        "its store raises from the nth call on",
        "the process ends itself with a status that says so; others recover its work",
        (f"{STOPPED}test_a_worker_ends_itself_when_one_of_its_threads_has_died",),
    ),
    Row(
        "a handler blocks the event loop",
        "a blocking sleep of two leases in an async task",
        "nobody takes the task away: the heart has a thread of its own",
        (f"{STOPPED}test_a_task_that_blocks_the_loop_is_not_taken_from_a_living_worker",),
    ),
    Row(
        "a handler holds the GIL",
        "a C call of four leases that does not let go of it",
        "the task is taken over; what its first run says is refused",
        (f"{HARMFUL}test_a_task_that_holds_the_gil_is_taken_over_and_settled_once",),
    ),
    Row(
        "out of memory",
        "RLIMIT_AS inside the worker process, and a handler that asks for more",
        "the attempt fails with MemoryError and is retried; the worker goes on",
        (f"{HARMFUL}test_a_task_that_runs_out_of_memory_fails_alone",),
    ),
    Row(
        "a poison pill",
        "a task that aborts its process each time, among innocent ones",
        "it is abandoned after `max_crashes`; its neighbours complete",
        (
            "faults/test_poison_pills.py::test_a_poison_pill_is_abandoned_and_its_neighbours_complete",
            "faults/test_poison_pills.py::test_a_pill_that_acts_late_does_not_take_its_neighbours_along",
        ),
    ),
    # --- workflows ----------------------------------------------------------------------
    Row(
        "kill -9 in the middle of workflows",
        "SIGKILL to one worker of three, again and again, during 200 diamonds",
        "every run ends with the results and the context that it has without a kill",
        (f"{FLOWS}test_diamonds_end_as_if_nobody_had_been_killed",),
    ),
    Row(
        "kill -9 while tasks wait for runs that they started",
        "SIGKILL to one worker of three, again and again, during 200 parents",
        "each starts one run, and gets its results",
        (f"{FLOWS}test_parents_see_the_results_of_their_children_once",),
    ),
    Row(
        "kill -9 after a durable step",
        "a task ends its own process after each of its steps",
        "what was stored is not taken again",
        (f"{FLOWS}test_a_task_killed_after_a_step_does_not_take_it_again",),
    ),
    Row(
        "kill -9 or a lost reply while a step is stored",
        "SIGKILL, or a failing store, just before the step is stored and just after",
        "what was stored is not taken again; a lost reply costs no attempt",
        (
            f"{MEMORY}test_a_worker_killed_as_it_stores_a_step_repeats_it_only_if_it_was_not_stored",
            f"{MEMORY}test_a_step_whose_reply_was_lost_is_taken_once",
        ),
    ),
    Row(
        "kill -9 or a lost reply while a task starts a run",
        "SIGKILL, or a failing store, just before the run is started and just after",
        "one run, and its results",
        (
            f"{MEMORY}test_a_worker_killed_as_its_task_starts_a_run_starts_one",
            f"{MEMORY}test_a_run_whose_start_got_no_reply_is_started_once",
        ),
    ),
    Row(
        "a signal races the suspension that waits for it",
        "200 tasks are told when they have just begun, while workers are killed",
        "each goes on with what it was told",
        (f"{FLOWS}test_a_signal_that_races_a_suspension_is_never_lost",),
    ),
    Row(
        "a run is cancelled while it completes",
        "100 runs are cancelled when their last task has just begun, while workers are killed",
        "one end each, that of the last task",
        (f"{FLOWS}test_a_run_cancelled_while_it_completes_ends_once",),
    ),
    Row(
        "people meddle with runs that workers settle",
        "a thread that pauses, resumes, cancels and reruns, beside three that settle",
        "every run ends as its tasks say",
        (
            "contract/test_runs_races.py::test_whatever_happens_at_once_every_run_ends_as_its_tasks_say",
        ),
    ),
    Row(
        "kill -9 of whoever cancels a task that waits for a run",
        "SIGKILL as soon as the cancellation of the task is committed",
        "a worker cancels the run, for the same reason",
        (
            f"{FLOWS}test_a_child_is_cancelled_although_whoever_cancelled_its_parent_was_killed",
            "contract/test_waits_orphans.py::test_children_are_cancelled_although_whoever_cancelled_their_parent_died",
        ),
    ),
    # --- lost replies -------------------------------------------------------------------
    Row(
        "a commit whose reply is lost: create",
        "the store executes, then fails",
        "the caller is told that it is unknown; repeated, there is one execution",
        (
            f"{CRASH}test_an_enqueue_whose_reply_was_lost_may_be_repeated",
            "contract/test_create.py::test_creating_again_after_a_lost_reply_changes_nothing",
        ),
    ),
    Row(
        "a commit whose reply is lost: claim",
        "the store executes, then fails",
        "the tasks that nobody runs are given back, and run once",
        (
            f"{REPLIES}test_tasks_of_a_claim_whose_reply_was_lost_are_given_back_and_run_once",
            f"{REPLIES}test_a_suspect_whose_start_got_no_reply_is_given_back_and_runs_once",
        ),
    ),
    Row(
        "a commit whose reply is lost: settle and start",
        "the store executes, then fails",
        "told once, and not taken for a lost lease",
        (
            f"{REPLIES}test_a_settlement_whose_reply_was_lost_is_not_made_twice",
            f"{REPLIES}test_a_start_whose_reply_was_lost_is_told_once",
        ),
    ),
    Row(
        "a commit whose reply is lost: release",
        "the store executes, then fails, while a worker stops",
        "one release each, and the attempt is given back",
        (f"{CRASH}test_a_release_whose_reply_was_lost_is_told_once",),
    ),
    Row(
        "a commit whose reply is lost: complete in a handler's transaction",
        "a proxy swallows the reply to COMMIT, or cuts before it",
        "the row is read back: committed is completed, rolled back is tried again; one effect",
        (f"{NETWORK}test_a_handlers_commit_without_a_reply_is_decided_by_the_database",),
    ),
    Row(
        "a commit whose reply is lost: signal",
        "the store executes, then fails; or fails before",
        "the sender is told that it is unknown; repeated, the task is told once",
        (
            f"{MEMORY}test_a_signal_whose_reply_was_lost_may_be_repeated",
            "contract/test_waits.py::test_a_signal_sent_again_after_a_lost_reply_is_told_once",
        ),
    ),
    Row(
        "a heartbeat whose reply is lost",
        "the store executes, then fails",
        "a living worker keeps its tasks",
        (f"{REPLIES}test_a_heartbeat_whose_reply_was_lost_costs_a_living_worker_nothing",),
    ),
    # --- the server ---------------------------------------------------------------------
    Row(
        "a storm of pg_terminate_backend",
        "every connection of the workers is terminated, again and again",
        "nothing is lost, every extra run is explained",
        (f"{SERVER}test_a_storm_of_terminated_backends_loses_nothing",),
    ),
    Row(
        "a fast restart, an immediate crash",
        "pg_ctl stop in both modes, under load",
        "the workers wait and go on; nothing is lost",
        (
            f"{SERVER}test_a_server_that_restarts_is_waited_for",
            "faults/test_database_restarts.py::test_a_crash_of_the_server_in_the_middle_of_a_drain_loses_nothing",
        ),
    ),
    Row(
        "a standby is promoted",
        "pg_basebackup, a synchronous standby, the primary crashes, pg_ctl promote",
        "what was acknowledged before is done afterwards",
        (
            "faults/test_failover.py::test_what_was_acknowledged_before_a_fail_over_is_done_after_it",
        ),
    ),
    Row(
        "a server that takes no writes",
        "default_transaction_read_only, as before a promotion",
        "it is waited for",
        ("faults/test_database_outages.py::test_a_server_that_takes_no_writes_is_waited_for",),
    ),
    Row(
        "the database is gone for three leases",
        "a proxy refuses, stalls, or stalls and cuts",
        "no task is taken from a living worker; nothing runs twice",
        (
            "faults/test_database_outages.py::test_an_outage_of_three_leases_takes_no_task_from_a_living_worker",
        ),
    ),
    Row(
        "no connection is free",
        "all of the server's are taken; all of the worker's own are in use",
        "it waits and goes on",
        (
            f"{SERVER}test_a_server_without_a_free_connection_is_waited_for",
            f"{SERVER}test_a_worker_whose_own_connections_are_all_in_use_goes_on",
        ),
    ),
    Row(
        "a transaction is left open throughout",
        "a foreign session that holds back the vacuum, or a row of the outbox",
        "the drain goes on",
        (
            f"{SERVER}test_a_transaction_left_open_throughout_holds_nothing_up",
            "faults/test_database_transactions.py::test_a_claim_steps_over_what_somebody_holds",
        ),
    ),
    Row(
        "deadlocks and serialisation failures",
        "a trigger raises 40P01 or 40001 in one statement of four",
        "they are tried again, and nobody notices",
        (f"{SERVER}test_conflicts_that_the_server_reports_are_tried_again",),
    ),
    Row(
        "PgBouncer in transaction mode",
        "a real PgBouncer between the workers and the server, and a kill -9",
        "everything is done; without LISTEN the workers poll",
        ("faults/test_pgbouncer.py::test_workers_behind_a_pooler_do_all_that_there_is",),
    ),
    # --- the network --------------------------------------------------------------------
    Row(
        "every connection is cut, again and again",
        "a proxy resets them",
        "nothing is lost",
        (f"{NETWORK}test_a_network_that_cuts_every_connection_again_and_again_loses_nothing",),
    ),
    Row(
        "half-open sockets on claim, settle and heartbeat",
        "at a crash point the proxy keeps connections open and passes nothing on",
        "the worker gives them up after a deadline of its own and goes on under its name",
        (f"{NETWORK}test_a_worker_gives_up_a_connection_that_fell_silent_and_goes_on",),
    ),
    Row(
        "a half-open socket on LISTEN",
        "the proxy passes nothing on",
        "the poll finds the work",
        (f"{WAKEUPS}test_work_is_found_by_the_poll_when_the_listening_connection_is_half_open",),
    ),
    Row(
        "every NOTIFY is dropped",
        "the proxy takes notifications out of the protocol",
        "the poll finds the work",
        (
            f"{NETWORK}test_work_is_found_although_every_notification_is_dropped",
            f"{WAKEUPS}test_work_whose_notification_never_came_is_found_by_the_poll",
        ),
    ),
    Row(
        "every query takes two seconds",
        "the proxy delays each piece by a second, there and back",
        "work is done, slowly; nobody is taken for dead",
        (f"{NETWORK}test_every_query_delayed_by_two_seconds_costs_time_and_nothing_else",),
    ),
    # --- clocks -------------------------------------------------------------------------
    Row(
        "a worker's clock is an hour off",
        "a worker process whose calendar is set forward or back",
        "it works as any other: the database's clock decides",
        (f"{HARMFUL}test_a_worker_whose_clock_is_an_hour_off_works_as_any_other",),
    ),
    Row(
        "the database's clock steps back",
        "a movable clock in the store",
        "work goes on, histories keep their order, nobody dies of it",
        (
            f"{SKEWED}test_work_goes_on_while_the_clock_goes_back",
            f"{SKEWED}test_a_history_keeps_its_order_when_the_clock_goes_back",
            f"{SKEWED}test_a_clock_that_jumps_kills_nobody",
        ),
    ),
    # --- races --------------------------------------------------------------------------
    Row(
        "fifty enqueues of one key",
        "fifty threads at once",
        "one execution, and fifty answers that name it",
        ("contract/test_concurrency.py::test_fifty_creates_of_one_key_are_one_execution",),
    ),
    Row(
        "a cancel request races the end",
        "both at once, many times",
        "one final state",
        (
            "faults/test_handle_cancel.py::test_a_request_that_races_with_the_end_leads_to_one_final_state",
        ),
    ),
    Row(
        "two parents end at once",
        "in one batch, a hundred in random order, and in two processes in a thousand runs",
        "their child is released once",
        (
            "contract/test_runs.py::test_two_parents_in_one_batch_release_their_child_once",
            "contract/test_runs_random.py::test_a_fan_of_a_hundred_comes_together_once",
            "contract/test_concurrency.py::test_a_child_whose_parents_end_at_the_same_time_elsewhere_is_released_once",
        ),
    ),
    Row(
        "a transaction that came early commits late",
        "a caller's transaction stays open while its queue never runs empty",
        "its task is found soon, at its old place",
        (
            "faults/test_late_commits.py::test_what_commits_late_is_found_although_there_is_always_something_else_to_do",
        ),
    ),
    Row(
        "a sweep races a rerun",
        "two stores at once, many times",
        "all of an execution stays, or nothing of it",
        ("contract/test_races.py::test_a_sweep_and_a_rerun_that_race_leave_all_or_nothing",),
    ),
    # --- files, disks, tables -----------------------------------------------------------
    Row(
        "a full disk",
        "a small tmpfs that is filled up; `max_page_count`",
        "callers are told, outcomes are kept, work goes on when there is room",
        (
            "faults/test_full_disk.py::test_work_goes_on_when_a_full_disk_has_room_again",
            f"{SQLITE}test_a_full_disk_is_waited_for",
        ),
    ),
    Row(
        "a foreign process holds SQLite's write lock for two leases",
        "another program in BEGIN IMMEDIATE",
        "nobody is taken for dead, nothing runs twice",
        (
            f"{SQLITE}test_a_foreign_write_lock_longer_than_two_leases_takes_no_task_from_its_worker",
        ),
    ),
    Row(
        "kill -9 inside an SQLite transaction",
        "SIGKILL just before COMMIT",
        "`integrity_check` is ok, and everything is done",
        (f"{SQLITE}test_a_worker_killed_inside_a_transaction_leaves_a_sound_file",),
    ),
    Row(
        "a migration while old workers run",
        "workers of a frozen copy of version 1 in processes of their own",
        "they go on during the migration and after it, beside new ones",
        (
            "faults/test_old_workers.py::test_old_workers_go_on_while_the_tables_are_migrated_and_afterwards",
        ),
    ),
    Row(
        "malformed rows written by hand",
        "UPDATE and INSERT past the library",
        "the task fails alone and says why; nothing is handed out twice",
        (
            "faults/test_malformed_rows.py::test_arguments_that_make_no_sense_fail_their_task_alone_and_say_why",
            "contract/test_outbox.py::test_a_row_set_ready_by_hand_is_never_claimed",
            "contract/test_outbox.py::test_a_place_in_the_outbox_does_not_hand_out_a_running_task",
        ),
    ),
)
