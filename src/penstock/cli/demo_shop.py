"""The shop of the demo: its database, its worker processes, and how one of them is killed."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from penstock.app import App
from penstock.cli.supervising import Process, start_worker_process
from penstock.errors import PenstockError
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.store.opening import sqlite_url

SLOTS = 4
LONGEST = 60.0  # seconds for one act; far more than any takes
LOOK_EVERY = 0.05

WORKER_SETTINGS = {
    "PENSTOCK_WORKER_SLOTS": str(SLOTS),
    "PENSTOCK_WORKER_QUEUES": "",
    "PENSTOCK_WORKER_HEARTBEAT": "500ms",
    "PENSTOCK_WORKER_LEASE": "5s",
    "PENSTOCK_WORKER_GRACE": "1s",
    "PENSTOCK_WORKER_POLL": "1s",
}


class DemoStalled(PenstockError):
    """The demo did not get on; the workers' log says more than we can."""

    def __init__(self, waiting_for: str, *, workers_ended: bool, log: str) -> None:
        self.waiting_for = waiting_for
        self.workers_ended = workers_ended
        self.log = log
        problem = (
            f"The workers of the demo ended while it waited for {waiting_for}."
            if workers_ended
            else f"The demo waited {LONGEST:g} s for {waiting_for}, in vain. Try it once more on a "
            "machine that does less."
        )
        last = f" The last lines of their log:\n{log}" if log else ""
        super().__init__(problem + last)


class Shop(msgspec.Struct):
    """The file, the App on it, and the worker processes."""

    directory: Path
    app: App
    check: Callable[[], None]  # raises if somebody has asked for the end
    workers: list[Process] = msgspec.field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.directory / "shop.db"

    @property
    def url(self) -> str:
        return sqlite_url(str(self.path))

    @property
    def log_file(self) -> Path:
        return self.directory / "workers.log"

    @property
    def store(self) -> Store:
        return self.app.store

    def start_worker(self) -> Process:
        process = start_worker_process(
            [
                "penstock.cli.demo_tasks:app",
                *("--log-level", "warning", "--die-with", str(os.getpid())),
            ],
            environment={**os.environ, **WORKER_SETTINGS, "PENSTOCK_DATABASE_URL": self.url},
            log_file=self.log_file,
        )
        self.workers.append(process)
        return process

    def worker_id_of(self, process: Process) -> str | None:
        ending = f":{process.pid}"
        for peer in self.store.workers():
            if peer.info.name.endswith(ending):
                return peer.info.id
        return None

    def wait(self, waiting_for: str) -> Iterator[None]:
        """Look again and again, and not for ever."""
        deadline = time.monotonic() + LONGEST
        workers_ended = False
        while time.monotonic() < deadline and not workers_ended:
            self.check()
            yield
            workers_ended = all(process.poll() is not None for process in self.workers)
            time.sleep(LOOK_EVERY)
        log = self.log_file.read_text("utf-8", "replace") if self.log_file.exists() else ""
        raise DemoStalled(
            waiting_for, workers_ended=workers_ended, log="\n".join(log.splitlines()[-10:])
        )

    def stop(self) -> None:
        for process in self.workers:
            process.terminate()
        for process in self.workers:
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            process.wait()
        self.app.close()


class Killed(msgspec.Struct, frozen=True):
    """A worker that was killed, and what it was running."""

    pid: int
    at: datetime
    ids: list[str]  # the one that had run for longest comes first
    names: dict[str, str]  # of the workers at that moment, by id


def kill_one(shop: Shop) -> Killed | None:
    """Kill the first worker, but only in the middle of something."""
    victim = shop.workers[0]
    peers = {peer.info.id: peer.info.name for peer in shop.store.workers()}
    names = {id_: f"process {name.rpartition(':')[2]}" for id_, name in peers.items()}
    worker_id = shop.worker_id_of(victim)
    # Stopped first: what it runs now is what it runs when it dies.
    victim.send_signal(signal.SIGSTOP)
    running = [one for one in shop.store.find(state=State.RUNNING) if one.worker_id == worker_id]
    running.sort(key=lambda one: one.started_at or datetime.max.replace(tzinfo=UTC))
    if not running or running[0].started_at is None:
        victim.send_signal(signal.SIGCONT)
        return None
    victim.kill()
    victim.wait()
    return Killed(victim.pid, datetime.now(UTC), [one.id for one in running], names)
