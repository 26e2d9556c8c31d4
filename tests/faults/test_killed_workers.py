"""A worker that is killed loses nothing: others run its tasks again, and say so."""

import time
from datetime import UTC, datetime

import pytest

from penstock import App
from penstock.model.events import EventType
from penstock.testing.processes import is_gone
from tests.support import tasks
from tests.support.workers import Place, Workers, counted, types, wait_until

CROWD = 50
MARGIN = 2.0


def enqueue_crowd(app: App, gate: str) -> list[str]:
    """Long tasks on threads and on the loop, one after the other."""
    kinds = (tasks.hold, tasks.hold_on_loop)
    requests = [kinds[n % 2].request(gate=gate) for n in range(CROWD)]
    return [execution.id for execution in app.enqueue_many(requests)]


def started_since(app: App, ids: list[str], moment: datetime) -> list[datetime]:
    """When each was first started after this moment; those that were not are left out."""
    starts = (
        [event.at for event in app.store.history(one) if event.type == EventType.STARTED]
        for one in ids
    )
    return [max(at) for at in starts if at and max(at) > moment]


def kill_in_the_middle(app: App, place: Place, workers: Workers, **options: object) -> float:
    """Kill a worker with a crowd of running tasks; return how long until all run again."""
    ids = enqueue_crowd(app, place.gate)
    first = workers.start(slots=CROWD, **options)
    wait_until(lambda: len(place.runs()) == CROWD)
    wait_until(lambda: counted(app.store, ids, EventType.STARTED).total() == CROWD)
    second = workers.start(slots=CROWD, **options)

    killed_at = datetime.now(UTC)
    first.kill()
    wait_until(lambda: len(place.runs()) == 2 * CROWD, what="all run again")
    wait_until(lambda: len(started_since(app, ids, killed_at)) == CROWD)
    took = (max(started_since(app, ids, killed_at)) - killed_at).total_seconds()

    place.open_gate()
    results = [app.get(one).result(timeout=20) for one in ids]
    assert set(results) == {second.pid}
    assert set(counted(app.store, ids, EventType.RECOVERED).values()) == {1}
    runs = [run.execution_id for run in place.runs()]
    assert sorted(runs) == sorted(ids * 2)  # once in each worker, and not once more
    return took


def test_what_a_killed_worker_ran_runs_again_at_once_on_the_same_host(
    app: App, place: Place, workers: Workers
) -> None:
    assert kill_in_the_middle(app, place, workers) < MARGIN


def test_where_nobody_can_see_the_process_it_runs_again_after_the_lease(
    app: App, place: Place, workers: Workers
) -> None:
    lease = 1.5
    took = kill_in_the_middle(app, place, workers, same_host=False, heartbeat=0.3, lease=lease)
    assert lease - 0.5 < took < lease + MARGIN


def test_the_children_of_a_killed_worker_die_with_it(
    app: App, place: Place, workers: Workers
) -> None:
    ids = [tasks.hold_in_process.enqueue(place.gate).id for _ in range(3)]
    first = workers.start(slots=3)
    wait_until(lambda: len(place.runs()) == 3)
    children = {int(run.pid) for run in place.runs()}
    assert len(children) == 3
    assert first.pid not in children

    first.kill()
    wait_until(lambda: all(map(is_gone, children)), timeout=MARGIN)

    workers.start(slots=3)
    wait_until(lambda: len(place.runs()) == 6)
    place.open_gate()
    results = {app.get(one).result(timeout=20) for one in ids}
    assert not results & children
    assert set(counted(app.store, ids, EventType.RECOVERED).values()) == {1}


def test_a_worker_that_starts_after_all_have_died_takes_over_at_once(
    app: App, place: Place, workers: Workers
) -> None:
    ids = [tasks.hold.enqueue(place.gate).id for _ in range(4)]
    dead = [workers.start(slots=2), workers.start(slots=2)]
    wait_until(lambda: counted(app.store, ids, EventType.STARTED).total() == 4)
    for worker in dead:
        worker.kill()
    place.open_gate()

    last = workers.start(slots=4)
    begun = time.monotonic()
    assert {app.get(one).result(timeout=20) for one in ids} == {last.pid}

    assert time.monotonic() - begun < MARGIN
    assert [one.info.id for one in app.store.workers()] == workers.ids_of(last)
    for one in ids:
        assert types(app.store, one) == [
            "task.created", "task.marked_ready", "task.claimed", "task.started",
            "task.recovered", "task.claimed", "task.started", "task.completed",
        ]  # fmt: skip


def test_the_log_names_the_dead_worker_whose_tasks_were_recovered(
    app: App, place: Place, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    held = [tasks.hold.enqueue(place.gate) for _ in range(2)]
    dead = workers.start(slots=2)
    wait_until(lambda: counted(app.store, [one.id for one in held], EventType.STARTED).total() == 2)
    (its_id,) = workers.ids_of(dead)
    dead.kill()
    place.open_gate()

    with caplog.at_level("WARNING", "penstock.worker"), app.worker():
        for one in held:
            one.result(timeout=20)

    assert f"recovered 2 tasks of the dead worker {its_id}" in caplog.text


@pytest.mark.parametrize("repetition", range(2))
def test_a_worker_killed_among_short_tasks_leaves_none_behind(
    app: App, place: Place, workers: Workers, repetition: int
) -> None:
    ids = [one.id for one in app.enqueue_many([tasks.step.request(n) for n in range(400)])]
    first = workers.start(slots=4)
    workers.start(slots=4)
    wait_until(lambda: len(place.runs()) > 60 * (1 + repetition))
    first.kill()

    assert [app.get(one).result(timeout=20) for one in ids] == list(range(400))


def test_beats_that_nobody_saw_do_not_delay_the_recovery_of_a_killed_worker(
    app: App, place: Place, workers: Workers
) -> None:
    execution = tasks.hold.enqueue(place.gate)
    first = workers.start(heartbeat=0.1, lease=30)
    wait_until(lambda: len(place.runs()) == 1)
    (first_id,) = workers.ids_of(first)
    second = workers.start(heartbeat=10, lease=30)

    def beats() -> int:
        return next(one.beat for one in app.store.workers() if one.info.id == first_id)

    seen = beats()
    wait_until(lambda: beats() > seen + 3)
    first.kill()

    wait_until(lambda: len(place.runs()) == 2, timeout=MARGIN)
    place.open_gate()
    assert execution.result(timeout=20) == second.pid
