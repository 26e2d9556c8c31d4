"""Retention by hand: admin cleanup and admin cleanup-events."""

import time
from datetime import timedelta

import click

from penstock.cli.bulk import telling_how_far
from penstock.cli.options import Command, DatabaseOptions, database_options
from penstock.cli.progress import progress
from penstock.engine.retention import Sweep, sweep_all
from penstock.model.durations import format_duration, parse_duration


def _cleaning(command: Command) -> Command:
    older_than = click.option(
        "--older-than",
        metavar="DURATION",
        help="How long ago it must have ended, as in 30d. Otherwise the settings say so.",
    )
    dry_run = click.option("--dry-run", is_flag=True, help="Count, and remove nothing.")
    return older_than(dry_run(database_options(command)))


@click.command
@_cleaning
def cleanup(*, database: DatabaseOptions, older_than: str | None, dry_run: bool) -> None:
    """Remove executions that ended well or were cancelled long ago.

    Completed, skipped and cancelled ones go; failed ones stay until someone decides. Their
    events stay for as long as `cleanup-events` leaves them. Workers do the same by themselves
    about once an hour. It works in small batches with rests between them, so that
    workers go on; it can be interrupted and repeated.
    """
    days = database.settings().cleanup.completed_after_days
    age = timedelta(days=days) if older_than is None else parse_duration(older_than)
    with database.opened() as store:
        _clean(store.sweep, age, what="executions", dry_run=dry_run)


@click.command("cleanup-events")
@_cleaning
def cleanup_events(*, database: DatabaseOptions, older_than: str | None, dry_run: bool) -> None:
    """Remove the events of executions that ended well or were cancelled long ago.

    A history goes whole, whether its execution is still there or not. Those of live and failed
    executions stay, however old they are. Workers do the same by themselves about once an hour.
    """
    days = database.settings().execution_events.retention_days
    age = timedelta(days=days) if older_than is None else parse_duration(older_than)
    with database.opened() as store:
        _clean(store.sweep_events, age, what="events of executions", dry_run=dry_run)


def _clean(sweep: Sweep, age: timedelta, *, what: str, dry_run: bool) -> None:
    total = sum(sweep_all(sweep, age, rest=lambda _: False, dry_run=True))
    if dry_run:
        click.echo(f"{total} {what} that ended more than {format_duration(age)} ago would go.")
        return
    removed = 0
    with (
        telling_how_far(lambda: removed, total),
        progress(total, doing=f"removing {what}") as tell,
    ):
        for batch in sweep_all(sweep, age, rest=time.sleep):
            removed += batch
            tell(removed)
    click.echo(f"Removed {removed} {what} that ended more than {format_duration(age)} ago.")
