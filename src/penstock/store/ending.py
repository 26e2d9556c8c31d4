"""What the end of a run brings with it, in the transaction that ends it."""

from collections.abc import Sequence

import msgspec

from penstock.model.executions import NewExecution
from penstock.model.follow_ups import decode_follow_ups
from penstock.model.graph import decode_graph, unforgiven
from penstock.model.ids import new_id, place_of, placed_id
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.store.batches import encode_rows
from penstock.store.runs import Locked, RunWriter
from penstock.store.scripts import Script, Step

_encode = msgspec.json.Encoder().encode


def follow(writer: RunWriter, ended: Sequence[tuple[Locked, RunState, str | None]]) -> Script[None]:
    """Enqueue what follows the ends of these runs, in the transaction that ends them."""
    new: list[NewExecution] = []
    for run, end, error in ended:
        if run.follow_ups is None:
            continue
        both = decode_follow_ups(run.follow_ups)
        chosen = {RunState.COMPLETED: both.on_success, RunState.FAILED: both.on_failure}.get(end)
        if chosen is None:
            continue
        facts: dict[str, object] = {
            "execution_id": run.id,
            "workflow": run.workflow,
            "error": msgspec.Raw((error or "null").encode()),
        }
        if "result" in chosen.wants:
            facts["result"] = yield from _all_results(writer, run)
        wanted = {name: facts[name] for name in chosen.wants}
        new.append(
            NewExecution(
                id=new_id(),
                task=chosen.task,
                args=_encode(wanted).decode(),
                queue=chosen.queue,
                priority=chosen.priority,
                max_crashes=chosen.max_crashes,
                trace=(yield from trace_of(writer, run.id)),
            )
        )
    if new:
        yield from writer.create(new)


def trace_of(writer: RunWriter, run_id: str) -> Script[str | None]:
    """What the tasks of a run pass on to whatever comes of them."""
    rows = yield Step(writer.statements["run_trace"], {"task_id": placed_id(run_id, 0)})
    return next((trace for (trace,) in rows), None)


def _all_results(writer: RunWriter, run: Locked) -> Script[dict[str, msgspec.Raw]]:
    nodes = decode_graph(run.graph).nodes
    ids = encode_rows([placed_id(run.id, place) for place in range(len(nodes))])
    rows = yield Step(writer.statements["run_results"], {"ids": ids})
    return {
        nodes[place_of(id_)].name: msgspec.Raw(result.encode())
        for id_, state, result in sorted(rows)
        if state == State.COMPLETED and result is not None
    }


def error_of(run: Locked, end: RunState, states: Sequence[State]) -> str | None:
    """Why a run failed, as JSON text; None if it did not."""
    if end is not RunState.FAILED or run.error is not None:
        return run.error
    graph = decode_graph(run.graph)
    names = [graph.nodes[place].name for place in unforgiven(graph, states)]
    return _encode(
        {"type": "TasksFailed", "message": f"Failed: {', '.join(names)}.", "tasks": names}
    ).decode()
