"""A task that kills its worker ends alone: those that ran beside it complete."""

import time
from collections import Counter
from functools import partial

from penstock import App
from penstock.model.events import EventType
from penstock.model.executions import DEFAULT_MAX_CRASHES
from penstock.testing.processes import WorkerProcess
from tests.support import tasks
from tests.support.workers import Place, Workers, counted, types, wait_until

CROWD = 100
PATIENCE = 60.0


def supervise(app: App, workers: Workers, ids: list[str], **options: object) -> int:
    """Start a worker again whenever it has died, until all have ended; return how often it died."""
    deaths = 0
    begun = time.monotonic()
    while True:
        process = workers.start(**options)
        wait_until(partial(ended_or_dead, app, ids, process), timeout=PATIENCE)
        if process.alive:
            return deaths
        deaths += 1
        assert time.monotonic() - begun < PATIENCE, app.counts()


def ended_or_dead(app: App, ids: list[str], process: WorkerProcess) -> bool:
    return not process.alive or all_ended(app, ids)


def all_ended(app: App, ids: list[str]) -> bool:
    counts = app.counts()
    return counts["completed"] + counts["failed"] >= len(ids)


def crashes(app: App, execution_id: str) -> int:
    (snapshot,) = app.store.get([execution_id])
    return snapshot.crashes


def test_a_poison_pill_is_abandoned_and_its_neighbours_complete(
    app: App, place: Place, workers: Workers
) -> None:
    requests = [tasks.step.request(n) for n in range(CROWD - 1)]
    ids = [one.id for one in app.enqueue_many([*requests[:40], tasks.pill.request()])]
    (*_, pill) = ids
    ids += [one.id for one in app.enqueue_many(requests[40:])]
    deaths = supervise(app, workers, ids, slots=10)

    innocent = [one for one in ids if one != pill]
    assert [app.get(one).state for one in innocent] == ["completed"] * (CROWD - 1)
    assert app.get(pill).state == "failed"
    assert types(app.store, pill)[-1] == "task.abandoned"
    assert crashes(app, pill) == DEFAULT_MAX_CRASHES
    # The first death may find its start not yet written; every later one is charged.
    assert DEFAULT_MAX_CRASHES <= deaths <= DEFAULT_MAX_CRASHES + 1
    began = [run.execution_id for run in place.runs()].count(pill)
    # On its last chance it may have been given back, to run beside no other suspect.
    happened = Counter(types(app.store, pill))
    assert began == deaths == happened["task.claimed"] - happened["task.released"]
    assert max(crashes(app, one) for one in innocent) < DEFAULT_MAX_CRASHES


def test_a_pill_that_acts_late_does_not_take_its_neighbours_along(
    app: App, place: Place, workers: Workers
) -> None:
    """All of them are running, and known to, whenever it strikes."""
    kinds = (tasks.hold, tasks.hold_on_loop)
    never = str(place.directory / "never")
    ids = [kinds[n % 2].enqueue(never).id for n in range(8)]
    pill = tasks.slow_pill.enqueue(place.gate).id

    def all_run(death: int) -> bool:
        began = len(place.runs()) == 9 * death
        return began and counted(app.store, [*ids, pill], EventType.STARTED).total() == 9 * death

    for death in (1, 2):
        process = workers.start(slots=10)
        wait_until(partial(all_run, death), what="all run beside the pill")
        place.open_gate()
        process.wait()
        (place.directory / "gate").unlink()

    (place.directory / "never").touch()
    place.open_gate()
    supervise(app, workers, [*ids, pill], slots=10)
    assert [app.get(one).state for one in ids] == ["completed"] * 8
    assert types(app.store, pill)[-1] == "task.abandoned"
    assert crashes(app, pill) == DEFAULT_MAX_CRASHES


def test_what_follows_a_failure_follows_an_abandonment_exactly_once(
    app: App, place: Place, workers: Workers
) -> None:
    pill = tasks.pill_with_follow_up.enqueue().id
    supervise(app, workers, [pill, "its follow-up"], slots=2)

    assert types(app.store, pill)[-1] == "task.abandoned"
    (follow_up,) = app.find(task=tasks.after_failure)
    assert follow_up.result(timeout=10) == pill
