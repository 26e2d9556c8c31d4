"""Tells a system's player what to do, and watches its workers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.installing import Installed
from benchmarks.records import Beginning, Record
from benchmarks.systems import System

PLAYERS = Path(__file__).with_name("players")
PATIENCE = 180.0
STOP_PATIENCE = 20.0


class PlayerFailed(Exception):
    """A system could not do what it was asked for."""

    def __init__(self, system: str, action: str, said: str) -> None:
        self.system, self.action = system, action
        last = said.strip()[-600:]
        super().__init__(f"{system} could not {action}: {last or 'it took too long'}")


@dataclass
class Bench:
    """One system on a database of its own, with numbers that go on from row to row."""

    system: System
    url: str
    place: Path
    installed: Installed | None = None
    used: int = 0
    records: int = 0

    # --- asking -----------------------------------------------------------------------

    def setup(self) -> None:
        self.ask("setup")

    def numbers(self, count: int) -> range:
        first, self.used = self.used, self.used + count
        return range(first, first + count)

    def ask(self, action: str, numbers: range | None = None, **more: object) -> dict[str, Any]:
        """Have the player do one thing in a process of its own; return what it measured."""
        told = {"action": action, **more}
        if numbers is not None:
            told |= {"first": numbers.start, "count": len(numbers)}
        with self._start(told, os.devnull) as process:
            return self._answer(process, action)

    def _answer(self, process: "subprocess.Popen[str]", action: str) -> dict[str, Any]:
        try:
            said, wrong = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise PlayerFailed(self.system.name, action, "") from error
        if process.returncode != 0:
            raise PlayerFailed(self.system.name, action, wrong)
        answer: dict[str, Any] = json.loads(said.strip().rpartition("\n")[2])
        return answer

    def _start(self, told: object, record: str) -> "subprocess.Popen[str]":
        program = self.installed.program if self.installed else (sys.executable,)
        return subprocess.Popen(
            [*program, str(PLAYERS / self.system.player), json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.place,
            env=os.environ
            | {
                "BENCH_URL": self.url,
                "BENCH_RECORD": record,
                "BENCH_NODE_HOME": str(self.installed.home) if self.installed else "",
                "PENSTOCK_DATABASE_URL": self.url,
            }
            | dict(self.system.environment),
        )

    # --- working ----------------------------------------------------------------------

    @contextmanager
    def workers(self, processes: int = 1) -> Iterator["Crew"]:
        """Start so many worker processes together; stop them on leaving."""
        self.records += 1
        record = Record(self.place / f"{self.system.name}.{self.records}.record")
        started = [self._start({"action": "work"}, str(record.path)) for _ in range(processes)]
        try:
            for process in started:
                assert process.stdout is not None
                if process.stdout.readline().strip() != "ready":
                    process.kill()
                    raise PlayerFailed(self.system.name, "start", process.communicate()[1])
            for process in started:
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
            crew = Crew(self, record, started)
            yield crew
            _stop(started)
            crew.ran = sorted(record.beginnings(), key=lambda one: one.at)
        finally:
            _stop(started)
            record.path.unlink(missing_ok=True)

    def left(self) -> int:
        return self.system.left(self.url)


@dataclass
class Crew:
    """The workers of one measurement."""

    bench: Bench
    record: Record
    processes: list["subprocess.Popen[str]"]
    ran: list[Beginning] = field(default_factory=list)  # all that ran, once the workers have ended

    def wait_for(self, count: int) -> None:
        """Return when so many handlers have begun."""
        deadline = time.monotonic() + PATIENCE
        while self.record.count() < count:
            self._look(deadline, "work")
            time.sleep(0.005)

    def wait_until_settled(self) -> float:
        """Return when nothing is left to do, by the clock that all processes share."""
        deadline = time.monotonic() + PATIENCE
        while self.bench.left():
            self._look(deadline, "settle")
            time.sleep(0.005)
        return time.monotonic()

    def check(self, numbers: Collection[int]) -> list[Beginning]:
        return self.record.check(self.bench.system.name, numbers)

    def memory(self) -> int:
        """Resident bytes of all worker processes and what they have started."""
        return sum(_resident(process.pid) for process in self.processes)

    def _look(self, deadline: float, doing: str) -> None:
        ended = [one for one in self.processes if one.poll() is not None]
        if ended or time.monotonic() > deadline:
            for process in self.processes:
                process.kill()
            said = self.processes[0].communicate()[1]
            raise PlayerFailed(self.bench.system.name, doing, said)


def _stop(processes: list["subprocess.Popen[str]"]) -> None:
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    for process in running:
        try:
            process.communicate(timeout=STOP_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(kilobytes) * 1024 + sum(_resident(int(child)) for child in children)
