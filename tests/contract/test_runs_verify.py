"""`verify` on runs of workflows: whatever happens to them, nothing is wrong."""

import random
import threading
from collections.abc import Callable, Mapping

import pytest

from penstock.engine.verifying import verify
from penstock.model.executions import Claimed
from penstock.model.outcomes import Outcome
from penstock.model.retelling import Wrong
from penstock.model.rules import ContextValue, Dependencies
from penstock.model.runs import RunState
from penstock.model.verifying import findings_in
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database, PostgresDatabase
from tests.contract.flows import (
    chain,
    claim_all,
    completed,
    diamond,
    graph,
    live_through,
    node,
    place,
    run_of,
    start,
    task_at,
)
from tests.contract.planting import found, listed
from tests.contract.support import MINUTE, WORKER, declare_dead, enqueue_many, finish, worker

LOOKED_AT = 400  # runs, most of them several times


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_a_run_is_in_one_stretch_with_all_of_its_tasks(store: Store, limit: int) -> None:
    plain = enqueue_many(store, 3)
    runs = [start(store, diamond()) for _ in range(3)]
    plain += enqueue_many(store, 2)
    after, seen, looks = None, [], 0
    while True:
        examined = store.examine(after, limit=limit)
        looks += 1
        assert findings_in(examined) == []
        for run in examined.runs:
            assert [task.id for task in run.tasks] == [task_at(run.id, n) for n in range(4)]
        seen += [one.id for one in examined.executions if one.run_id is None]
        seen += [run.id for run in examined.runs]
        if examined.next is None:
            break
        after = examined.next
    assert sorted(seen) == sorted(plain + runs)
    assert looks >= (8 if limit == 1 else 1)


def test_the_events_of_a_run_are_told_apart_by_its_tasks(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(2))
    (first,) = claim_all(store)
    store.settle([completed(first)])
    (run,) = store.examine().runs
    assert run.told.events == 1
    assert [task.told.events for task in run.tasks] == [4, 2]
    assert (run.id, run.told.state) == (run_id, RunState.RUNNING)


def test_all_that_can_happen_to_a_run_leaves_nothing_to_find(store: Store) -> None:
    worker(store)
    rule = ContextValue("size", ">", 5)
    shape = graph(node("a"), node("b"), node("c", 0, 1, rule=rule), node("d", 2), node("e", 0))
    runs = [start(store, shape) for _ in range(6)]
    assert found(store) == []
    store.pause_run(runs[0])
    assert found(store) == []
    held = claim_all(store)
    store.cancel_run(runs[1])
    store.cancel([task_at(runs[2], 4)])
    assert found(store) == []
    declare_dead(store, WORKER)
    assert store.settle([completed(one) for one in held]) == [one.lease for one in held]
    assert found(store) == []
    store.resume_run(runs[0])
    worker(store)
    sizes = {run_id: n * 2 for n, run_id in enumerate(runs)}

    def ending(one: Claimed) -> Outcome:
        assert one.run_id is not None
        if place(one) == 4 and one.run_id == runs[4]:
            return finish(one, "failed")
        return completed(one, writes=f'{{"size":{sizes[one.run_id]}}}')

    live_through(store, ending)
    assert found(store) == []
    assert {run_of(store, run_id).state for run_id in runs} == {
        RunState.COMPLETED, RunState.CANCELLED, RunState.FAILED,
    }  # fmt: skip
    for run_id in runs:
        store.rerun_run(run_id)
        assert found(store) == []
    live_through(store)
    assert found(store) == []


def test_a_run_over_its_time_is_no_finding(store: Store, clock: ManualClock) -> None:
    start(store, chain(2), timeout=MINUTE)
    clock.advance(2 * MINUTE)
    store.promote()
    assert found(store) == []


def test_what_will_be_propagated_is_no_finding(
    emptied_postgres: PostgresDatabase, clock: ManualClock
) -> None:
    """On PostgreSQL a completion in a caller's transaction only leaves word for the run."""
    store = emptied_postgres.open(clock)
    worker(store)
    start(store, chain(2))
    start(store, chain(1))
    for one in claim_all(store):
        with emptied_postgres.connect() as connection:
            store.complete_on(connection, one.lease, result="null", started_at=None)
    assert found(store) == []
    emptied_postgres.query("DELETE FROM run_propagations")
    assert [code for code, _ in found(store)] == [Wrong.STUCK_IN_RUN, Wrong.RUN_NOT_ENDED]
    emptied_postgres.empty()
    store.close()


def test_nothing_of_a_run_is_seen_half_done(store: Store, database: Database) -> None:
    """Two threads start, pause, resume, cancel and settle runs; each look finds all in order."""
    stop = threading.Event()
    shape = graph(
        node("a"),
        node("b", 0),
        node("c", 0, rule=Dependencies("any_failed")),
        node("d", 1, 2, rule=Dependencies("any_succeeded")),
        node("e", 3, rule=ContextValue("size", ">", 5)),
    )
    errors: list[BaseException] = []

    def work(n: int) -> None:
        chance = random.Random(n)
        other = database.open()
        try:
            me = worker(other, f"settler-{n}")
            while not stop.is_set():
                runs = [start(other, shape) for _ in range(3)]
                live: Mapping[int, Callable[[str], object]] = {
                    0: other.pause_run, 1: other.resume_run, 2: other.cancel_run,
                }  # fmt: skip
                for _ in range(4):
                    live[chance.choice((0, 1, 1, 2))](chance.choice(runs))
                    outcomes = [
                        finish(one, "failed")
                        if chance.random() < 0.3
                        else completed(one, writes=f'{{"size":{chance.randrange(10)}}}')
                        for one in claim_all(other, me, limit=10)
                    ]
                    other.settle(outcomes)
        except BaseException as error:  # noqa: BLE001 - told in the test's own thread
            errors.append(error)
        finally:
            other.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    runs = 0
    try:
        while runs < LOOKED_AT and not errors:
            for stretch in verify(store, stretch=50, look_again_after=0):
                assert stretch.findings == []
                runs += stretch.runs
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


def test_a_list_of_elements_is_no_finding(store: Store) -> None:
    run_id = listed(store)
    assert found(store) == []
    store.pause_run(run_id)
    assert found(store) == []
    store.resume_run(run_id)
    live_through(store)
    assert found(store) == []
    assert run_of(store, run_id).state is RunState.COMPLETED
