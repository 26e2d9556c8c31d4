import os
from pathlib import Path

import pytest

from tests.e2e.command_line import CommandLine


@pytest.fixture(autouse=True)
def nobodys_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable and no penstock.toml but those that a test makes."""
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def penstock(postgres_url: str, postgres_schema: str, tmp_path: Path) -> CommandLine:
    """The command line on a PostgreSQL schema with its tables."""
    command_line = CommandLine(tmp_path, postgres_url, postgres_schema)
    assert command_line("admin", "migrate").status == 0
    return command_line
