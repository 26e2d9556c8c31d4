"""Workers that stand still, in part or as a whole, and go on or end."""

import signal
import time

import pytest

from penstock import App
from penstock.engine.worker import EXIT_STUCK
from penstock.model.events import EventType
from tests.support import tasks
from tests.support.workers import (
    BROKEN_AFTER,
    BROKEN_OPERATION,
    QUICK,
    Place,
    Workers,
    counted,
    types,
    wait_until,
)

LEASE = 1.0
BRISK = {"heartbeat": 0.2, "lease": LEASE}
REFUSED = "refused: its lease went to another worker"


def claimed_by(app: App, worker_id: str) -> int:
    return sum(
        event.type == EventType.CLAIMED and event.worker_id == worker_id
        for one in app.store.find(limit=1000)
        for event in app.store.history(one.id)
    )


def test_a_worker_that_was_stopped_for_long_is_refused_and_goes_on_under_a_new_id(
    app: App, place: Place, workers: Workers
) -> None:
    kinds = (tasks.hold, tasks.hold_on_loop)
    ids = [kinds[n % 2].enqueue(place.gate).id for n in range(6)]
    stopped = workers.start(slots=6, **BRISK)
    wait_until(lambda: counted(app.store, ids, EventType.STARTED).total() == 6)
    (old_id,) = workers.ids_of(stopped)
    healthy = workers.start(slots=6, **BRISK)

    workers.stand_still(stopped)
    stopped_at = time.monotonic()
    wait_until(lambda: counted(app.store, ids, EventType.RECOVERED).total() == 6)
    wait_until(lambda: len(place.runs()) == 12)
    wait_until(lambda: time.monotonic() - stopped_at > 2 * LEASE)
    claimed_before = claimed_by(app, old_id)
    stopped.proceed()
    wait_until(lambda: workers.ids_of(stopped) not in ([old_id], []))
    place.open_gate()

    assert {app.get(one).result(timeout=20) for one in ids} == {healthy.pid}
    wait_until(lambda: stopped.logged(REFUSED) == 6)
    healthy.signal(signal.SIGTERM)
    assert healthy.wait() == 0
    later = [tasks.hold.enqueue(place.gate).id for _ in range(20)]
    assert {app.get(one).result(timeout=20) for one in later} == {stopped.pid}
    assert claimed_by(app, old_id) == claimed_before == 6
    for one in ids:
        assert stopped.logged(f"{one} {REFUSED}") == 1
        assert types(app.store, one).count("task.completed") == 1


def test_a_worker_may_get_back_the_very_task_that_was_taken_from_it(
    app: App, place: Place, workers: Workers
) -> None:
    execution = tasks.hold.enqueue(place.gate)
    stopped = workers.start(slots=2, **BRISK)
    wait_until(lambda: len(place.runs()) == 1)
    watching = workers.start(slots=1, queues=["elsewhere"], **BRISK)
    workers.stand_still(stopped)
    wait_until(lambda: counted(app.store, [execution.id], EventType.RECOVERED).total() == 1)
    stopped.proceed()
    wait_until(lambda: len(place.runs()) == 2)
    place.open_gate()

    assert execution.result(timeout=20) == stopped.pid
    wait_until(lambda: stopped.logged(REFUSED) == 1)
    for process in (stopped, watching):
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


def test_workers_that_were_stopped_together_do_not_bury_each_other(
    app: App, place: Place, workers: Workers
) -> None:
    ids = [tasks.hold.enqueue(place.gate).id for _ in range(4)]
    both = [workers.start(slots=2, **BRISK) for _ in range(2)]
    wait_until(lambda: len(place.runs()) == 4)
    first_id, second_id = (workers.ids_of(process)[0] for process in both)

    def beat(worker_id: str) -> int:
        return next((one.beat for one in app.store.workers() if one.info.id == worker_id), -1)

    workers.stand_still(both[1])
    seen = beat(first_id)
    wait_until(lambda: beat(first_id) > seen + 1, what="the first has seen the second's last beat")
    workers.stand_still(both[0])
    asleep_since = time.monotonic()
    wait_until(lambda: time.monotonic() - asleep_since > 1.5 * LEASE)
    seen = beat(first_id)
    both[0].proceed()
    wait_until(lambda: beat(first_id) > seen + 1, what="the first has seen that beat again")
    both[1].proceed()
    seen = beat(second_id)
    wait_until(lambda: beat(second_id) > seen + 2)

    assert counted(app.store, ids, EventType.RECOVERED).total() == 0
    place.open_gate()
    assert {app.get(one).result(timeout=20) for one in ids} == {one.pid for one in both}


def test_a_task_that_blocks_the_loop_is_not_taken_from_a_living_worker(
    app: App, place: Place, workers: Workers
) -> None:
    execution = tasks.block_the_loop.enqueue(2 * LEASE)
    blocked = workers.start(**BRISK)
    workers.start(**BRISK)

    assert execution.result(timeout=20) == blocked.pid
    assert types(app.store, execution.id) == [
        "task.created", "task.marked_ready", "task.claimed", "task.started", "task.completed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "after"), [("claim", 3), ("settle", 0), ("promote", 1), ("start", 0)]
)
def test_a_worker_ends_itself_when_one_of_its_threads_has_died(
    app: App,
    place: Place,
    workers: Workers,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    after: int,
) -> None:
    ids = [tasks.hold.enqueue(place.gate).id for _ in range(3)]
    monkeypatch.setenv(BROKEN_OPERATION, operation)
    monkeypatch.setenv(BROKEN_AFTER, str(after))
    faulty = workers.launch("tests.support.broken:app", QUICK)
    wait_until(lambda: len(place.runs()) == 3 or not faulty.alive)
    # What makes each of the threads do its work: news of tasks, and an outcome to settle.
    ids.append(tasks.step.enqueue(1).id)
    while faulty.alive:
        ids.append(tasks.step.using(run_after=0.05).enqueue(1).id)
        wait_until(lambda: not faulty.alive or app.get(ids[-1]).state != "scheduled")

    assert faulty.wait() == EXIT_STUCK
    assert faulty.logged("ends itself because its") == 1
    healthy = workers.start(**QUICK)
    place.open_gate()
    assert {app.get(one).result(timeout=20) for one in ids[:3]} == {healthy.pid}
    wait_until(lambda: all(app.get(one).state == "completed" for one in ids))
