"""A worker that dies, stands still or is asked to stop at one exact moment of its work."""

import signal
from collections import Counter
from functools import partial
from typing import Any

import pytest

from penstock import App
from penstock.errors import StoreUnavailable
from penstock.model.events import EventType
from penstock.model.states import FINAL
from penstock.testing import Faults, lose_reply
from penstock.testing.processes import WorkerProcess
from tests.support import tasks
from tests.support.workers import Place, Workers, counted, types, wait_until

COUNT = 12
QUICK: dict[str, Any] = {"heartbeat": 0.3, "lease": 1.5}
# Where a worker is killed, and whether handlers have begun by then; elsewhere it may be so or so.
HAVE_BEGUN = {"before_claim": False, "after_claim": False, "before_settle": True}
DEATHS = [*HAVE_BEGUN, "after_settle", "before_heartbeat", "after_promote"]
PHASES = [
    "before_register",
    "before_claim",
    "after_claim",
    "after_start",
    "before_settle",
    "after_settle",
    "before_promote",
    "before_release",
    "before_unregister",
]


def enqueue_steps(app: App) -> list[str]:
    requests = [tasks.step.request(number) for number in range(COUNT)]
    return [one.id for one in app.enqueue_many(requests)]


@pytest.mark.parametrize("point", DEATHS)
def test_a_worker_killed_at_this_point_loses_nothing(
    app: App, place: Place, workers: Workers, point: str
) -> None:
    ids = enqueue_steps(app)
    victim = workers.start_with({point: "kill"}, slots=4, **QUICK)
    assert victim.wait() == -signal.SIGKILL
    began_before = Counter(run.execution_id for run in place.runs())
    done_before = {one for one in ids if app.get(one).state == "completed"}
    workers.start(slots=4, **QUICK)

    assert [app.get(one).result(timeout=20) for one in ids] == list(range(COUNT))
    if point in HAVE_BEGUN:
        assert (bool(began_before), bool(done_before)) == (HAVE_BEGUN[point], False)
    elif point == "after_settle":
        assert done_before
    again = Counter(run.execution_id for run in place.runs()) - began_before
    # Whatever was committed is not repeated; whatever was not, runs, and says why.
    assert set(again) == set(ids) - done_before
    recovered = counted(app.store, ids, EventType.RECOVERED)
    assert all(recovered[one] for one in began_before if one not in done_before)


def have_ended(app: App, ids: list[str]) -> bool:
    return all(one.state in FINAL for one in app.store.get(ids))


def stood_still(
    app: App, place: Place, workers: Workers, point: str
) -> tuple[WorkerProcess, list[str]]:
    """Return a worker that has come to this point and stands still, and what it was to do."""
    while True:
        # All tasks are claimed at once, while its heart is quiet.
        zombie = workers.start_with({point: "stop"}, slots=COUNT, heartbeat=2, lease=6)
        workers.wait_for_beat(zombie)
        ids = enqueue_steps(app)
        zombie.wait_until_stopped()
        if not place.is_locked:
            return zombie, ids
        # Another of its threads was writing all the same, and would keep SQLite's lock for ever.
        zombie.kill()
        mender = workers.start(slots=4, **QUICK)
        wait_until(partial(have_ended, app, ids))
        mender.terminate()
        mender.wait()


@pytest.mark.parametrize("point", ["after_claim", "before_settle"])
def test_a_worker_that_stood_still_at_this_point_changes_nothing_any_more(
    app: App, place: Place, workers: Workers, point: str
) -> None:
    zombie, ids = stood_still(app, place, workers, point)
    healthy = workers.start(slots=4, **QUICK)

    assert [app.get(one).result(timeout=20) for one in ids] == list(range(COUNT))
    histories = {one: types(app.store, one) for one in ids}
    assert any(EventType.RECOVERED in history for history in histories.values())
    zombie.proceed()
    healthy.terminate()
    assert healthy.wait() == 0
    later = tasks.step.enqueue(99)  # it is of use again, under another name
    assert later.result(timeout=20) == 99
    assert {one: types(app.store, one) for one in ids} == histories


@pytest.mark.parametrize("phase", PHASES)
def test_sigterm_in_this_phase_ends_a_worker_in_good_order(
    app: App, place: Place, workers: Workers, phase: str
) -> None:
    ids = enqueue_steps(app)
    held = tasks.hold.enqueue(place.gate).id
    later = tasks.step.using(run_after=0.2).enqueue(7).id
    stopped = workers.start_with({phase: "terminate"}, slots=20, grace=0.3, **QUICK)
    if phase in {"before_release", "before_unregister"}:
        wait_until(lambda: len(place.runs()) > COUNT)
        stopped.terminate()
    assert stopped.wait() == 0
    assert {app.get(one).state for one in ids} <= {"completed", "ready"}
    assert app.store.workers() == []

    place.open_gate()
    workers.start(slots=4, **QUICK)
    everything = [*ids, held, later]
    for one in everything:
        app.get(one).result(timeout=20)
    assert {app.get(one).attempt for one in everything} == {1}
    assert counted(app.store, everything, EventType.RECOVERED).total() == 0


def test_a_release_whose_reply_was_lost_is_told_once(
    app: App, place: Place, workers: Workers
) -> None:
    ids = [tasks.hold.enqueue(place.gate).id for _ in range(3)]
    stopped = workers.start_with({"after_release": "lose_reply 2"}, slots=3, grace=0.2, **QUICK)
    wait_until(lambda: counted(app.store, ids, EventType.STARTED).total() == 3)
    stopped.terminate()
    assert stopped.wait() == 0

    assert "cut off by a test" in stopped.log()
    assert set(counted(app.store, ids, EventType.RELEASED).values()) == {1}
    assert {app.get(one).state for one in ids} == {"ready"}
    place.open_gate()
    workers.start(slots=3, **QUICK)
    for one in ids:
        assert app.get(one).result(timeout=20)
        assert app.get(one).attempt == 1


def test_another_enqueue_is_another_request_and_the_error_says_so(app: App) -> None:
    with Faults().at("after_create", lose_reply).injected(app):
        with pytest.raises(StoreUnavailable, match=r"each enqueue\(\) or start\(\) makes a new"):
            tasks.step.enqueue(5)
        tasks.step.enqueue(5)
    assert len(app.find(task="step")) == 2


def test_an_enqueue_whose_reply_was_lost_may_be_repeated(
    app: App, place: Place, workers: Workers
) -> None:
    request = tasks.step.using(key="once").request(5)
    with Faults().at("after_create", lose_reply).injected(app) as faults:
        with pytest.raises(StoreUnavailable, match="the same request is safe"):
            app.enqueue_many([request])
        (execution,) = app.enqueue_many([request])
    assert faults.happened == {"after_create": 1}
    workers.start(**QUICK)

    assert execution.result(timeout=20) == 5
    assert len(app.find(task="step")) == 1
    assert len(place.runs()) == 1
