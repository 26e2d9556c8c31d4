"""Running `penstock` as a person would: in this process where that is enough, or in its own."""

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from penstock.cli import commands
from penstock.model.executions import NewExecution
from penstock.model.ids import new_id
from penstock.store.contract import Store
from penstock.store.opening import open_store

SHOP = """
import logging
import threading
import time
from pathlib import Path

from penstock import App

app = App()
elsewhere = 42


@app.task
def add(a: int, b: int) -> int:
    logging.getLogger("shop").info("adding %d and %d", a, b)
    return a + b


@app.task(queue="slow", retry=None)
def nap() -> None:
    Path("napping").touch()
    time.sleep(600)


@app.task
def linger() -> None:
    threading.Thread(target=time.sleep, args=[600]).start()


@app.task(retry=None)
def break_down(what: str) -> None:
    raise RuntimeError(what)
"""

ESCAPE = "\x1b"


@dataclass(frozen=True)
class Answer:
    """How a command ended, and what it said where."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever the command printed
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """`penstock` on one database, in one directory."""

    directory: Path
    url: str
    schema: str | None = None

    def __call__(self, *arguments: str) -> Answer:
        """Run a command in this process."""
        result = CliRunner().invoke(commands, [*arguments, *self.database], prog_name="penstock")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def alone(self, *arguments: str) -> Answer:
        """Run a command in a process of its own, as the shop's modules need it."""
        return run("-m", "penstock", *arguments, *self.database)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command that goes on; its output can be read."""
        return start("-m", "penstock", *arguments, *self.database)

    @property
    def database(self) -> list[str]:
        schema = [] if self.schema is None else ["--schema", self.schema]
        return ["--database", self.url, *schema]

    @contextmanager
    def store(self) -> Iterator[Store]:
        store = open_store(self.url, schema=self.schema or "penstock")
        try:
            yield store
        finally:
            store.close()

    def enqueue(self, task: str, args: str = "{}", **options: Any) -> str:  # noqa: ANN401
        """Write an execution past the command line, and return its id."""
        new = NewExecution(id=new_id(), task=task, args=args, **options)
        with self.store() as store:
            (created,) = store.create([new])
        return created.id

    def open_shop(self) -> None:
        """Write the module `shop`, with an App and its tasks."""
        (self.directory / "shop.py").write_text(SHOP, "utf-8")


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> Answer:
    finished = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **(environment or {})},
    )
    return Answer(finished.returncode, finished.stdout, finished.stderr)


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def on_terminal(*arguments: str, columns: int = 80) -> str:
    """Run a program on a terminal of this width, and return all that it showed."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # how a terminal says that nobody has its other end any more
        pass
    finally:
        os.close(ours)
    assert process.wait(60) == 0, shown.decode()
    return shown.decode().replace("\r\n", "\n")


def wait_until(is_so: Callable[[], bool], *, within: float = 30) -> None:
    """Wait for another process; there is no clock that could be moved for it."""
    deadline = time.monotonic() + within
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs: neither gone nor waiting for its parent to notice."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"
