"""What a tracing system sends along arrives at every attempt, whatever became of the first."""

from msgspec.structs import replace

from penstock.model.follow_ups import FollowUp, encode_follow_ups
from penstock.model.graph import ForEach, Node
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.flows import chain, claim_all, completed, graph, new_run, node
from tests.contract.support import (
    MINUTE,
    OBSERVER,
    TASK,
    WORKER,
    claim,
    declare_dead,
    finish,
    new,
    worker,
)

TRACE = '{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'
AFTER = FollowUp(task=TASK, queue="default", priority=0, max_crashes=3, wants=())


def test_an_execution_without_a_trace_is_claimed_without_one(store: Store) -> None:
    worker(store)
    store.create([new()])
    assert [one.trace for one in claim(store)] == [None]


def test_a_trace_is_there_at_the_claim_and_at_the_retry(store: Store, clock: ManualClock) -> None:
    worker(store)
    store.create([replace(new(), trace=TRACE), new()])

    first, other = claim(store)
    assert (first.trace, other.trace) == (TRACE, None)
    store.settle([finish(first, "retry")])
    clock.advance(MINUTE)
    store.promote()

    (again,) = claim(store)
    assert (again.attempt, again.trace) == (2, TRACE)


def test_a_trace_survives_the_death_of_a_worker(store: Store) -> None:
    worker(store)
    worker(store, OBSERVER)
    store.create([replace(new(), trace=TRACE)])
    claim(store)
    declare_dead(store, WORKER)

    (again,) = claim(store, OBSERVER)
    assert again.trace == TRACE


def test_what_follows_an_execution_has_its_trace(store: Store) -> None:
    worker(store)
    follow_ups = encode_follow_ups(on_success=AFTER, on_failure=None)
    store.create([replace(new(), follow_ups=follow_ups, trace=TRACE)])
    (first,) = claim(store)
    store.settle([replace(finish(first), has_follow_ups=True)])

    (after,) = claim(store)
    assert (after.lease.execution_id != first.lease.execution_id, after.trace) == (True, TRACE)


def test_every_task_of_a_run_and_what_follows_the_run_have_its_trace(store: Store) -> None:
    worker(store)
    follow_ups = encode_follow_ups(on_success=AFTER, on_failure=None)
    store.start_runs([replace(new_run(chain(3), follow_ups=follow_ups), trace=TRACE)])

    traces = []
    while claimed := claim_all(store):
        traces += [one.trace for one in claimed]
        store.settle([completed(one) for one in claimed])

    assert traces == [TRACE] * 4


def test_every_element_of_a_list_has_the_trace_of_its_run(store: Store) -> None:
    worker(store)
    plain = node("each", 0)
    each = Node(
        **{field: getattr(plain, field) for field in plain.__struct_fields__}
        | {"for_each": ForEach("item", 0)}
    )
    store.start_runs([replace(new_run(graph(node("list"), each)), trace=TRACE)])
    (first,) = claim_all(store)
    store.settle([completed(first, "[1, 2, 3]")])

    assert [one.trace for one in claim_all(store)] == [TRACE] * 3
