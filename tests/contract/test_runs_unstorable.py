"""A task of a run whose outcome no database can store: the run learns of it all the same."""

from penstock.model.states import State
from penstock.store.contract import Store
from tests.contract.flows import chain, claim_all, completed, run_of, start, states
from tests.contract.support import worker

NUL = '"\x00"'


def test_a_run_goes_on_after_an_outcome_that_cannot_be_stored(store: Store) -> None:
    worker(store)
    run_id = start(store, chain(2))
    (first,) = claim_all(store)

    assert store.settle([completed(first, result=NUL)]) == []
    store.propagate()

    assert states(store, run_id) == [State.FAILED, State.SKIPPED]
    assert run_of(store, run_id).state == "failed"
