"""Workers as real processes that a test can kill, stop and continue."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 20.0


@dataclass
class WorkerProcess:
    """One worker in a process of its own."""

    popen: subprocess.Popen[bytes]
    log_file: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def logged(self, text: str) -> int:
        """How many lines of its log hold this text."""
        return sum(text in line for line in self.log().splitlines())

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def kill(self) -> None:
        """End it without a last word, and wait until it is gone."""
        self.popen.kill()
        self.wait()

    def stop(self) -> None:
        """Let it stand still, with all its threads: it will not know how long."""
        self.signal(signal.SIGSTOP)

    def proceed(self) -> None:
        """Let it go on where it was stopped."""
        self.signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to stop in good order, as a service manager does."""
        self.signal(signal.SIGTERM)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait until it has ended; return its exit status, negative for a signal."""
        status = self.popen.wait(timeout)
        if self.popen.stdin is not None:
            self.popen.stdin.close()
        return status

    def wait_until_stopped(self, timeout: float = PATIENCE) -> None:
        """Wait until it stands still: a fault may stop it from within."""
        pause, waited = threading.Event(), 0.0
        while _stat(self.pid)[:1] != ["T"]:
            if waited > timeout or not self.alive:
                raise TimeoutError(f"process {self.pid} does not stand still")  # noqa: TRY003
            pause.wait(0.01)
            waited += 0.01

    def children(self) -> list[int]:
        return [pid for pid in _processes() if _parent_of(pid) == self.pid]

    def signal_children(self, number: int) -> None:
        for pid in self.children():
            os.kill(pid, number)


def start_worker(
    target: str,
    *,
    log_file: Path,
    options: Mapping[str, object] | None = None,
    faults: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> WorkerProcess:
    """Start a worker of the App that `target` names ("orders:app"); return at once.

    `options` are those of `app.run_worker`, as far as JSON can carry them; `faults` are those of
    `Faults.described`. The process ends when this one does.
    """
    given = json.dumps({"options": dict(options or {}), "faults": dict(faults or {})})
    with log_file.open("ab") as log:
        popen = subprocess.Popen(  # noqa: S603 - the caller's own App
            [sys.executable, "-m", "penstock.testing", target, given],
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,  # never written to: it closes when we end
            stdout=log,
            stderr=log,
        )
    return WorkerProcess(popen, log_file)


@contextlib.contextmanager
def worker_process(
    target: str,
    *,
    log_file: Path,
    options: Mapping[str, object] | None = None,
    faults: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[WorkerProcess]:
    """Do the same for a block, after which the process is gone."""
    process = start_worker(
        target, log_file=log_file, options=options, faults=faults, environment=environment
    )
    try:
        yield process
    finally:
        process.kill()


def is_gone(pid: int) -> bool:
    """True when no process has this pid any more, or only its zombie."""
    return _stat(pid)[:1] in ([], ["Z"])


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _parent_of(pid: int) -> int | None:
    found = _stat(pid)
    return int(found[1]) if found else None


def _stat(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        # The command's name stands in parentheses and may itself contain any sign.
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return []
