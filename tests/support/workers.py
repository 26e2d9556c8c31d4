"""Workers as real processes that a test can kill, stop and continue.

Run as a program, this file is such a worker: it imports an App, and works in the foreground
with the options that it is given.
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import App
from penstock.cli.logs import configure_logging
from penstock.errors import IllegalTransition
from penstock.model.events import EventType
from penstock.model.states import State, state_after
from penstock.store.contract import Store
from penstock.testing.processes import WorkerProcess, start_worker

ROOT = Path(__file__).parents[2]
RUNS = "PENSTOCK_TEST_RUNS"
BROKEN_OPERATION = "PENSTOCK_TEST_BROKEN_OPERATION"
BROKEN_AFTER = "PENSTOCK_TEST_BROKEN_AFTER"
TASKS = "tests.support.tasks:app"
PATIENCE = 20.0
LOOK_EVERY = 0.01
EVERYTHING = 100_000

# Short enough for a test, long enough for a machine that has other things to do.
QUICK: Mapping[str, object] = {"heartbeat": 0.3, "lease": 1.5}


def wait_until(
    condition: Callable[[], object], timeout: float = PATIENCE, *, what: str = ""
) -> float:
    """Look until the condition holds; return how long that took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > timeout:
            message = f"not within {timeout:g} s: {what or condition}"
            raise AssertionError(message)
        time.sleep(LOOK_EVERY)
    return time.monotonic() - begun


# --- the database, and the place where tasks leave a mark -------------------------------


@dataclass(frozen=True)
class Place:
    """Where the workers of one test find their database and leave what they did."""

    url: str
    schema: str
    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PENSTOCK_DATABASE_URL": self.url,
            "PENSTOCK_DATABASE_SCHEMA": self.schema,
            RUNS: str(self.directory / "runs"),
        }

    @property
    def gate(self) -> str:
        """Tasks that wait go on when this file exists."""
        return str(self.directory / "gate")

    def open_gate(self) -> None:
        Path(self.gate).touch()

    @property
    def is_locked(self) -> bool:
        """Whether somebody keeps SQLite's only lock for longer than a write takes."""
        if not self.url.startswith("sqlite"):
            return False
        path = self.url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, timeout=0.2, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            other.execute("ROLLBACK")
            return False

    def runs(self) -> list["Run"]:
        """Every time that a handler began, as the handlers themselves wrote it down."""
        path = self.directory / "runs"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [Run(*line.split()) for line in lines]


@dataclass(frozen=True)
class Run:
    execution_id: str
    attempt: str
    pid: str


# --- processes --------------------------------------------------------------------------


