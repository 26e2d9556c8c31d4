"""doctor: the production checklist, asked of a running system."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import click

from penstock.app import App
from penstock.cli.checks import check_retention, check_settings, check_tasks
from penstock.cli.living import silent_among
from penstock.cli.loading import load_app
from penstock.cli.options import DatabaseOptions, database_options, json_option
from penstock.cli.scraping import check_metrics
from penstock.cli.shapes import Shape, print_json
from penstock.cli.tables import Cell, print_line, printable
from penstock.model.health import UNREADABLE, Finding, Level
from penstock.model.telling import count
from penstock.settings import Settings

_STYLES = {Level.OK: "green", Level.WARNING: "bold yellow", Level.PROBLEM: "bold red"}


@click.command
@click.argument("target", metavar="[MODULE:APP]", required=False)
@click.option(
    "--import", "modules", metavar="MODULE", multiple=True, help="A module with more tasks."
)
@json_option
@database_options
def doctor(
    *, database: DatabaseOptions, target: str | None, modules: tuple[str, ...], as_json: bool
) -> None:
    """Look for what goes wrong in production, and say what to do about it.

    Asks the database about its tables, plans, sessions and open transactions, the workers about
    what they know, the settings about what they leave to luck, and with an App its tasks too.
    Changes nothing. Exits with 1 if there is a problem; a warning is not one yet.
    """
    app = None if target is None else load_app(target, modules=modules)
    if app is None:
        settings = database.settings()
    else:
        database.configure(app)
        settings = app.settings
    findings = list(_look(database, settings, app))
    if as_json:
        print_json(_shape(findings))
    else:
        _print(findings)
    if any(finding.level is Level.PROBLEM for finding in findings):
        sys.exit(1)


def _look(database: DatabaseOptions, settings: Settings, app: App | None) -> Iterator[Finding]:
    with database.opened_to_inspect(settings) as store:
        found = store.inspect(lease=settings.worker.lease)
        yield from found
        # The first answer is about the tables: without them there is nothing old in them.
        if found[0].level is Level.OK and all(one.check != UNREADABLE for one in found):
            yield from check_retention(settings, store)
            peers = store.workers()
            silent = silent_among(store, peers, lease=settings.worker.lease)
            yield check_metrics([peer for peer in peers if peer.info.id not in silent])
    yield from check_settings(settings)
    if app is not None:
        yield from check_tasks(app.tasks)


def _shape(findings: Sequence[Finding]) -> Shape:
    return {
        "problems": _by_level(findings)[Level.PROBLEM],
        "warnings": _by_level(findings)[Level.WARNING],
        "findings": [
            {
                "check": finding.check,
                "level": finding.level.value,
                "message": finding.message,
                "remedy": finding.remedy or None,
            }
            for finding in findings
        ],
    }


def _print(findings: Sequence[Finding]) -> None:
    first = max(len(level) for level in Level)
    second = max(len(finding.check) for finding in findings)
    for finding in findings:
        print_line(
            [
                Cell(f"{finding.level:<{first}}  ", _STYLES[finding.level]),
                Cell(f"{finding.check:<{second}}  ", "bold"),
                Cell(printable(finding.message)),
            ]
        )
        if finding.remedy:
            print_line([Cell(f"{'':<{first + second + 4}}{printable(finding.remedy)}", "dim")])
    found = _by_level(findings)
    click.echo()
    click.echo(
        f"{count(found[Level.PROBLEM], 'problem')}, {count(found[Level.WARNING], 'warning')}, "
        f"{found[Level.OK]} ok."
    )


def _by_level(findings: Sequence[Finding]) -> Counter[Level]:
    return Counter(finding.level for finding in findings)
