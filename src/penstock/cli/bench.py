"""`penstock bench`: what this database can carry, measured on tables that are gone afterwards."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import click

from penstock.app import App
from penstock.cli.measuring import Figures, advice, measure
from penstock.cli.options import (
    DatabaseOptions,
    NothingInMemory,
    RoleForbidden,
    database_options,
    json_option,
)
from penstock.cli.progress import progress
from penstock.cli.shapes import Shape, print_json
from penstock.cli.stopping import told_to_stop, undisturbed
from penstock.cli.tables import Cell, print_line
from penstock.errors import StoreError, first_line
from penstock.settings import DatabaseSettings, hide_password
from penstock.store.opening import sqlite_path, sqlite_url

WHOLE = 100


class MayNotMakeASchema(StoreError):
    """A PostgreSQL role that could not give the benchmark a place of its own."""

    def __init__(self, url: str, *, because: BaseException) -> None:
        self.url = url
        super().__init__(
            f"`penstock bench` makes a schema of its own and drops it afterwards, which the role "
            f"that {url} names may not: {first_line(because)}. Use a role that may, or let the "
            "owner of the database GRANT CREATE ON DATABASE to this one."
        )


@click.command
@json_option
@database_options
def bench(*, database: DatabaseOptions, as_json: bool) -> None:
    """Measure what a database can carry, and say what follows from it.

    Works beside your tables, never in them: in a PostgreSQL schema, or a SQLite file in the same
    directory, of its own, which is removed afterwards (after kill -9, look for penstock_bench_*).
    Takes less than a minute: a worker of this process runs tasks that do nothing. Your workers are
    slowed down meanwhile.
    """
    try:
        with (
            told_to_stop() as check,
            _driver_unheard(),
            _place_of_its_own(database) as (own, where),
            closing(App(own.url, schema=own.schema)) as app,
            closing(App(own.url, schema=own.schema)) as client,
            progress(WHOLE, doing="measuring") as move,
        ):
            begun = time.monotonic()

            def tell(done: float) -> None:
                check()
                move(int(done * (WHOLE - 1)))  # the rest is the answer

            figures = measure(app, client, tell)
            settings = app.settings.database
            seconds = time.monotonic() - begun
    except KeyboardInterrupt:
        click.echo("\nStopped. The next run begins anew.", err=True)
        sys.exit(1)
    if as_json:
        print_json(_shape(figures, where, settings))
    else:
        _print(figures, where, seconds, settings)


@contextmanager
def _place_of_its_own(database: DatabaseOptions) -> Iterator[tuple[DatabaseOptions, str]]:
    """Make empty tables where the user's database is, and say where that is."""
    url = database.settings().database.url
    name = f"penstock_bench_{os.urandom(4).hex()}"
    with ExitStack() as stack:
        if url.startswith("sqlite:"):
            path = sqlite_path(url)
            if path == ":memory:":
                raise NothingInMemory
            # Beside the user's own file: another directory may be another disk.
            file = Path(path).resolve().parent / f"{name}.db"
            where = f"a SQLite file in {click.format_filename(file.parent)}"
            own = DatabaseOptions(sqlite_url(str(file)))
            stack.callback(_remove, file)
        else:
            with database.opened_to_migrate():
                pass  # says what is wrong with the URL, if anything is
            where = f"a schema in {hide_password(url)}"
            own = DatabaseOptions(url, schema=name)
            stack.callback(_dropper(url, name))
        try:
            with own.opened_to_migrate() as store:
                store.migrate()
        except RoleForbidden as error:
            raise MayNotMakeASchema(error.url, because=error.__cause__ or error) from error
        yield own, where


@contextmanager
def _driver_unheard() -> Iterator[None]:
    """Keep from the terminal what psycopg logs of a lost connection, which is told anyway."""
    import logging  # noqa: PLC0415 - only when used

    driver, nowhere = logging.getLogger("psycopg"), logging.NullHandler()
    driver.addHandler(nowhere)
    try:
        yield
    finally:
        driver.removeHandler(nowhere)


def _remove(file: Path) -> None:
    with undisturbed():
        for left in file.parent.glob(f"{file.name}*"):
            left.unlink()


def _dropper(url: str, schema: str) -> Callable[[], None]:
    """Return what drops the schema, or says that it is still there."""
    # Only here, since asyncio comes with it; and not at the end, where there may be no time for it.
    import psycopg  # noqa: PLC0415

    from penstock.testing.schemas import SchemaInUse, drop_schema  # noqa: PLC0415

    def drop() -> None:
        with undisturbed():
            try:
                drop_schema(url, schema)
            except (psycopg.Error, SchemaInUse) as error:
                why = first_line(error.__cause__ or error)
                click.echo(
                    f"The schema {schema} is left behind ({why}). To remove it: "
                    f"DROP SCHEMA {schema} CASCADE;",
                    err=True,
                )

    return drop


def _shape(figures: Figures, where: str, settings: DatabaseSettings) -> Shape:
    return {
        "where": where,
        "enqueued_one_by_one_per_second": round(figures.one_per_second, 1),
        "enqueued_at_once_per_second": round(figures.bulk_per_second, 1),
        "tasks_per_second": round(figures.drain_per_second, 1),
        "answer_ms": round(figures.answer * 1000, 2),
        "latency_ms": {
            "p50": round(figures.latency(50) * 1000, 2),
            "p95": round(figures.latency(95) * 1000, 2),
        },
        "advice": list(advice(figures, settings)),
    }


def _print(figures: Figures, where: str, seconds: float, settings: DatabaseSettings) -> None:
    half, nearly_all = (f"{figures.latency(which) * 1000:.1f} ms" for which in (50, 95))
    lines = {
        "enqueue, one transaction each": f"{figures.one_per_second:,.0f}/s",
        "enqueue, many in one": f"{figures.bulk_per_second:,.0f}/s",
        "tasks by one worker process": f"{figures.drain_per_second:,.0f}/s",
        "from the commit to the start of a task": f"{half} (one in twenty: over {nearly_all})",
        "an answer of the database": f"{figures.answer * 1000:.2f} ms",
    }
    click.echo(f"Measured in {where}, in {seconds:.0f} s.\n")
    for what, figure in lines.items():
        print_line([Cell(f"  {what:<40}"), Cell(figure, "bold")])
    _print_advice(list(advice(figures, settings)))


def _print_advice(lines: Sequence[str]) -> None:
    click.echo()
    for line in lines:
        click.echo(f"- {line}")
