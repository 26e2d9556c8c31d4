"""What failed stays until somebody decides; dismissed, nothing of it is left."""

from penstock.model.ids import new_id
from penstock.model.states import State
from penstock.model.verifying import findings_in
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.databases import Database, count
from tests.contract.flows import chain, live_through, start
from tests.contract.support import WORKER, claim, enqueue, finish, run_one, state_of, worker

EVERYWHERE = ("task_executions", "workflow_executions", "execution_events", "once_ledger")


def failed_one(store: Store) -> str:
    claimed = run_one(store)
    store.settle([finish(claimed, "failed")])
    return claimed.lease.execution_id


def failed_run(store: Store) -> str:
    worker(store)
    run_id = start(store, chain(3))
    live_through(store, lambda one: finish(one, "failed"))
    return run_id


def test_a_dismissed_execution_leaves_nothing_behind(store: Store, database: Database) -> None:
    failed = failed_one(store)

    assert store.dismiss([failed]) == ["dismissed"]

    assert store.get([failed]) == []
    assert store.history(failed) == []
    assert [count(database, table) for table in EVERYWHERE] == [0] * len(EVERYWHERE)
    assert store.dismiss([failed]) == ["unknown"]


def test_a_dismissed_run_goes_with_its_tasks(store: Store, database: Database) -> None:
    run_id = failed_run(store)
    tasks = [one.id for one in store.tasks_of(run_id)]

    assert store.dismiss(tasks) == ["part"] * 3
    assert store.dismiss([run_id]) == ["dismissed"]

    assert store.runs([run_id]) == []
    assert store.get(tasks) == []
    assert [count(database, table) for table in EVERYWHERE] == [0] * len(EVERYWHERE)


def test_only_what_failed_can_be_dismissed(store: Store) -> None:
    failed = failed_one(store)
    running = run_one(store).lease.execution_id
    done = run_one(store)
    store.settle([finish(done)])
    ready, live_run = enqueue(store), start(store, chain(1))

    asked = [ready, running, done.lease.execution_id, live_run, new_id(), failed]
    assert store.dismiss(asked) == ["kept", "kept", "kept", "kept", "unknown", "dismissed"]

    assert len(store.get(asked[:3])) == 3
    assert len(store.history(done.lease.execution_id)) > 0
    assert len(store.runs([live_run])) == 1
    assert store.dismiss([]) == []


def test_nothing_is_wrong_after_a_dismissal(store: Store, clock: ManualClock) -> None:
    stays, goes = failed_one(store), failed_one(store)
    gone_run, run_that_stays = failed_run(store), failed_run(store)

    store.dismiss([goes, gone_run])

    assert findings_in(store.examine()) == []
    assert state_of(store, stays) is State.FAILED
    assert store.rerun_run(run_that_stays) == "done"
    assert store.heartbeat(WORKER).cancel_requested == ()


def test_its_key_is_free_and_its_serial_goes_on(store: Store) -> None:
    worker(store)
    first = enqueue(store, key="only", serial="line")
    (claimed,) = claim(store)
    store.settle([finish(claimed, "failed")])

    assert store.dismiss([first]) == ["dismissed"]

    again = enqueue(store, key="only", serial="line")
    assert again != first
    assert state_of(store, again) is State.READY
