"""The workers of a soak: some processes that are replaced when they end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import StoreError
from penstock.store.contract import Store
from penstock.testing.processes import WorkerProcess, start_worker
from tests.soak.mixture import TARGET
from tests.soak.planning import LEASE
from tests.support.workers import ROOT, Place

OPTIONS = {"slots": 6, "heartbeat": LEASE / 5, "lease": LEASE, "grace": 1.0, "poll": 5.0}
# Workers of one machine see at once that a process is gone; every other one waits for the lease.
ELSEWHERE = {**OPTIONS, "same_host": False}


@dataclass
class Crew:
    place: Place
    store: Store
    size: int = 3
    alive: list[WorkerProcess] = field(default_factory=list)
    launched: int = 0

    def keep_up(self) -> None:
        """Replace what has ended, and take away what is too many."""
        self._forget_ended()
        while len(self.alive) < self.size:
            self.launch({})

    def launch(self, faults: Mapping[str, str]) -> WorkerProcess:
        self.launched += 1
        process = start_worker(
            TARGET,
            log_file=self.place.directory / f"worker-{self.launched}.log",
            options=ELSEWHERE if self.launched % 2 else OPTIONS,
            faults=faults,
            environment=self.place.environment,
            directory=ROOT,
        )
        self.alive.append(process)
        return process

    def visible(self) -> list[WorkerProcess]:
        """Those that are at work: one that is still coming up has nothing to lose."""
        self._forget_ended()
        try:
            names = {peer.info.name.rpartition(":")[2] for peer in self.store.workers()}
        except StoreError:
            return []
        return [one for one in self.alive if str(one.pid) in names]

    def _forget_ended(self) -> None:
        for one in self.alive:
            if not one.alive:
                one.wait()  # nothing to wait for: it closes the pipe
        self.alive = [one for one in self.alive if one.alive]

    def dismiss(self) -> None:
        """Let all of them stop in good order."""
        for one in self.alive:
            one.proceed()
            one.terminate()
        for one in self.alive:
            one.wait(60)
        self._forget_ended()

    def end(self) -> None:
        for one in self.alive:
            one.kill()
        self._forget_ended()
