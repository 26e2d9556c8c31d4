"""Runs what a page of the documentation shows, in order, as a reader would who follows it.

- A `python` block runs in one namespace for the whole page. What it prints must be what a `text`
  block right below it shows.
- A `console` block runs each line that begins with `$`; the lines below it must be its output.
- A block of any kind whose first line is a comment with a file's name is saved under that name.
- `<!-- preamble … -->` and `<!-- check … -->` hide Python that the reader takes for granted, and
  Python that holds the page to its word.

In what is shown, `…` stands for anything, and spaces are not counted.

    python -m tests.docs.blocks docs/tutorials/first-task.md
"""

import io
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXAMPLE_URL = re.compile(r"(postgresql(?:\+\w+)?)://localhost/shop")

_BLOCK = re.compile(
    r"^```(?P<kind>[a-z]+)\n(?P<shown>.*?)^```$"
    r"|^<!-- (?P<hidden>preamble|check)\n(?P<code>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
_FILE_NAME = re.compile(r"# (?P<name>[\w./-]+\.(?:py|toml))(?=[:\s]|$)")


@dataclass(frozen=True)
class Block:
    kind: str  # the language, or "preamble" or "check"
    text: str
    line: int  # the first line of its text on the page

    @property
    def file_name(self) -> str | None:
        named = _FILE_NAME.match(self.text)
        return named["name"] if named else None


class Disagreement(AssertionError):
    """The page shows something else than what happens."""

    def __init__(self, page: str, line: int, shown: str, happened: str) -> None:
        super().__init__(f"{page}:{line} shows\n{shown}\nbut this happens:\n{happened}")


def blocks_of(text: str) -> Iterator[Block]:
    """Every block of a page, in order, hidden ones too."""
    for found in _BLOCK.finditer(text):
        kind = found["kind"] or found["hidden"]
        body = found["shown"] if found["kind"] else found["code"]
        start = found.start("shown") if found["kind"] else found.start("code")
        yield Block(kind, body, text.count("\n", 0, start) + 1)


def run_page(page: str, text: str, *, postgres: str | None = None) -> int:
    """Run all blocks of a page in the current directory; return how many ran.

    `postgres` is the URL of a database that takes the place of the one that pages name.
    """
    if postgres is not None:
        rest = postgres.partition("://")[2]
        text = EXAMPLE_URL.sub(lambda found: f"{found[1]}://{rest}", text)
    namespace: dict[str, Any] = {"__name__": "page"}
    printed = ""
    ran = 0
    for block in blocks_of(text):
        if block.file_name is not None:
            Path(block.file_name).write_text(block.text)
        elif block.kind in {"python", "preamble", "check"}:
            printed = _run_python(page, block, namespace)
        elif block.kind == "console":
            _run_console(page, block)
        elif block.kind == "text" and printed:
            _compare(page, block.line, block.text, printed)
            printed = ""
            continue
        else:
            continue
        ran += 1
    return ran


def _run_python(page: str, block: Block, namespace: dict[str, Any]) -> str:
    # As many empty lines before it as the page has: a traceback then leads to the page.
    source = "\n" * (block.line - 1) + block.text
    with redirect_stdout(io.StringIO()) as output:
        exec(compile(source, page, "exec"), namespace)  # noqa: S102 - our own pages
    return output.getvalue()


def _run_console(page: str, block: Block) -> None:
    for command in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, shown = command.partition("\n")
        finished = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
        if finished.returncode:
            happened = finished.stdout + finished.stderr
            raise Disagreement(page, block.line, f"$ {line}", happened)
        if shown.strip():
            _compare(page, block.line, shown, finished.stdout)


def _compare(page: str, line: int, shown: str, happened: str) -> None:
    parts = [r"\s+".join(map(re.escape, part.split())) for part in shown.split("…")]
    if not re.fullmatch(r"\s*.*\s*".join(parts), " ".join(happened.split()), re.DOTALL):
        raise Disagreement(page, line, shown, happened)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    run_page(str(path), path.read_text(), postgres=next(iter(sys.argv[2:]), None))
