"""The reference leaves nothing out: events, tables, and all that can be imported."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import penstock
import penstock.claiming
import penstock.errors
import penstock.testing
from penstock import App
from penstock.model.events import EventType, RunEvent
from penstock.model.runs import RUN_TRANSITIONS
from penstock.model.states import TRANSITIONS
from penstock.store.sqlite.store import SqliteStore
from penstock.testing import ManualClock
from tests.contract.test_events_written import live_through_every_run, live_through_everything

REFERENCE = Path(__file__).parents[2] / "docs/reference"


def rows_of(page: str) -> list[list[str]]:
    """Every row of every table, as its cells, without the one of the titles."""
    lines = (REFERENCE / page).read_text().splitlines()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    return [row for row in rows if row[0].startswith("`")]


# --- events ---------------------------------------------------------------------------------


def test_every_event_has_its_row_in_the_order_of_the_declaration() -> None:
    assert [row[0].strip("`") for row in rows_of("events.md")] == [*EventType, *RunEvent]


def test_a_row_says_the_state_that_the_event_leads_to() -> None:
    leads_to: dict[str, set[str]] = {}
    for (_, event), state in TRANSITIONS.items():
        leads_to.setdefault(event, set()).add(state)
    for (_, event_of_run), state_of_run in RUN_TRANSITIONS.items():
        leads_to.setdefault(event_of_run, set()).add(state_of_run)
    for name, shown, *_ in rows_of("events.md"):
        expected = leads_to[name.strip("`")]
        assert {shown} == expected or (shown == "as before" and len(expected) > 1), name


def test_a_row_names_all_data_that_its_event_was_seen_with() -> None:
    clock = ManualClock()
    store = SqliteStore(":memory:", clock=clock)
    lived = live_through_everything(store, clock) + live_through_every_run(store)
    seen: dict[str, set[str]] = {}
    for one in lived:
        for event in store.history(one):
            seen.setdefault(event.type, set()).update(event.data)
    store.close()
    assert len(seen) == len(EventType) + len(RunEvent)
    for name, _, _, data in rows_of("events.md"):
        assert seen[name.strip("`")] <= set(re.findall(r"`(\w+)`", data)), name


# --- tables ---------------------------------------------------------------------------------


def written_tables(database: str) -> dict[str, set[str]]:
    """The tables and columns that the page says a database has."""
    text = (REFERENCE / "tables.md").read_text()
    found: dict[str, set[str]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        named = re.fullmatch(r"`(\w+)`(?: \((\w+) only\))?", title)
        if named and named[2] in {None, database}:
            found[named[1]] = set(re.findall(r"^\| `(\w+)`", body, re.MULTILINE))
    return found


def test_the_page_has_every_table_and_column_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "tables.db"
    App(f"sqlite:///{path}").migrate()
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        tables = [name for (name,) in connection.execute(query)]
        there = {
            table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            for table in tables
        }
    assert written_tables("SQLite") == there


def test_the_page_has_every_table_and_column_of_postgres(
    postgres_url: str, postgres_schema: str
) -> None:
    App(postgres_url, schema=postgres_schema).migrate()
    there: dict[str, set[str]] = {}
    with psycopg.connect(postgres_url) as connection:
        query = (
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s"
        )
        for table, column in connection.execute(query, [postgres_schema]):
            there.setdefault(table, set()).add(column)
    assert written_tables("PostgreSQL") == there


# --- Python ---------------------------------------------------------------------------------


def public_names() -> list[str]:
    names = [f"penstock.{name}" for name in penstock.__all__]
    names += [f"penstock.testing.{name}" for name in penstock.testing.__all__]
    names += [f"penstock.claiming.{name}" for name in penstock.claiming.__all__]
    declared = vars(penstock.errors).values()
    names += [
        f"penstock.errors.{one.__name__}"
        for one in declared
        if isinstance(one, type) and one.__module__ == penstock.errors.__name__
    ]
    return names


@pytest.mark.parametrize("name", public_names())
def test_everything_public_is_in_the_reference(name: str) -> None:
    pages = "\n".join(path.read_text() for path in (REFERENCE / "api").glob("*.md"))
    written = set(re.findall(r"^::: (\S+)$", pages, re.MULTILINE))
    assert written & {name, f"penstock.errors.{name.rpartition('.')[2]}"}


def test_every_option_of_a_task_is_in_the_reference() -> None:
    from penstock.engine.declaring import checked_options  # noqa: PLC0415 - no part of the face

    options = {name for row in rows_of("api/tasks.md") for name in re.findall(r"`(\w+)`", row[0])}
    assert options == {"name", *(checked_options.__kwdefaults__ or ())}
