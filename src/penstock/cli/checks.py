"""What doctor thinks of the settings and of an App's tasks; nothing here asks a database."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from penstock.engine.retention import Sweep, sweep_all
from penstock.model.durations import format_duration
from penstock.model.health import Finding, ok, warning
from penstock.model.telling import some_of
from penstock.registry import AnyTask
from penstock.settings import Settings
from penstock.store.contract import Store

HEARTBEATS_PER_LEASE = 3  # two are enough to be allowed; one more survives a lost one
SHORT_PATIENCE = timedelta(minutes=1)
OVERDUE = timedelta(days=1)  # workers look every hour, and take turns


def check_settings(settings: Settings) -> Iterator[Finding]:
    heartbeat, lease = settings.worker.heartbeat, settings.worker.lease
    beats = lease / heartbeat
    if beats < HEARTBEATS_PER_LEASE:
        yield warning(
            "heartbeats",
            f"A lease of {format_duration(lease)} is {beats:.3g} heartbeats of "
            f"{format_duration(heartbeat)}: a short pause costs a living worker its tasks.",
            remedy="Set worker.lease to 5 heartbeats or so, "
            f"{format_duration(5 * heartbeat)} here.",
        )
    else:
        yield ok("heartbeats", f"A lease is {beats:.3g} heartbeats.")


def check_retention(settings: Settings, store: Store) -> Iterator[Finding]:
    """Whether workers remove what the settings say is too old."""
    executions = timedelta(days=settings.cleanup.completed_after_days)
    events = timedelta(days=settings.execution_events.retention_days)
    looks: tuple[tuple[str, Sweep, timedelta], ...] = (
        ("executions", store.sweep, executions + OVERDUE),
        ("events", store.sweep_events, events + OVERDUE),
    )
    left = [
        what
        for what, sweep, older_than in looks
        if any(sweep_all(sweep, older_than, rest=lambda _: False, dry_run=True))
    ]
    if left:
        yield warning(
            "retention",
            f"There are {' and '.join(left)} that should have been removed more than "
            f"{format_duration(OVERDUE)} ago.",
            remedy="A worker does it that runs for a minute or more. Without one, let a timer run "
            "`penstock admin cleanup` and `penstock admin cleanup-events`.",
        )
    elif events < executions:
        yield warning(
            "retention",
            f"Events are kept for {format_duration(events)} and executions for "
            f"{format_duration(executions)}: executions will be there without their history.",
            remedy="Raise execution_events.retention_days to cleanup.completed_after_days or more.",
        )
    else:
        yield ok(
            "retention",
            f"Executions that ended well go after {format_duration(executions)}, their events "
            f"after {format_duration(events)}, and none is overdue.",
        )


def check_tasks(tasks: Mapping[str, AnyTask]) -> Iterator[Finding]:
    yield _retries(tasks)
    blind = sorted(name for name, task in tasks.items() if not task.signature.takes_handle)
    if blind:
        yield ok(
            "idempotency",
            f"{len(blind)} of {len(tasks)} tasks take no handle: {some_of(blind)}.",
            hint="Every task may run twice. Where that does harm, take a TaskHandle and pass "
            "handle.execution_id on as the idempotency key, or use handle.once.",
        )
    else:
        yield ok("idempotency", "Every task takes a handle, and can use its execution_id as key.")


def _retries(tasks: Mapping[str, AnyTask]) -> Finding:
    never = sorted(name for name, task in tasks.items() if not task.options.retry.delays)
    short = sorted(
        name
        for name, task in tasks.items()
        if name not in never and sum(task.options.retry.delays, timedelta()) < SHORT_PATIENCE
    )
    told = [f"never retried: {some_of(never)}"] if never else []
    if short:
        told.append(f"given up within {format_duration(SHORT_PATIENCE)}: {some_of(short)}")
    if not told:
        return ok("retries", "Every task is retried for a minute or longer.")
    return warning(
        "retries",
        f"Tasks that are {'; '.join(told)}.",
        remedy='A restart of what a task talks to takes longer: write retry=["1m", "5m", "15m"], '
        "or leave the default. Where failing at once is what you want, all is well.",
    )