@dataclass
class Workers:
    """Starts workers on one database; ends with all of them gone."""

    place: Place
    store: Store
    started: list[WorkerProcess] = field(default_factory=list)

    def start(self, **options: object) -> WorkerProcess:
        """Start a worker and return when others can see it."""
        process = self.launch(TASKS, options)
        wait_until(lambda: self.ids_of(process), what="a worker that others can see")
        return process

    def ids_of(self, process: WorkerProcess) -> list[str]:
        """Under which ids the others see it: one, or none when it is not there."""
        name = f":{process.pid}"
        return [one.info.id for one in self.store.workers() if one.info.name.endswith(name)]

    def wait_for_beat(self, process: WorkerProcess) -> None:
        """Return when its heart has just beaten, so that it is quiet until the next time."""

        def beats() -> list[int]:
            name = f":{process.pid}"
            return [one.beat for one in self.store.workers() if one.info.name.endswith(name)]

        wait_until(beats, what="a worker that others can see")
        seen = beats()
        wait_until(lambda: beats() != seen, what="its next heartbeat")

    def stand_still(self, process: WorkerProcess) -> None:
        """Stop it at a moment when it does not keep SQLite's lock: it would keep it for ever."""

        def stopped() -> bool:
            process.stop()
            process.wait_until_stopped()
            if self.place.is_locked:
                process.proceed()
                return False
            return True

        wait_until(stopped, what="a worker that stands still without SQLite's lock")

    def launch(self, target: str, options: Mapping[str, object]) -> WorkerProcess:
        log_file = self.place.directory / f"worker-{len(self.started)}.log"
        with log_file.open("wb") as log:
            popen = subprocess.Popen(
                [sys.executable, "-m", "tests.support.workers", target, json.dumps(options)],
                cwd=ROOT,
                env={**os.environ, **self.place.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        process = WorkerProcess(popen, log_file)
        self.started.append(process)
        return process

    def start_with(
        self,
        faults: Mapping[str, str],
        *,
        target: str = TASKS,
        **options: Any,  # noqa: ANN401 - as `run_worker` has them
    ) -> WorkerProcess:
        """Start a worker that has these faults within, and return at once: it may end at once."""
        process = start_worker(
            target,
            log_file=self.place.directory / f"worker-{len(self.started)}.log",
            options=options,
            faults=faults,
            environment=self.place.environment,
            directory=ROOT,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        for process in self.started:
            process.kill()


@contextlib.contextmanager
def workers_at(place: Place, store: Store) -> Iterator[Workers]:
    workers = Workers(place, store)
    try:
        yield workers
    finally:
        workers.end()


# --- what must be true at the end -------------------------------------------------------


def types(store: Store, execution_id: str) -> list[str]:
    return [event.type for event in store.history(execution_id)]


def counted(store: Store, ids: Iterable[str], event: EventType) -> Counter[str]:
    """How often `event` happened to each of these."""
    return Counter({one: types(store, one).count(event) for one in ids})


def complaints(store: Store, place: Place, enqueued: Iterable[str] = ()) -> list[str]:
    """Return each broken promise as a sentence; an empty list is what one hopes for."""
    snapshots = store.find(limit=EVERYTHING)
    there = {one.id for one in snapshots}
    found = [f"{lost} was enqueued and is not there" for lost in enqueued if lost not in there]
    began = Counter(run.execution_id for run in place.runs())
    for one in snapshots:
        history = [EventType(kind) for kind in types(store, one.id)]
        told = _replayed(history)
        if told != one.state:
            found.append(f"{one.id} is {one.state}, but its history ends in {told}")
        # A claim is legal only from ready, and a running task becomes ready only by an event
        # that says why: with the replay above, a run beyond the claims is an unexplained one.
        claims = history.count(EventType.CLAIMED)
        if began[one.id] > claims:
            found.append(f"{one.id} began {began[one.id]} times and was claimed {claims} times")
        if history.count(EventType.STARTED) > claims:
            found.append(f"{one.id} has more starts than claims: {history}")
        fewest, most = _attempts(history)
        if not fewest <= one.attempt <= most:
            found.append(f"{one.id} says attempt {one.attempt}, its history {fewest} to {most}")
    return found


def _replayed(history: list[EventType]) -> State | str | None:
    try:
        return state_after(history)
    except IllegalTransition as error:
        return f"an impossible step ({error})"


def _attempts(history: list[EventType]) -> tuple[int, int]:
    """Attempts begun and not given back: the fewest and the most that there can have been.

    A task that gives its attempt back after somebody asked it to stop is cancelled, and its
    history does not tell that from a cancellation that spent the attempt.
    """
    attempts, started, asked, unclear = 0, False, False, 0
    for event in history:
        asked = event is not EventType.CLAIMED and (asked or event is EventType.CANCEL_REQUESTED)
        unclear += asked and event is EventType.CANCELLED
        match event:
            case EventType.CLAIMED:
                attempts, started = attempts + 1, False
            case EventType.STARTED:
                started = True
            case EventType.RELEASED | EventType.SUSPENDED:
                attempts -= 1
            case EventType.SCHEDULED if attempts:  # it deferred itself
                attempts -= 1
            case EventType.RECOVERED if not started:
                attempts -= 1
    return attempts - unclear, attempts


# --- in the worker's process ------------------------------------------------------------


def _load(target: str) -> App:
    module, _, name = target.partition(":")
    app = getattr(importlib.import_module(module), name)
    assert isinstance(app, App)
    return app


def _main(target: str, options: str) -> None:
    # A task that aborts must not leave a core file beside the tests.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A worker whose test was killed must not stay behind.
    signal.alarm(110)
    configure_logging("info", "text")
    app = _load(target)
    app.run_worker(**{"owns_process": True, **json.loads(options)})


if __name__ == "__main__":
    _main(*sys.argv[1:])
