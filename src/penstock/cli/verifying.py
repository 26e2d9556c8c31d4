"""verify: every execution against its history, on a system that goes on working."""

import sys

import click
import msgspec

from penstock.cli.options import DatabaseOptions, database_options, json_option
from penstock.cli.progress import progress
from penstock.cli.shapes import Shape, print_json
from penstock.cli.tables import Cell, print_line, printable
from penstock.engine.verifying import Verified, verify
from penstock.model.telling import count
from penstock.model.verifying import Finding
from penstock.store.contract import Store

DEFAULT_LIMIT = 1000


class _Tally(msgspec.Struct):
    """What has been verified so far, and what was found."""

    limit: int
    executions: int = 0
    remains: int = 0
    events: int = 0
    runs: int = 0
    findings: list[Finding] = msgspec.field(default_factory=list)
    complete: bool = False

    def add(self, stretch: Verified) -> None:
        self.executions += stretch.executions
        self.remains += stretch.remains
        self.events += stretch.events
        self.runs += stretch.runs
        self.findings += stretch.findings[: self.limit - len(self.findings)]

    @property
    def is_full(self) -> bool:
        return len(self.findings) >= self.limit

    def shape(self) -> Shape:
        return {
            "executions": self.executions,
            "runs": self.runs,
            "removed": self.remains,
            "events": self.events,
            "complete": self.complete,
            "findings": [
                {
                    "code": finding.code,
                    "execution_id": finding.execution_id,
                    "wrong": finding.wrong,
                    "remedy": finding.remedy,
                }
                for finding in self.findings
            ],
        }


@click.command("verify")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=DEFAULT_LIMIT,
    show_default=True,
    metavar="N",
    help="Stop after so many findings.",
)
@json_option
@database_options
def verify_(*, database: DatabaseOptions, limit: int, as_json: bool) -> None:
    """Check every execution against its history, also while workers run.

    Recomputes each state and counter from the events, and checks that what is ready is in the
    outbox, that nobody had a task while somebody else had it, that every further attempt is
    explained, and that runs of workflows stand where their tasks and rules have led them. Reads
    a thousand executions at a time and changes nothing; what looks wrong is looked at twice.
    Exits with 1 if anything is wrong.
    """
    tally = _Tally(limit)
    with database.opened() as store:
        _verify(store, tally)
    if as_json:
        print_json(tally.shape())
    else:
        _print(tally)
    if tally.findings:
        sys.exit(1)


def _verify(store: Store, tally: _Tally) -> None:
    with progress(sum(store.counts().values()), doing="verifying executions") as tell:
        for stretch in verify(store):
            tally.add(stretch)
            if tally.is_full:
                return
            tell(tally.executions)
    tally.complete = True


def _print(tally: _Tally) -> None:
    for finding in tally.findings:
        print_line(
            [
                Cell(finding.execution_id),
                Cell(f"  {finding.code}: ", "bold red"),
                Cell(printable(finding.wrong)),
            ]
        )
        print_line([Cell(f"    {printable(finding.remedy)}", "dim")])
    runs = f", {count(tally.runs, 'run')}" if tally.runs else ""
    executions = count(tally.executions, "execution")
    looked_at = f"{executions}{runs} and {count(tally.events, 'event')}"
    if tally.remains:
        looked_at += f", {tally.remains} of the histories of removed executions"
    if not tally.findings:
        print_line([Cell(f"Nothing is wrong: verified {looked_at}.", "green")])
        return
    click.echo(f"Verified {looked_at}: {count(len(tally.findings), 'finding')}.")
    if not tally.complete:
        click.echo(
            f"It stopped after {tally.limit}, and there may be more; --limit goes on for longer.",
            err=True,
        )
