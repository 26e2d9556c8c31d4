"""What one would type: examples for `--help` and for the reference, a few for each command."""

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


def show_examples(group: click.Group, typed: str = "penstock") -> None:
    """Let `--help` of every command below `group` end with its examples."""
    for name, command in group.commands.items():
        path = f"{typed} {name}"
        if isinstance(command, click.Group):
            show_examples(command, path)
        elif path in EXAMPLES:
            # The sign in front keeps click from joining the lines.
            command.epilog = "\n".join(("\b", "Examples:", *(f"  {one}" for one in EXAMPLES[path])))
