"""What to do about each thing that `verify` can find wrong."""

from collections.abc import Mapping

from penstock.model.retelling import Wrong

_BY_HAND = (
    "No operation of Penstock leaves this behind: find out who wrote to the tables, and keep a copy"
)
_HISTORY_COUNTS = "Its history was written with every change: correct the row by what it says"
_BOTH_MAY_HAVE_RUN = (
    "Look at what it did outside the database, for two workers may have done it, and keep a copy"
)

# With {id} and {root}, and {schema} before each table in what is to be run as it stands.
REMEDIES: Mapping[Wrong, str] = {
    Wrong.ILLEGAL_STEP: f"{_BY_HAND} of what `penstock history {{id}}` shows.",
    Wrong.CLAIMED_TWICE: f"{_BOTH_MAY_HAVE_RUN} of what `penstock history {{id}}` shows.",
    Wrong.UNEXPLAINED_RUN: f"{_BOTH_MAY_HAVE_RUN} of what `penstock history {{id}}` shows.",
    Wrong.UNKNOWN_EVENT: (
        "A newer version of Penstock may have written it: verify with that one. Otherwise "
        "somebody wrote to execution_events by hand."
    ),
    Wrong.FOREIGN_EVENT: f"{_BY_HAND} of the events with the root_id {{id}}.",
    Wrong.NO_BEGINNING: (
        "Retention removes whole histories only: somebody removed events by hand. What they "
        "said is lost; the execution itself goes on."
    ),
    Wrong.NO_HISTORY: (
        "Retention keeps the events of live and failed executions: somebody removed them by hand. "
        "What they said is lost; the execution itself goes on."
    ),
    Wrong.LOST_EXECUTION: (
        "Retention removes finished executions only, and no failed ones: restore it from a "
        "backup, or enqueue it again. `penstock history {id}` still tells what happened."
    ),
    Wrong.WORKER_UNNAMED: f"{_BY_HAND} of what `penstock history {{id}}` shows.",
    Wrong.WRONG_WORKER: f"{_BOTH_MAY_HAVE_RUN} of what `penstock history {{id}}` shows.",
    Wrong.STATE_DIFFERS: f"{_HISTORY_COUNTS}, or end it and `penstock rerun {{id}}`.",
    Wrong.SUB_STATE_DIFFERS: f"{_HISTORY_COUNTS}; no task is lost by it.",
    Wrong.FINISHED_AT_DIFFERS: (
        f"{_HISTORY_COUNTS}: retention, keys and serials go by finished_at."
    ),
    Wrong.ATTEMPT_DIFFERS: f"{_HISTORY_COUNTS}; no task is lost by it.",
    Wrong.RETRIES_DIFFER: f"{_HISTORY_COUNTS}, or it is retried too often or too seldom.",
    Wrong.CRASHES_DIFFER: f"{_HISTORY_COUNTS}, or it is abandoned too early or too late.",
    Wrong.FENCE_DIFFERS: (
        "Stop its worker before you correct the row: with another fence it cannot settle, and the "
        "task is recovered once the worker is gone."
    ),
    Wrong.NEVER_DUE: (
        "Give it a time: UPDATE {schema}task_executions SET run_at = created_at WHERE id = '{id}'"
    ),
    Wrong.WORKER_MISSING: (
        "Give it back to the worker that claimed it; if that one is dead, others recover it: "
        "UPDATE {schema}task_executions SET worker_id = (SELECT worker_id "
        "FROM {schema}execution_events "
        "WHERE root_id = '{root}' AND task_execution_id = '{id}' AND type = 'task.claimed' "
        "ORDER BY seq DESC LIMIT 1) "
        "WHERE id = '{id}'"
    ),
    Wrong.WORKER_LEFT: (
        "Workers will take it for a lost one and recover it: "
        "UPDATE {schema}task_executions SET worker_id = NULL WHERE id = '{id}'"
    ),
    Wrong.NOT_IN_OUTBOX: (
        "Give it a place: INSERT INTO {schema}task_outbox (task_execution_id, queue, priority, "
        "suspect, task) SELECT id, queue, priority, suspect, task FROM {schema}task_executions "
        "WHERE id = '{id}'"
    ),
    Wrong.IN_OUTBOX: (
        "Nobody will run it, for a claim looks at the state as well: "
        "DELETE FROM {schema}task_outbox WHERE task_execution_id = '{id}'"
    ),
    Wrong.TWICE_IN_OUTBOX: (
        "The unique index of task_outbox is missing or broken: remove one of the rows, and make "
        "the index again."
    ),
    Wrong.OUTBOX_DIFFERS: (
        "A claim goes by the outbox: remove its row there, and verify again for how to put it "
        "back: DELETE FROM {schema}task_outbox WHERE task_execution_id = '{id}'"
    ),
    Wrong.OUTBOX_ORPHAN: (
        "If the execution was removed on purpose: "
        "DELETE FROM {schema}task_outbox WHERE task_execution_id = '{id}'"
    ),
    Wrong.STUCK_SERIAL: (
        "Nothing would release it: `penstock cancel {id}` and then `penstock rerun {id}` puts it "
        "at the end of its serial, which goes on."
    ),
    Wrong.OUT_OF_TURN: f"{_BY_HAND} of both executions.",
    Wrong.SERIAL_UNKNOWN: (
        "Its successors would wait for ever: INSERT INTO {schema}serials (serial) "
        "SELECT serial FROM {schema}task_executions WHERE id = '{id}'"
    ),
    Wrong.WAITS_FOR_NOTHING: (
        "Nothing would release it: `penstock cancel {id}` and then `penstock rerun {id}`."
    ),
    Wrong.KEY_TWICE: (
        "The unique index task_executions_live_key is missing or broken: `penstock cancel {id}`, "
        "or cancel the other one, and make the index again."
    ),
    Wrong.FOREIGN_ROOT: (
        "A task's root is the run that its id belongs to, or the task itself: "
        "UPDATE {schema}task_executions SET root_id = '{root}' WHERE id = '{id}'"
    ),
    Wrong.RUN_STATE_DIFFERS: (
        "Its history was written with every change: correct the row in workflow_executions by "
        "what `penstock history {id}` says."
    ),
    Wrong.RUN_FINISHED_AT_DIFFERS: (
        "Correct the row in workflow_executions by the last workflow event that "
        "`penstock history {id}` shows: whoever goes on with a run, and retention, goes by "
        "finished_at."
    ),
    Wrong.RUN_GRAPH_UNREADABLE: (
        "A newer version of Penstock may have written it: verify with that one. Otherwise restore "
        "the graph from a backup; without it no task of the run is let go."
    ),
    Wrong.RUN_TASKS_DIFFER: (
        "A run's tasks are written with it and removed with it: restore them from a backup, or "
        "`penstock cancel {id}` and start the workflow again."
    ),
    Wrong.RUN_LOST: (
        "Retention removes a run with all of its tasks: restore its row from a backup. Without it "
        "what is ready still runs, and nothing that waits is ever let go."
    ),
    Wrong.RUN_ENDED_EARLY: (
        f"{_BY_HAND} of what `penstock history {{id}}` shows. What is ready still runs; "
        "`penstock cancel` ends each task that should not."
    ),
    Wrong.RUN_NOT_ENDED: (
        "Nothing would end it: `penstock cancel {id}` looks at its tasks again and ends it as they "
        "say."
    ),
    Wrong.RUN_END_DIFFERS: f"{_BY_HAND} of what `penstock history {{id}}` shows.",
    Wrong.STUCK_IN_RUN: (
        "Nothing would let it go: `penstock pause {root}` and then `penstock resume {root}` looks "
        "at the run again."
    ),
    Wrong.BEFORE_ITS_TURN: (
        f"{_BY_HAND} of what `penstock history {{root}}` shows. It may have run without what it "
        "depends on."
    ),
    Wrong.ELEMENT_LEFT: (
        "Nobody waits for what it does: `penstock cancel {id}`, and keep a copy of what "
        "`penstock history {root}` shows."
    ),
    Wrong.CHILD_LEFT: "Nobody waits for what it does: `penstock cancel {id}` ends it.",
    Wrong.AGAINST_ITS_RULE: (
        f"{_BY_HAND} of what `penstock history {{root}}` shows, and of the run's graph."
    ),
}
