"""Runs the page that shows every command, and writes down what each of them says.

- A block whose first line is a comment with a file's name is saved under that name.
- A `console` block runs each line that begins with `$`, in bash; what it says, on standard output
  and on standard error, stands below it. One that ends with `&` goes on behind the page's back.
- `<!-- sqlite -->` or `<!-- postgres -->` right above a block: what differs by nature.
- `<!-- once COMMAND -->` waits until the command succeeds: another process has to get there.
"""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.settling import Words

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands-at-work.md"
WRITE = os.environ.get("WRITE_PAGES") == "1"  # what has been said becomes what the page shows
PATIENCE = 60.0

_PART = re.compile(
    r"(?:^<!-- (?P<only>sqlite|postgres) -->\n)?^```(?P<kind>[a-z]+)\n(?P<text>.*?)^```$"
    r"|^<!-- once (?P<once>[^\n]*) -->$",
    re.MULTILINE | re.DOTALL,
)
_FILE_NAME = re.compile(r"# (?P<name>[\w.]+)\n")


class CommandFailed(AssertionError):
    """A command of the page ended with another exit status than 0."""

    def __init__(self, command: str, status: int, said: str) -> None:
        super().__init__(f"$ {command}\nended with {status} and said\n{said}")


@dataclass
class Tour:
    """One reader who types all that the page shows, on one database."""

    database: str  # sqlite or postgres
    directory: Path
    settings: str  # what penstock.toml says
    words: Words
    _behind: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def followed(self, page: str) -> str:
        """Return the page with what the commands have really said."""
        try:
            return _PART.sub(self._part, page)
        finally:
            for process in self._behind:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(PATIENCE)

    def _part(self, part: re.Match[str]) -> str:
        if part["once"]:
            self._wait_for(part["once"])
        elif part["only"] not in {None, self.database}:
            pass
        elif named := _FILE_NAME.match(part["text"]):
            told = self.settings if named["name"] == "penstock.toml" else part["text"]
            (self.directory / named["name"]).write_text(told, "utf-8")
        elif part["kind"] == "console":
            return part[0].replace(part["text"], self._console(part["text"]))
        return part[0]

    def _console(self, text: str) -> str:
        typed = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
        return "".join(f"$ {command}\n{self._said(command)}" for command in typed)

    def _said(self, command: str) -> str:
        if command.endswith("&"):
            typed = ["/bin/bash", "-c", f"exec {command.rstrip('& ')}"]
            self._behind.append(
                subprocess.Popen(
                    typed,
                    cwd=self.directory,
                    env=_environment(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
            return ""
        finished = self._run(command)
        said = self.words.settled(finished.stdout)
        if finished.returncode:
            raise CommandFailed(command, finished.returncode, said)
        return said

    def _wait_for(self, command: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while (finished := self._run(command)).returncode:
            if time.monotonic() > deadline:
                raise CommandFailed(command, finished.returncode, finished.stdout)

    def _run(self, command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["/bin/bash", "-c", self.words.real(command)],
            cwd=self.directory,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE,
        )


def check(tour: Tour) -> None:
    """Follow the page, and expect it to show what has been said; or let it show that."""
    page = PAGE.read_text("utf-8")
    followed = tour.followed(page)
    if WRITE:
        if tour.database == "sqlite":
            page = followed
        else:
            page = with_parts_of(followed, page, database=tour.database)
        PAGE.write_text(page, "utf-8")
    assert followed == page, "if it should be so: WRITE_PAGES=1 pytest tests/docs/test_commands*.py"


def with_parts_of(followed: str, page: str, *, database: str) -> str:
    """Return the page with what another one shows of this database alone."""
    new = iter(_PART.findall(followed))

    def chosen(part: re.Match[str]) -> str:
        _, _, text, _ = next(new)
        return part[0].replace(part["text"], text) if part["only"] == database else part[0]

    return _PART.sub(chosen, page)


def _environment() -> dict[str, str]:
    """Nobody's settings, a window of no width, and the programs of this Python."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PENSTOCK_") and name != "COLUMNS"
    }
    programs = Path(sys.executable).parent
    return {**kept, "PATH": f"{programs}{os.pathsep}{kept['PATH']}", "TZ": "UTC"}
