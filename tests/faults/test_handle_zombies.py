"""A worker that was stopped past its lease cannot commit what another has taken over."""

import time
from collections.abc import Callable

import psycopg
import pytest

from penstock import App, Execution
from penstock.model.events import EventType
from tests.support import handling
from tests.support.handling import ZOMBIE, effects, make_effects, reached, start
from tests.support.workers import Place, Workers, counted, types, wait_until

LEASE = 1.0
BRISK = {"heartbeat": 0.2, "lease": LEASE}


@pytest.fixture
def paying(place: Place, app: App) -> Place:
    make_effects(place)
    return place


def asleep_for(seconds: float) -> None:
    since = time.monotonic()
    wait_until(lambda: time.monotonic() - since > seconds)


def test_a_zombie_that_wakes_before_it_completes_takes_no_effect(
    app: App, paying: Place, workers: Workers
) -> None:
    ids = [handling.outlive.enqueue("before", paying.gate).id for _ in range(5)]
    zombie = start(workers, slots=5, **BRISK)
    wait_until(lambda: reached(paying, "before") == 5)
    wait_until(lambda: counted(app.store, ids, EventType.STARTED).total() == 5)
    start(workers, slots=5, **BRISK)

    workers.stand_still(zombie)
    assert {app.get(one).result(timeout=20) for one in ids} == {"2"}
    zombie.proceed()
    paying.open_gate()
    wait_until(lambda: zombie.logged("refused: its lease went to another worker") == 5)

    assert (paying.directory / "refused").read_text() == "LeaseLost"
    assert sorted(effects(paying)) == sorted(ids)
    for one in ids:
        assert types(app.store, one)[-4:] == [
            "task.recovered", "task.claimed", "task.started", "task.completed",
        ]  # fmt: skip


def test_a_zombie_that_had_completed_is_not_run_again_and_may_commit(
    app: App, paying: Place, workers: Workers
) -> None:
    """Its open transaction is its claim: nobody else can take the task while it lasts."""
    both = [start(workers, slots=1, **BRISK) for _ in range(2)]
    execution = handling.outlive.enqueue("completed", paying.gate)
    wait_until(lambda: reached(paying, "completed") == 1)
    (run,) = paying.runs()
    (owner,) = [one for one in both if str(one.pid) == run.pid]

    owner.stop()
    asleep_for(3 * LEASE)
    paying.open_gate()
    owner.proceed()

    assert execution.result(timeout=20) == "1"
    assert effects(paying) == [execution.id]
    assert len(paying.runs()) == 1
    assert types(app.store, execution.id).count("task.completed") == 1


# SQLite has no server that could end its transaction.
@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_zombie_whose_transaction_the_server_has_ended_cannot_commit_it(
    app: App, paying: Place, workers: Workers
) -> None:
    execution = handling.outlive.enqueue("completed", paying.gate)
    zombie = start(workers, slots=1, **BRISK)
    wait_until(lambda: reached(paying, "completed") == 1)
    wait_until(lambda: counted(app.store, [execution.id], EventType.CLAIMED).total() == 1)
    start(workers, slots=1, poll=0.2, **BRISK)

    workers.stand_still(zombie)
    with psycopg.connect(paying.url, autocommit=True) as server:
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = %s AND state = 'idle in transaction'",
            [ZOMBIE],
        )
    wait_until(lambda: len(paying.runs()) == 2)
    paying.open_gate()
    assert execution.result(timeout=20)
    zombie.proceed()
    wait_until(lambda: zombie.logged("refused: its lease went to another worker") == 1)

    assert (paying.directory / "refused").read_text() in {"OperationalError", "AdminShutdown"}
    assert effects(paying) == [execution.id]


@pytest.mark.parametrize(
    "enqueue", [handling.wait_here.enqueue, handling.await_here.enqueue], ids=["def", "async def"]
)
def test_a_zombie_stops_waiting_for_what_others_wait_for_now(
    app: App, paying: Place, workers: Workers, enqueue: Callable[[str], Execution[int]]
) -> None:
    execution = enqueue(paying.gate)
    zombie = start(workers, slots=1, **BRISK)
    wait_until(lambda: counted(app.store, [execution.id], EventType.DEFERRED).total() == 1)
    healthy = start(workers, slots=1, **BRISK)

    workers.stand_still(zombie)
    wait_until(lambda: counted(app.store, [execution.id], EventType.DEFERRED).total() == 2)
    zombie.proceed()
    wait_until(lambda: zombie.logged("refused: its lease went to another worker") == 1)

    assert execution.refresh().sub_state == "deferred"
    paying.open_gate()
    assert execution.result(timeout=20) == healthy.pid
