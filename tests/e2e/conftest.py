import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import App
from tests.e2e.command_line import CommandLine


@pytest.fixture(autouse=True)
def nobodys_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no penstock.toml but those that a test makes."""
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, f"sqlite:///{tmp_path}/shop.db")


@pytest.fixture
def on_postgres(postgres_url: str, postgres_schema: str, tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path, postgres_url, postgres_schema)


@pytest.fixture(
    params=["on_sqlite", pytest.param("on_postgres", marks=pytest.mark.postgres)],
    ids=["sqlite", "postgres"],
)
def new_database(request: pytest.FixtureRequest) -> CommandLine:
    """The command line on a database without tables: SQLite, then PostgreSQL."""
    command_line: CommandLine = request.getfixturevalue(request.param)
    return command_line


@pytest.fixture
def penstock(new_database: CommandLine) -> CommandLine:
    """The command line on a database with its tables."""
    assert new_database("admin", "migrate").status == 0
    return new_database


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)],
)
def flows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An App without tasks, on SQLite, then on PostgreSQL."""
    if request.param == "sqlite":
        made = App(f"sqlite:///{tmp_path}/flows.db")
    else:
        made = App(
            request.getfixturevalue("postgres_url"),
            schema=request.getfixturevalue("postgres_schema"),
            migrate=True,
        )
    yield made
    made.close()
