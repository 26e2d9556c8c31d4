"""Words about runs of workflows: graphs in a line, and workers that live them through."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from msgspec.structs import replace

from penstock.model.executions import Claimed
from penstock.model.graph import Graph, Node, encode_graph
from penstock.model.ids import new_run_id, place_of, placed_id
from penstock.model.outcomes import Completed, Outcome, Suspended, signal_named
from penstock.model.rules import ALL_SUCCEEDED, Rule
from penstock.model.runs import NewRun, RunSnapshot
from penstock.model.states import State
from penstock.store.contract import Store
from tests.contract.support import QUEUE, TASK, WORKER, finish

FLOW = "nightly"
APPROVED = signal_named("approved")


def node(
    name: str,
    *after: int,
    rule: Rule = ALL_SUCCEEDED,
    inputs: Sequence[str] = (),
    outputs: Mapping[str, int] | None = None,
    context: str | None = None,
    queue: str = QUEUE,
    max_crashes: int = 3,
) -> Node:
    """A task of a workflow; all of them are the suite's one task, told apart by their place."""
    return Node(
        name=name,
        task=TASK,
        queue=queue,
        max_crashes=max_crashes,
        after=tuple(after),
        rule=rule,
        inputs=tuple(inputs),
        outputs=dict(outputs or {}),
        context=context,
    )


def graph(*nodes: Node) -> Graph:
    return Graph(workflow=FLOW, nodes=nodes)


def chain(length: int) -> Graph:
    first = node("t0")
    rest = (node(f"t{n}", n - 1, outputs={"before": n - 1}) for n in range(1, length))
    return graph(first, *rest)


def diamond() -> Graph:
    return graph(
        node("start", inputs=["day"]),
        node("left", 0, outputs={"value": 0}),
        node("right", 0, outputs={"value": 0}),
        node("join", 1, 2, outputs={"left": 1, "right": 2}),
    )


def new_run(
    shape: Graph,
    inputs: str = '{"day":"monday"}',
    *,
    timeout: timedelta | None = None,
    follow_ups: str | None = None,
) -> NewRun:
    return NewRun(
        id=new_run_id(),
        workflow=shape.workflow,
        graph=encode_graph(shape),
        fingerprint="0" * 8,
        inputs=inputs,
        timeout=timeout,
        follow_ups=follow_ups,
    )


def start(
    store: Store,
    shape: Graph,
    inputs: str = '{"day":"monday"}',
    *,
    timeout: timedelta | None = None,
    follow_ups: str | None = None,
) -> str:
    new = new_run(shape, inputs, timeout=timeout, follow_ups=follow_ups)
    store.start_runs([new])
    return new.id


def claim_all(store: Store, worker_id: str = WORKER, limit: int = 100) -> list[Claimed]:
    return store.claim(worker_id, queues=[QUEUE], tasks=[TASK], limit=limit)


def place(claimed: Claimed) -> int:
    return place_of(claimed.lease.execution_id)


def completed(claimed: Claimed, result: str = "null", writes: str | None = None) -> Outcome:
    done = Completed(lease=claimed.lease, result=result, writes=writes)
    return replace(done, run_id=claimed.run_id)


def suspended(claimed: Claimed, awaits: str = APPROVED) -> Outcome:
    return Suspended(lease=claimed.lease, run_id=claimed.run_id, awaits=awaits)


def child_of(store: Store, parent: Claimed, step: str = "child") -> str:
    """Start a run that the parent may wait for."""
    child = replace(new_run(chain(2)), parent_id=parent.lease.execution_id)
    return store.start_child(parent.lease, step, child)


def live_through(
    store: Store,
    ending: Callable[[Claimed], Outcome] = completed,
    *,
    worker_id: str = WORKER,
    batch: int = 100,
) -> list[int]:
    """Run whatever is ready until nothing is; return the places in the order of their turns."""
    turns: list[int] = []
    while claimed := claim_all(store, worker_id, batch):
        turns += [place(one) for one in claimed]
        assert store.settle([ending(one) for one in claimed]) == []
    return turns


def failing(*places: int) -> Callable[[Claimed], Outcome]:
    """Complete everything but these."""
    return lambda one: finish(one, "failed") if place(one) in places else completed(one)


def states(store: Store, run_id: str) -> list[State]:
    return [task.state for task in store.tasks_of(run_id)]


def run_of(store: Store, run_id: str) -> RunSnapshot:
    (found,) = store.runs([run_id])
    return found


def task_at(run_id: str, at: int) -> str:
    return placed_id(run_id, at)
