"""Two who want opposite things of one execution: one of them gets it, and both hear the truth.

Each race is run many times. It is fair when the result differs between the runs, but that
is luck and not promised; what is checked is that every single run ends consistently.
"""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import pytest

from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database
from tests.contract.support import (
    OBSERVER,
    WORKER,
    beat_of,
    claim,
    enqueue,
    finish,
    ids,
    run_one,
    state_of,
    types,
    worker,
)
from tests.contract.threads import race

RACES = 500
DAY = timedelta(days=1)


@pytest.fixture
def rival(database: Database, store: Store, clock: ManualClock) -> Iterator[Store]:
    """The same database as another process sees it."""
    rival = database.open(clock)
    yield rival
    rival.close()


@pytest.mark.slow
def test_a_sweep_and_a_rerun_that_race_leave_all_or_nothing(
    store: Store, rival: Store, clock: ManualClock
) -> None:
    worker(store)
    for _ in range(RACES):
        claimed = run_one(store)
        store.settle([finish(claimed)])
        task_id = claimed.lease.execution_id
        clock.advance(DAY * 2)

        swept, (answer,) = race(
            partial(rival.sweep, older_than=DAY), partial(store.rerun, [task_id])
        )

        if answer == "rerun":
            assert swept.removed == 0
            assert state_of(store, task_id) is State.READY
            assert len(store.history(task_id)) == 6
            (again,) = claim(store)
            # Failed, so that no later sweep of this test takes it.
            assert store.settle([finish(again, "failed")]) == []
        else:
            assert (answer, swept.removed) == ("unknown", 1)
            assert store.get([task_id]) == []
            assert len(store.history(task_id)) == 4


@pytest.mark.slow
def test_a_sweep_of_events_and_a_rerun_that_race_keep_the_history_whole_or_not_at_all(
    store: Store, rival: Store, clock: ManualClock
) -> None:
    worker(store)
    for _ in range(RACES):
        claimed = run_one(store)
        store.settle([finish(claimed)])
        task_id = claimed.lease.execution_id
        clock.advance(DAY * 2)

        swept, answer = race(
            partial(rival.sweep_events, older_than=DAY), partial(store.rerun, [task_id])
        )

        assert answer == ["rerun"]
        history = types(store.history(task_id))
        assert history[-2:] == ["task.rerun", "task.marked_ready"]
        assert (swept.removed, len(history)) in {(0, 6), (4, 2)}
        (again,) = claim(store)
        # Failed, so that no later sweep of this test takes it.
        assert store.settle([finish(again, "failed")]) == []


@pytest.mark.slow
def test_a_cancel_and_a_claim_that_race_agree_who_was_first(store: Store, rival: Store) -> None:
    worker(store)
    for _ in range(RACES):
        task_id = enqueue(store)

        claimed, (answer,) = race(partial(claim, store), partial(rival.cancel, [task_id]))

        if answer == "requested":
            assert ids(claimed) == [task_id]
            assert state_of(store, task_id) is State.RUNNING
            assert store.heartbeat(WORKER).cancel_requested == (task_id,)
            assert store.settle([finish(claimed[0], "released")]) == []
        else:
            assert (answer, claimed) == ("cancelled", [])
        assert state_of(store, task_id) is State.CANCELLED
        assert types(store.history(task_id)).count("task.cancelled") == 1


@pytest.mark.slow
def test_a_settlement_and_a_recovery_that_race_end_in_one_way(store: Store, rival: Store) -> None:
    worker(store, OBSERVER)
    for n in range(RACES):
        claimed = run_one(store, f"stalled-{n}")
        task_id = claimed.lease.execution_id
        seen = beat_of(store, f"stalled-{n}")

        lost, recovered = race(
            partial(store.settle, [finish(claimed)]), partial(rival.recover, OBSERVER, dead=[seen])
        )

        told = types(store.history(task_id))
        if lost:
            assert lost == [claimed.lease]
            assert [one.id for one in recovered] == [task_id]
            assert told[3:] == ["task.recovered"]
            (again,) = claim(store, OBSERVER)
            assert store.settle([finish(again)]) == []
        else:
            assert recovered == []
            assert told[3:] == ["task.completed"]
        assert state_of(store, task_id) is State.COMPLETED


@pytest.mark.slow
def test_a_cancel_and_a_promotion_that_race_end_in_a_cancellation(
    store: Store, rival: Store, clock: ManualClock
) -> None:
    for _ in range(RACES // 5):
        task_id = enqueue(store, delay=timedelta(seconds=1))
        clock.advance(1)

        (answer,), _ = race(partial(store.cancel, [task_id]), rival.promote)

        assert answer == "cancelled"
        assert state_of(store, task_id) is State.CANCELLED


@pytest.mark.slow
def test_two_recoveries_that_race_take_each_task_once(store: Store, rival: Store) -> None:
    for observer in (OBSERVER, "worker-3"):
        worker(store, observer)
    for n in range(RACES // 10):
        leases = [run_one(store, f"stalled-{n}").lease for _ in range(3)]
        seen = beat_of(store, f"stalled-{n}")

        answers = race(
            partial(store.recover, OBSERVER, dead=[seen]),
            partial(rival.recover, "worker-3", dead=[seen]),
        )

        taken = [one.id for answer in answers for one in answer]
        assert sorted(taken) == sorted(lease.execution_id for lease in leases)
        store.cancel(taken)


@pytest.mark.slow
def test_settlements_and_cancellations_of_one_serial_that_race_lose_nobody(
    store: Store, rival: Store
) -> None:
    worker(store)
    for _ in range(RACES // 5):
        head = run_one(store, serial="line")
        middle = enqueue(store, serial="line")
        last = enqueue(store, serial="line")

        race(partial(store.settle, [finish(head)]), partial(rival.cancel, [middle]))
        store.propagate()

        assert state_of(store, middle) is State.CANCELLED
        (claimed,) = claim(store)
        assert claimed.lease.execution_id == last
        store.settle([finish(claimed)])
        store.propagate()
