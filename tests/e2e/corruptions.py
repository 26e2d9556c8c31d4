"""What can be done to the tables by hand, and what `verify` has to say about it."""

from collections.abc import Mapping
from typing import NamedTuple


class Corruption(NamedTuple):
    """Statements that both databases understand, where {name} stands for the id of an execution."""

    done: str
    found: set[tuple[str, str]]  # a code, and the name of the execution


CORRUPTIONS: Mapping[str, Corruption] = {
    "a state was changed without an event": Corruption(
        """
        UPDATE task_executions SET state = 'cancelled', finished_at = created_at
        WHERE id = '{scheduled}'
        """,
        {("state-differs", "scheduled")},
    ),
    "a claim was added to a history": Corruption(
        """
        INSERT INTO execution_events (root_id, task_execution_id, type, worker_id, at)
        SELECT id, id, 'task.claimed', 'w1', created_at FROM task_executions
        WHERE id = '{running}'
        """,
        {("claimed-twice", "running")},
    ),
    "a run after the end was added to a history": Corruption(
        """
        INSERT INTO execution_events (root_id, task_execution_id, type, worker_id, at)
        SELECT id, id, 'task.started', 'w1', created_at FROM task_executions
        WHERE id = '{completed}'
        """,
        {("state-differs", "completed"), ("unexplained-run", "completed")},
    ),
    "an event was removed": Corruption(
        """
        DELETE FROM execution_events
        WHERE root_id = '{completed}' AND type = 'task.marked_ready'
        """,
        {("illegal-step", "completed")},
    ),
    "the first event was removed": Corruption(
        """
        DELETE FROM execution_events WHERE root_id = '{ready}' AND type = 'task.created'
        """,
        {("no-beginning", "ready")},
    ),
    "the history of a failed execution was removed": Corruption(
        """
        DELETE FROM execution_events WHERE root_id = '{failed}'
        """,
        {("no-history", "failed")},
    ),
    "an event lost its worker": Corruption(
        """
        UPDATE execution_events SET worker_id = NULL
        WHERE root_id = '{failed}' AND type = 'task.failed'
        """,
        {("worker-unnamed", "failed")},
    ),
    "an outcome came from another worker": Corruption(
        """
        UPDATE execution_events SET worker_id = 'w2'
        WHERE root_id = '{completed}' AND type = 'task.completed'
        """,
        {("wrong-worker", "completed")},
    ),
    "a counter was changed": Corruption(
        """
        UPDATE task_executions SET attempt = 2, retries = 1, crashes = 1
        WHERE id = '{running}'
        """,
        {
            ("attempt-differs", "running"),
            ("crashes-differ", "running"),
            ("retries-differ", "running"),
        },
    ),
    "a fence was changed": Corruption(
        """
        UPDATE task_executions SET fence = 7 WHERE id = '{running}'
        """,
        {("fence-differs", "running")},
    ),
    "an outbox row was removed": Corruption(
        """
        DELETE FROM task_outbox WHERE task_execution_id = '{ready}'
        """,
        {("not-in-outbox", "ready")},
    ),
    "an outbox row was added": Corruption(
        """
        INSERT INTO task_outbox (task_execution_id, queue, priority, task)
        VALUES ('{failed}', 'default', 0, 'add')
        """,
        {("in-outbox", "failed")},
    ),
    "an outbox row was changed": Corruption(
        """
        UPDATE task_outbox SET queue = 'mail' WHERE task_execution_id = '{ready}'
        """,
        {("outbox-differs", "ready")},
    ),
    "an outbox row belongs to nobody": Corruption(
        """
        INSERT INTO task_outbox (task_execution_id, queue, priority, task)
        VALUES ('{unknown}', 'default', 0, 'add')
        """,
        {("outbox-orphan", "unknown")},
    ),
    "a running execution lost its worker": Corruption(
        """
        UPDATE task_executions SET worker_id = NULL WHERE id = '{running}'
        """,
        {("worker-missing", "running")},
    ),
    "a finished execution has a worker": Corruption(
        """
        UPDATE task_executions SET worker_id = 'w1' WHERE id = '{completed}'
        """,
        {("worker-left", "completed")},
    ),
    "a finished execution has no time at which it finished": Corruption(
        """
        UPDATE task_executions SET finished_at = NULL WHERE id = '{failed}'
        """,
        {("finished-at-differs", "failed")},
    ),
    "a live execution was removed": Corruption(
        """
        DELETE FROM task_executions WHERE id = '{running}'
        """,
        {("lost-execution", "running")},
    ),
    "a scheduled execution lost its time": Corruption(
        """
        UPDATE task_executions SET run_at = NULL WHERE id = '{scheduled}'
        """,
        {("never-due", "scheduled")},
    ),
    "the head of a serial was removed": Corruption(
        """
        DELETE FROM task_executions WHERE id = '{head}';
        DELETE FROM task_outbox WHERE task_execution_id = '{head}';
        DELETE FROM execution_events WHERE root_id = '{head}'
        """,
        {("stuck-serial", "behind")},
    ),
    "somebody went out of turn": Corruption(
        """
        UPDATE task_executions SET serial_place = 0 WHERE id = '{behind}'
        """,
        {("out-of-turn", "head"), ("stuck-serial", "behind")},
    ),
    "a key went to two": Corruption(
        """
        DROP INDEX task_executions_live_key;
        CREATE INDEX task_executions_live_key ON task_executions (task, key)
        WHERE key IS NOT NULL AND finished_at IS NULL;
        UPDATE task_executions SET key = 'k' WHERE id = '{rerun}'
        """,
        {("key-twice", "ready"), ("key-twice", "rerun")},
    ),
}
