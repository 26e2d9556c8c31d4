"""`penstock bench`: what this database can carry, measured on tables that are gone afterwards."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import click

from penstock.app import App
from penstock.cli.measuring import Figures, advice, measure
from penstock.cli.options import DatabaseOptions, NothingInMemory, database_options, json_option
from penstock.cli.progress import progress
from penstock.cli.shapes import Shape, print_json
from penstock.cli.tables import Cell, print_line
from penstock.settings import hide_password
from penstock.store.opening import sqlite_path

WHOLE = 100


@click.command
@json_option
@database_options
def bench(*, database: DatabaseOptions, as_json: bool) -> None:
    """Measure what a database can carry, and say what follows from it.

    Works beside your tables, never in them: in a PostgreSQL schema, or a SQLite file in the same
    directory, of its own, which is removed afterwards. Takes less than a minute: a worker of this
    process runs tasks that do nothing. Your workers are slowed down meanwhile.
    """
    with _place_of_its_own(database) as (app, where), progress(WHOLE, doing="measuring") as move:
        begun = time.monotonic()
        figures = measure(app, lambda share: move(min(WHOLE - 1, int(share * WHOLE))))
        seconds = time.monotonic() - begun
    if as_json:
        print_json(_shape(figures, where))
    else:
        _print(figures, where, seconds)


@contextmanager
def _place_of_its_own(database: DatabaseOptions) -> Iterator[tuple[App, str]]:
    """Give an App on empty tables where the user's database is, and where that is."""
    settings = database.settings()
    url = settings.database.url
    name = f"penstock_bench_{os.urandom(4).hex()}"
    app = App()
    if url.startswith("sqlite:"):
        path = sqlite_path(url)
        if path == ":memory:":
            raise NothingInMemory
        # Beside the user's own file: another directory may be another disk.
        file = Path(path).resolve().parent / f"{name}.db"
        app.configure(database=f"sqlite:///{file}")
        try:
            with closing(app):
                app.migrate()
                yield app, f"a SQLite file in {file.parent}"
        finally:
            for left in file.parent.glob(f"{file.name}*"):
                left.unlink()
        return
    # Only here, since asyncio comes with it; and not at the end, where an interruption would leave
    # the schema behind.
    from penstock.testing.schemas import drop_schema  # noqa: PLC0415

    with database.opened_to_migrate():
        pass  # says what is wrong with the URL, if anything is
    app.configure(database=url, schema=name)
    try:
        with closing(app):
            app.migrate()
            yield app, f"a schema in {hide_password(url)}"
    finally:
        drop_schema(url, name)


def _shape(figures: Figures, where: str) -> Shape:
    return {
        "where": where,
        "enqueued_one_by_one_per_second": round(figures.one_per_second, 1),
        "enqueued_at_once_per_second": round(figures.bulk_per_second, 1),
        "tasks_per_second": round(figures.drain_per_second, 1),
        "latency_ms": {
            "p50": round(figures.latency(50) * 1000, 2),
            "p95": round(figures.latency(95) * 1000, 2),
        },
        "advice": list(advice(figures)),
    }


def _print(figures: Figures, where: str, seconds: float) -> None:
    half, nearly_all = (f"{figures.latency(which) * 1000:.1f} ms" for which in (50, 95))
    lines = {
        "enqueue, one transaction each": f"{figures.one_per_second:,.0f}/s",
        "enqueue, many in one": f"{figures.bulk_per_second:,.0f}/s",
        "tasks by one worker process": f"{figures.drain_per_second:,.0f}/s",
        "from the commit to the start of a task": f"{half} (one in twenty: over {nearly_all})",
    }
    click.echo(f"Measured in {where}, in {seconds:.0f} s.\n")
    for what, figure in lines.items():
        print_line([Cell(f"  {what:<40}"), Cell(figure, "bold")])
    _print_advice(list(advice(figures)))


def _print_advice(lines: Sequence[str]) -> None:
    click.echo()
    for line in lines:
        click.echo(f"- {line}")
