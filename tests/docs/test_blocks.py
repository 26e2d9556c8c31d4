"""Every page that teaches runs as it stands."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import errors, sql

from tests.docs.blocks import EXAMPLE_URL, Block, Disagreement, blocks_of, run_page

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "docs/index.md",
        *(ROOT / "docs/tutorials").glob("*.md"),
        *(ROOT / "docs/how-to").glob("*.md"),
        *(ROOT / "docs/explanation").glob("*.md"),
    ]
)


def names_postgres(page: Path) -> bool:
    return EXAMPLE_URL.search(page.read_text()) is not None


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    """The URL of a new database: the pages use the default schema, and make tables of their own."""
    name = f"penstock_docs_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        try:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except errors.InsufficientPrivilege:
            pytest.skip("the user of this server may not create databases")
        yield urlunsplit(urlsplit(postgres_url)._replace(path=f"/{name}"))
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def follow(page: Path, directory: Path, *arguments: str) -> None:
    """Run the page in a process of its own, as its reader has one."""
    programs = Path(sys.executable).parent
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")
    }
    environment |= {
        "PATH": f"{programs}{os.pathsep}{environment['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
        "COLUMNS": "200",
    }
    finished = subprocess.run(
        [sys.executable, "-m", "tests.docs.blocks", str(page), *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.parametrize(
    "page", [page for page in PAGES if not names_postgres(page)], ids=lambda page: page.stem
)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    follow(page, tmp_path)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if names_postgres(page)], ids=lambda page: page.stem
)
def test_a_page_on_postgres_does_what_it_shows(page: Path, tmp_path: Path, database: str) -> None:
    follow(page, tmp_path, database)


def test_there_are_pages_to_follow_and_they_have_something_to_run() -> None:
    assert len(PAGES) >= 2
    teaching = [page for page in PAGES if page.parent.name != "explanation"]
    assert len(teaching) > len(PAGES) / 2
    for page in teaching:
        assert any(block.kind == "python" for block in blocks_of(page.read_text())), page


# --- the runner itself ------------------------------------------------------------------------

EXAMPLE = """
Some text.

<!-- preamble
greeting = "hello"
-->

```python
print(greeting, 42)
```

```text
hello …
```

```sql
SELECT nothing;
```

<!-- check
assert greeting == "hello"
-->
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_blocks_are_found_in_order_with_their_lines() -> None:
    assert list(blocks_of(EXAMPLE)) == [
        Block("preamble", 'greeting = "hello"\n', 5),
        Block("python", "print(greeting, 42)\n", 9),
        Block("text", "hello …\n", 13),
        Block("sql", "SELECT nothing;\n", 17),
        Block("check", 'assert greeting == "hello"\n', 21),
    ]


def test_python_runs_hidden_or_not_and_nothing_else_does(elsewhere: Path) -> None:
    assert run_page("page.md", EXAMPLE) == 3


def test_a_page_that_shows_what_does_not_happen_is_found_out(elsewhere: Path) -> None:
    with pytest.raises(Disagreement, match=r"page\.md:13 shows\ngoodbye"):
        run_page("page.md", EXAMPLE.replace("hello …", "goodbye …"))
    with pytest.raises(Disagreement, match=r"\$ exit 3"):
        run_page("page.md", "```console\n$ exit 3\n```\n")
    with pytest.raises(Disagreement, match="but this happens:\none"):
        run_page("page.md", "```console\n$ echo one\ntwo\n```\n")


def test_a_block_that_names_a_file_becomes_that_file(elsewhere: Path) -> None:
    run_page("page.md", "```python\n# orders.py\nnumber = 42\n```\n")
    assert (elsewhere / "orders.py").read_text() == "# orders.py\nnumber = 42\n"
    run_page("page.md", "```console\n$ cat orders.py\n# orders.py\nnumber = …\n```\n")


def test_the_example_database_gives_way_to_a_real_one(elsewhere: Path) -> None:
    page = '```python\nprint("postgresql+asyncpg://localhost/shop")\n```\n\n'
    expected = "```text\npostgresql+asyncpg://me@there:5433/mine\n```\n"
    assert run_page("page.md", page + expected, postgres="postgresql://me@there:5433/mine") == 1
