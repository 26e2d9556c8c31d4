"""Everything that a store does in the life of a few tasks, with nothing left over."""

from datetime import timedelta

from penstock.model.executions import Claimed, Lease
from penstock.model.outcomes import Completed, Outcome, Released, RetryScheduled, concerns_nobody
from penstock.model.states import State
from penstock.store.contract import Store
from tests.contract.databases import Database
from tests.contract.support import BOOM, MINUTE, WORKER, beat_of, claim, finish, ids, new, worker
from tests.performance.filling import GONE, LINE, add_live

HOUR = timedelta(hours=1)


def live_through(store: Store, database: Database) -> None:
    """Run every operation, those of maintenance also when there is nothing for them to do."""
    live = add_live(store, database)
    leases = [Lease(id_, 1, WORKER) for id_ in live["running"]]

    assert store.heartbeat(WORKER).alive
    assert store.chores().orphans
    assert store.promote().promoted == 1
    assert [one.id for one in store.recover(WORKER)] == live["orphan"]
    assert store.start(leases) == []
    assert store.defer(leases) == []
    assert store.undefer(leases) == []
    assert store.reconcile(WORKER, leases) == []
    outcomes: list[Outcome] = [
        Completed(lease=leases[0], serial=LINE),
        Released(lease=leases[1]),
    ]
    assert store.settle(outcomes) == []
    assert store.settle(outcomes) == []  # its reply was lost, perhaps

    claimed: list[Claimed] = []
    while more := claim(store):
        claimed += more
    assert len(claimed) == 5
    assert not store.chores().orphans
    assert store.recover(WORKER) == []
    assert store.promote().promoted == 0

    assert store.cancel(live["scheduled"] + ids(claimed[:1])) == ["cancelled", "requested"]
    assert store.heartbeat(WORKER).cancel_requested == tuple(ids(claimed[:1]))
    retried = claimed[1].lease
    endings = [finish(one) for one in claimed if one.lease != retried]
    plain = [one for one in endings if concerns_nobody(one)]
    others: list[Outcome] = [one for one in endings if not concerns_nobody(one)]
    assert plain
    assert store.settle(plain) == []
    assert store.settle([*others, RetryScheduled(lease=retried, error=BOOM, delay=MINUTE)]) == []

    first, second, again = new(key="again", serial=LINE), new(serial=LINE), new(key="again")
    created = store.create([first, second])
    assert [answer.state for answer in created] == [State.READY, State.WAITING]
    assert [answer.id for answer in store.create([again])] == [first.id]
    assert store.explain_waiting(second.id) is not None
    assert store.gauges().scheduled == 1
    left = [first.id, second.id, retried.execution_id]
    assert store.cancel(left) == ["cancelled"] * 3

    worker(store, GONE)
    assert store.recover(WORKER, dead=[beat_of(store, GONE)]) == []
    assert store.sweep(older_than=HOUR).removed == 0
    assert store.sweep_events(older_than=HOUR).removed == 0
    assert store.find(state=State.FAILED) == []
    assert [one.id for one in store.get(left)] == left
    assert store.history(second.id)
