"""How runs begin: with all of their tasks, in one transaction."""

from collections.abc import Iterator, Sequence

from penstock.model.context import merged
from penstock.model.graph import Decision, arguments, decide, decode_graph
from penstock.model.ids import placed_id
from penstock.model.runs import NewRun, RunState
from penstock.model.states import State
from penstock.store.batches import microseconds_in
from penstock.store.ending import follow
from penstock.store.runs import Locked, RunRow, RunWriter, TaskRow, raw_members
from penstock.store.scripts import Script


def start(writer: RunWriter, new: Sequence[NewRun]) -> Script[None]:
    """Write runs with all of their tasks, and let go what depends on nothing."""
    runs: list[RunRow] = []
    tasks: list[TaskRow] = []
    for run in new:
        decision = _first_decision(run)
        state = decision.end or RunState.RUNNING
        runs.append(
            RunRow(
                len(runs),
                run.id,
                run.workflow,
                state,
                run.graph,
                run.fingerprint,
                run.inputs,
                microseconds_in(run.timeout),
                run.follow_ups,
                run.parent_id,
            )
        )
        tasks.extend(_task_rows(run, decision, len(tasks)))
    written = set((yield from writer.start(runs, tasks)))
    ended = [
        Locked(
            row.id,
            row.workflow,
            row.state,
            row.graph,
            row.inputs,
            cancel_requested=False,
            error=None,
            follow_ups=row.follow_ups,
        )
        for row in runs
        if row.id in written and row.state != RunState.RUNNING
    ]
    yield from follow(writer, [(run, RunState(run.state), None) for run in ended])


def _first_decision(run: NewRun) -> Decision:
    graph = decode_graph(run.graph)
    return decide(
        graph, [State.WAITING] * len(graph.nodes), context_of=lambda _: merged(run.inputs, ())
    )


def _task_rows(run: NewRun, decision: Decision, begin: int) -> Iterator[TaskRow]:
    graph = decode_graph(run.graph)
    inputs = raw_members(run.inputs)
    ready, skipped = set(decision.ready), set(decision.skipped)
    for place, node in enumerate(graph.nodes):
        state = (
            State.READY if place in ready else State.SKIPPED if place in skipped else State.WAITING
        )
        yield TaskRow(
            begin + place,
            placed_id(run.id, place),
            run.id,
            node.task,
            node.queue,
            node.priority,
            node.max_crashes,
            arguments(node, inputs=inputs, result_of=lambda _: None, context=lambda: run.inputs),
            state,
            node.follow_ups,
            run.trace,
        )
