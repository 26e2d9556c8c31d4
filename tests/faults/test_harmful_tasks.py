"""Handlers that harm the process they run in, and clocks that are wrong."""

import json
import os
import subprocess
import sys
import time

import pytest

from penstock import App
from penstock.model.events import EventType
from penstock.testing import WorkerProcess
from tests.support import harming, tasks
from tests.support.workers import ROOT, Place, Workers, counted, types, wait_until

LEASE = 1.0
QUICK = {"heartbeat": 0.2, "lease": LEASE}
HOUR = 3600
WRONG_CLOCK = "tests.support.wrong_clock"
OFFSET = "PENSTOCK_TEST_CLOCK_OFFSET"


def test_a_task_that_holds_the_gil_is_taken_over_and_settled_once(
    app: App, place: Place, workers: Workers
) -> None:
    """Its worker cannot even beat, and looks dead: what it says afterwards is refused.

    It cannot tell that it has begun either, so the next run may be a first attempt once more.
    """
    execution = harming.hold_the_gil.enqueue(4)
    frozen = workers.launch(harming.TARGET, QUICK)
    wait_until(lambda: len(place.runs()) == 1)
    healthy = workers.launch(harming.TARGET, QUICK)

    # Whoever gets it next: the other one, or the same under a new name.
    assert execution.result(timeout=20) in {frozen.pid, healthy.pid}
    wait_until(lambda: frozen.logged("was declared dead") == 1)
    wait_until(lambda: frozen.logged("refused: its lease went to another worker") >= 1)
    history = types(app.store, execution.id)
    assert history.count(EventType.RECOVERED) == len(place.runs()) - 1
    assert history.count(EventType.COMPLETED) == 1


def test_a_task_that_runs_out_of_memory_fails_alone(
    app: App, place: Place, workers: Workers
) -> None:
    execution = harming.eat_memory.enqueue()
    worker = workers.launch(harming.TARGET, {**QUICK, "slots": 1})
    assert execution.result(timeout=40) == worker.pid
    error = execution.refresh().error
    assert error is not None
    assert error["type"] == "MemoryError"
    assert types(app.store, execution.id).count(EventType.RETRY_SCHEDULED) == 1
    assert tasks.step.enqueue(3).result(timeout=20) == 3
    assert worker.alive


# --- clocks -----------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_worker_whose_clock_is_an_hour_off_works_as_any_other(
    app: App, place: Place, workers: Workers, hours: int
) -> None:
    right = workers.start(**QUICK)
    wrong = _with_clock(workers, hours)
    ids = [one.id for one in app.enqueue_many([tasks.step.request(n) for n in range(40)])]
    due = tasks.step.using(run_after=0.5).enqueue(40)
    told = harming.tell_time.enqueue()  # which only the one with the wrong clock knows

    assert abs(told.result(timeout=20) - time.time() - hours * HOUR) < 60
    assert [app.get(one).result(timeout=20) for one in ids] == list(range(40))
    assert due.result(timeout=20) == 40
    # Long enough for one of them to take the other for dead.
    seen = time.monotonic()
    wait_until(lambda: time.monotonic() - seen > 2 * LEASE)
    assert (right.alive, wrong.alive) == (True, True)
    assert counted(app.store, [*ids, due.id, told.id], EventType.RECOVERED).total() == 0


def _with_clock(workers: Workers, hours: int) -> WorkerProcess:
    """Start a worker in a process whose calendar is wrong and whose stopwatch is right."""
    log_file = workers.place.directory / "wrong-clock.log"
    with log_file.open("wb") as log:
        popen = subprocess.Popen(
            [sys.executable, "-m", WRONG_CLOCK, harming.TARGET, json.dumps(QUICK)],
            cwd=ROOT,
            env={**os.environ, **workers.place.environment, OFFSET: str(hours * HOUR)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    process = WorkerProcess(popen, log_file)
    workers.started.append(process)
    wait_until(lambda: workers.ids_of(process), what="a worker that others can see")
    return process
