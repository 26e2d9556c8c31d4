"""What `--help` says beside the declaration: a few examples, and summaries for the lists."""

from collections.abc import Mapping

import click

ID = "01990a3c-6c1e-7b54-9d2f-0242ac120002"

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "penstock demo": (
        "penstock demo",
        "penstock demo --keep",
    ),
    "penstock worker": (
        "penstock worker orders:app",
        "penstock worker orders:app --slots 20 --queue mail --queue default --processes 2",
        "penstock worker orders:app --until-idle",
        "penstock worker orders:app --metrics-port 9108",
    ),
    "penstock enqueue": (
        """penstock enqueue orders:app send_receipt '{"order_id": 1, "to": "x"}'""",
        """penstock enqueue orders:app send_receipt '{"order_id": 1, "to": "x"}' --run-after 10m""",
    ),
    "penstock list": (
        "penstock list --state failed",
        "penstock list --task send_receipt --queue mail --limit 10 --json",
        "penstock list --workflow daily_orders --state failed",
    ),
    "penstock show": (
        f"penstock show {ID}",
        f"penstock show {ID} --app orders:app",
    ),
    "penstock history": (f"penstock history {ID}",),
    "penstock why": (
        f"penstock why {ID}",
        f"penstock why {ID} --json",
    ),
    "penstock graph": (
        "penstock graph orders:app daily_orders",
        "penstock graph orders:app daily_orders --format text",
    ),
    "penstock rerun": (
        f"penstock rerun {ID}",
        "penstock rerun --state failed --task send_receipt --dry-run",
        "penstock rerun --state failed --task send_receipt --yes",
        "penstock rerun --state failed --workflow daily_orders",
    ),
    "penstock cancel": (
        f"penstock cancel {ID} --reason 'sent by hand'",
        "penstock cancel --state ready --queue mail --reason 'wrong template'",
    ),
    "penstock dismiss": (
        f"penstock dismiss {ID}",
        "penstock dismiss --state failed --task send_receipt --dry-run",
        "penstock dismiss --state failed --workflow daily_orders --yes",
    ),
    "penstock pause": (
        "penstock pause mail",
        f"penstock pause {ID}",
    ),
    "penstock resume": (
        "penstock resume mail",
        f"penstock resume {ID}",
    ),
    "penstock workers": ("penstock workers",),
    "penstock status": (
        "penstock status",
        "penstock status --watch",
        "penstock status --database sqlite:///orders.db --json",
    ),
    "penstock metrics": (
        "penstock metrics",
        "penstock metrics --port 9107",
    ),
    "penstock verify": (
        "penstock verify",
        "penstock verify --limit 10 --json",
    ),
    "penstock doctor": (
        "penstock doctor",
        "penstock doctor orders:app",
        "penstock doctor --json",
    ),
    "penstock bench": (
        "penstock bench",
        "penstock bench --database postgresql://localhost/app",
    ),
    "penstock admin cleanup": (
        "penstock admin cleanup --older-than 30d --dry-run",
        "penstock admin cleanup",
    ),
    "penstock admin cleanup-events": (
        "penstock admin cleanup-events --older-than 90d --dry-run",
        "penstock admin cleanup-events",
    ),
    "penstock admin migrate": ("penstock admin migrate --database postgresql://localhost/app",),
    "penstock admin sql": ("penstock admin sql --schema tenant_a",),
}


# For the lists of commands, where a first sentence that is too long would be cut.
_SUMMARIES: Mapping[str, str] = {
    "penstock demo": "Show what it does, in a minute.",
    "penstock enqueue": "Ask for one execution of a task.",
    "penstock show": "Show all that is known of one execution, or of a run.",
    "penstock history": "Tell what has happened to one execution, or to a run.",
    "penstock why": "Say why something does not run, and what to do about it.",
    "penstock graph": "Draw a workflow.",
    "penstock cancel": "End what has not begun; ask what runs to stop.",
    "penstock dismiss": "Remove what failed and will not be rerun.",
    "penstock pause": "Stop handing out the tasks of a queue, or of a run.",
    "penstock resume": "Hand out the tasks of a paused queue, or run, again.",
    "penstock status": "Count what there is; show the queues and the workers.",
    "penstock doctor": "Look for what goes wrong in production.",
    "penstock verify": "Check every execution against its history.",
    "penstock admin cleanup": "Remove executions that ended long ago.",
    "penstock admin cleanup-events": "Remove the histories of such executions.",
    "penstock admin sql": "Print the SQL that makes the tables.",
}


def show_examples(group: click.Group, typed: str = "penstock") -> None:
    """Let `--help` of every command below `group` end with its examples."""
    for name, command in group.commands.items():
        path = f"{typed} {name}"
        command.short_help = _SUMMARIES.get(path)
        if isinstance(command, click.Group):
            show_examples(command, path)
        elif path in EXAMPLES:
            # The sign in front keeps click from joining the lines.
            command.epilog = "\n".join(("\b", "Examples:", *(f"  {one}" for one in EXAMPLES[path])))
