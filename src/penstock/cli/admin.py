"""Commands for whoever looks after the database: admin migrate, sql, cleanup, cleanup-events."""

import click

from penstock.cli.cleaning import cleanup, cleanup_events
from penstock.cli.options import DatabaseOptions, database_options


@click.group
def admin() -> None:
    """Look after the tables."""


admin.add_command(cleanup)
admin.add_command(cleanup_events)


@admin.command
@database_options
def migrate(*, database: DatabaseOptions) -> None:
    """Bring the tables to this version. Workers of the version before go on meanwhile."""
    with database.opened_to_migrate() as store:
        done = store.migrate()
        store.check_schema()
    if done:
        click.echo(f"Ran migration {', '.join(str(version) for version in done)}.")
    else:
        click.echo("Nothing to do: the tables are those of this version.")


@admin.command
@database_options
def sql(*, database: DatabaseOptions) -> None:
    """Print the SQL that makes the tables, for someone else to run; touch no database.

    Run as a whole on a database without them, it leaves what `admin migrate` would leave.
    """
    # Only here: what reads files of the package takes its time to load, for all other commands too.
    from penstock.cli.sql_script import postgres_script, sqlite_script  # noqa: PLC0415

    settings = database.settings().database
    if settings.url.startswith("sqlite:"):
        script = sqlite_script()
    else:
        script = postgres_script(settings.schema)
    click.echo("\n".join(script))
