"""Every metric, declared once: name, kind, labels and meaning.

What workers and `penstock metrics` expose is made from these declarations, and so is the
reference: `python -m penstock.integrations.declared docs/reference/metrics.md` brings that
page up to date.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

BEGIN = "<!-- begin: written from the declaration of the metrics -->"
END = "<!-- end: written from the declaration of the metrics -->"

Kind = Literal["counter", "gauge", "histogram"]

# One of them is 30 s, where the alert on slow tasks draws its line.
SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class Metric(msgspec.Struct, frozen=True):
    """One metric: a counter's name ends in `_total` where it is exposed."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def exposed(self) -> str:
        return f"{self.name}_total" if self.kind == "counter" else self.name


# --- what a worker knows --------------------------------------------------------------------

PROCESSED = Metric(
    "penstock_task_processed",
    "counter",
    "Attempts whose outcome the database has accepted: completed, failed, retry_scheduled, "
    "deferred, suspended, released or cancelled.",
    ("task", "outcome"),
)
DURATION = Metric(
    "penstock_task_duration_seconds",
    "histogram",
    "How long attempts worked; time that they were deferred is left out.",
    ("task",),
)
WAIT = Metric(
    "penstock_task_wait_seconds",
    "histogram",
    "How long attempts waited from when they were due until they began. Reruns, recovered work "
    "and executions with a serial are left out: when those could have begun is not known.",
    ("queue",),
)
CLAIM_POLLS = Metric(
    "penstock_worker_claim_polls", "counter", "How often the database has answered a claim."
)
CLAIMED = Metric("penstock_worker_claimed", "counter", "Executions that were handed to the worker.")
STORE_ERRORS = Metric(
    "penstock_store_errors",
    "counter",
    "Questions that the database left without an answer, by what the worker was doing.",
    ("operation",),
)
LEASES_LOST = Metric(
    "penstock_leases_lost",
    "counter",
    "Outcomes that were refused because the execution went to another worker meanwhile.",
)
RECOVERIES = Metric(
    "penstock_recoveries",
    "counter",
    "Executions that this worker took from dead ones, by the state that this left them in: "
    "ready, failed at their last crash, or cancelled where that had been asked for.",
    ("state",),
)
SLOTS = Metric("penstock_worker_slots", "gauge", "How many tasks may run at a time.")
SLOTS_BUSY = Metric("penstock_worker_slots_busy", "gauge", "Slots that are taken.")
RUNNING_HERE = Metric(
    "penstock_worker_running", "gauge", "Attempts that have begun here, deferred ones too."
)
IN_STOCK = Metric("penstock_worker_in_stock", "gauge", "Claimed, and waiting here for a slot.")
UNSETTLED = Metric("penstock_worker_unsettled", "gauge", "Ended here, and not in the database yet.")
RUNAWAYS = Metric(
    "penstock_worker_runaway_threads",
    "gauge",
    "Threads that went on after the timeout of their task; they cannot be stopped.",
)
SINCE_POLL = Metric(
    "penstock_worker_poll_age_seconds",
    "gauge",
    "Seconds since the database last answered a claim, or since there was no room to ask for.",
)

# --- what the database knows ----------------------------------------------------------------

DATABASE_UP = Metric("penstock_database_up", "gauge", "1 if the database answered, 0 if not.")
READ_SECONDS = Metric(
    "penstock_database_read_seconds", "gauge", "How long it took the database to say all this."
)
PENDING = Metric("penstock_tasks_pending", "gauge", "Ready executions.", ("queue",))
OLDEST_READY = Metric(
    "penstock_tasks_oldest_ready_seconds",
    "gauge",
    "How long the execution at the oldest place of the queue has been ready; 0 without one.",
    ("queue",),
)
PAUSED = Metric("penstock_queue_paused", "gauge", "1 for a queue that is paused.", ("queue",))
SCHEDULED = Metric("penstock_tasks_scheduled", "gauge", "Executions whose time has not come.")
RUNNING = Metric("penstock_tasks_running", "gauge", "Executions that a worker has, and works on.")
DEFERRED = Metric("penstock_tasks_deferred", "gauge", "Running ones that wait without a slot.")
FAILED = Metric("penstock_tasks_failed", "gauge", "Failed executions that nobody has rerun.")
WORKERS = Metric("penstock_workers", "gauge", "Workers that were heard of within two leases.")
SILENT = Metric(
    "penstock_workers_silent", "gauge", "Workers that were not, and are not declared dead yet."
)
OLDEST_TRANSACTION = Metric(
    "penstock_oldest_transaction_seconds",
    "gauge",
    "Age of the oldest open transaction in the database (PostgreSQL only); of other roles' "
    "transactions only a member of pg_monitor sees it.",
)

OF_A_WORKER = (
    PROCESSED, DURATION, WAIT, CLAIM_POLLS, CLAIMED, STORE_ERRORS, LEASES_LOST, RECOVERIES,
    SLOTS, SLOTS_BUSY, RUNNING_HERE, IN_STOCK, UNSETTLED, RUNAWAYS, SINCE_POLL,
)  # fmt: skip
OF_A_DATABASE = (
    DATABASE_UP, READ_SECONDS, PENDING, OLDEST_READY, PAUSED, SCHEDULED, RUNNING, DEFERRED,
    FAILED, WORKERS, SILENT, OLDEST_TRANSACTION,
)  # fmt: skip


def as_markdown() -> str:
    """Return a table of what workers expose, and one of what `penstock metrics` exposes."""
    sections = {
        "From every worker: `penstock worker … --metrics-port`": OF_A_WORKER,
        "From the database: `penstock metrics`": OF_A_DATABASE,
    }
    lines: list[str] = []
    for title, metrics in sections.items():
        lines += [f"## {title}", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
        lines += [*_rows(metrics), ""]
    return "\n".join(lines).rstrip()


def _rows(metrics: tuple[Metric, ...]) -> Iterator[str]:
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.exposed}` | {metric.kind} | {labels} | {metric.meaning} |"


def with_reference(page: str) -> str:
    """Return `page` with the part between the two marks written anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{as_markdown()}\n\n{END}{after}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(with_reference(target.read_text(encoding="utf-8")), encoding="utf-8")
