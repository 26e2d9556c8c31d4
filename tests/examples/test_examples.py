"""Every example does what its page shows, by the very command that the page gives."""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import errors, sql

from tests.docs.blocks import Block, blocks_of, run_page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "examples/README.md"
COMMANDS = [block for block in blocks_of(PAGE.read_text()) if block.kind == "console"]


def command(block: Block) -> str:
    return block.text.partition("\n")[0].removeprefix("$ ")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The examples and a virtual environment, and nothing else that could help them."""
    shutil.copytree(
        ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / ".venv").symlink_to(sys.prefix)
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: command(block).rpartition("/")[2])
def test_an_example_does_what_its_page_shows(block: Block, checkout: Path) -> None:
    before = {path for path in checkout.rglob("*") if "__pycache__" not in path.parts}
    assert run_page(PAGE.name, f"```console\n{block.text}```\n") == 1
    after = {path for path in checkout.rglob("*") if "__pycache__" not in path.parts}
    assert after == before


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    """The URL of a new database: an example makes tables of its own, under plain names."""
    name = f"penstock_examples_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        try:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except errors.InsufficientPrivilege:
            pytest.skip("the user of this server may not create databases")
        yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def test_the_report_service_runs_on_postgres_too(
    checkout: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", database)
    finished = subprocess.run(
        [".venv/bin/python", "examples/report_service"], capture_output=True, text=True, check=True
    )
    assert "'state': 'completed', 'sales': 3100" in finished.stdout


def test_every_example_is_on_the_page() -> None:
    shown = " ".join(map(command, COMMANDS))
    for path in (ROOT / "examples").iterdir():
        if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__"):
            assert path.name in shown, path
