"""The matrix as a table of Markdown, and where it stands in the documentation."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.faults.matrix import Row

ROOT = Path(__file__).parents[2]  # not by an import of ours: pytest wants to be the first
PAGE = ROOT / "docs" / "explanation" / "reliability.md"
BEGIN = "<!-- matrix: written by `make matrix` -->\n"
END = "<!-- matrix: end -->"
HEAD = "| fault | how it is brought about | what must hold | result |\n|---|---|---|---|\n"

GREEN = re.compile(r"holds on (SQLite|PostgreSQL)( and PostgreSQL)?")
NOT_RUN = "not run: "


def line(row: Row, result: str) -> str:
    return f"| {row.fault} | {row.injected} | {row.expected} | {result} |\n"


def is_accounted_for(result: str) -> bool:
    """Whether a result is green, or names what the machine lacks."""
    parts = result.split("; ")
    return all(GREEN.fullmatch(part) or part.startswith(NOT_RUN) for part in parts)


def written(page: str, lines: Iterable[str]) -> str:
    """Return the page with this table instead of the one that it has."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{HEAD}{''.join(lines)}{END}{after}"


def cells(page: str) -> list[Sequence[str]]:
    """Return the rows of the table, cell by cell."""
    table = page.partition(BEGIN)[2].partition(END)[0].removeprefix(HEAD)
    return [[cell.strip() for cell in row.strip("| \n").split(" | ")] for row in table.splitlines()]
