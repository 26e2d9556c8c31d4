"""How runs of workflows begin and go on, on every database.

The decisions are pure (`model/graph.py`); here they are given what is stored, and written
down. What a database writes in its own way is the business of its `RunWriter`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock.model.context import merged
from penstock.model.events import RunEvent
from penstock.model.executions import Lease, NewExecution
from penstock.model.follow_ups import decode_follow_ups
from penstock.model.graph import (
    Decision,
    Graph,
    arguments,
    candidates,
    decide,
    decode_graph,
    end_of,
    unforgiven,
)
from penstock.model.ids import last_id_of, new_id, place_of, placed_id
from penstock.model.outcomes import Completed, Outcome
from penstock.model.runs import NewRun, RunAnswer, RunState
from penstock.model.states import FINAL, State
from penstock.store.batches import encode_rows, event_data, microseconds_in
from penstock.store.scripts import Script, Step
from penstock.store.sql import Statement

_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class RunRow(msgspec.Struct):
    """A run as it is written when it starts."""

    n: int
    id: str
    workflow: str
    state: str
    graph: str
    fingerprint: str
    inputs: str
    timeout_us: int | None
    follow_ups: str | None


class TaskRow(msgspec.Struct):
    """A task of a run as it is written when the run starts."""

    n: int
    id: str
    root_id: str
    task: str
    queue: str
    priority: int
    max_crashes: int
    args: str
    state: str
    follow_ups: str | None


class Change(msgspec.Struct):
    """A waiting task that goes: ready with these arguments (None: as they are), or skipped."""

    n: int
    id: str
    state: str
    args: str | None = None


class End(msgspec.Struct):
    """How a run ends."""

    n: int
    id: str
    state: str
    error: str | None
    data: str | None


class Output(NamedTuple):
    """What a task has just left behind, known without another look."""

    result: str
    writes: str | None


class Locked(NamedTuple):
    """A live run that nobody else can change meanwhile."""

    id: str
    workflow: str
    state: str
    graph: str
    inputs: str
    cancel_requested: bool
    error: str | None
    follow_ups: str | None


class RunChange(NamedTuple):
    """What a person, or the clock, does to a run as a whole."""

    state: RunState | None = None
    event: RunEvent | None = None
    cancel: bool = False
    error: str | None = None


class RunWriter(Protocol):
    """How one database writes what has been decided."""

    @property
    def statements(self) -> Mapping[str, Statement]: ...

    def start(self, runs: Sequence[RunRow], tasks: Sequence[TaskRow]) -> Script[list[str]]:
        """Write what is not there yet; return the ids of the runs that were written."""
        ...

    def let_go(self, changes: Sequence[Change], ends: Sequence[End]) -> Script[None]: ...

    def hold(self, task_ids: Sequence[str]) -> Script[None]: ...

    def create(self, executions: Sequence[NewExecution]) -> Script[object]: ...

    def change(self, run_id: str, change: "RunChange") -> Script[None]: ...


def outputs_of(outcomes: Iterable[Outcome], lost: Iterable[Lease]) -> dict[str, Output]:
    """What the tasks left behind that have just completed."""
    refused = set(lost)
    return {
        outcome.lease.execution_id: Output(outcome.result, outcome.writes)
        for outcome in outcomes
        if isinstance(outcome, Completed) and outcome.lease not in refused
    }


# --- starting ---------------------------------------------------------------------------


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
    yield from _follow(writer, [(run, RunState(run.state), None) for run in ended])


def _first_decision(run: NewRun) -> Decision:
    graph = decode_graph(run.graph)
    return decide(
        graph, [State.WAITING] * len(graph.nodes), context_of=lambda _: merged(run.inputs, ())
    )


def _task_rows(run: NewRun, decision: Decision, begin: int) -> Iterator[TaskRow]:
    graph = decode_graph(run.graph)
    inputs = _raw(run.inputs)
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
        )


# --- going on ---------------------------------------------------------------------------


def lock(statements: Mapping[str, Statement], run_ids: Iterable[str]) -> Script[list[Locked]]:
    """Lock the live ones among these runs, before anything else is read or written."""
    rows = yield Step(statements["lock_runs"], {"ids": encode_rows(sorted(set(run_ids)))})
    return [Locked(*row) for row in rows]


def advance(
    writer: RunWriter, runs: Sequence[Locked], known: Mapping[str, Output] | None = None
) -> Script[None]:
    """Let go what the ends of tasks have made ready, skip what is to be skipped, end runs.

    Needs the lock on the runs. `known` are outputs of tasks that need not be read again.
    """
    if not runs:
        return
    known = known or {}
    states = yield from _states(writer, runs)
    held = [
        placed_id(run.id, place)
        for run in runs
        if run.state == RunState.PAUSED
        for place, state in enumerate(states[run.id])
        if state in {State.READY, State.SCHEDULED}
    ]
    if held:
        yield from writer.hold(held)
    moving = [run for run in runs if run.state == RunState.RUNNING]
    writes = yield from _writes(writer, moving, states)
    decisions: dict[str, Decision] = {}
    contexts: dict[tuple[str, int], dict[str, Any]] = {}
    for run in moving:
        graph = decode_graph(run.graph)

        def context_of(place: int, run: Locked = run, graph: Graph = graph) -> dict[str, Any]:
            if (run.id, place) not in contexts:
                upstream = sorted(graph.ancestors[place])
                mine = (writes.get(placed_id(run.id, one)) for one in upstream)
                contexts[run.id, place] = merged(run.inputs, (text for text in mine if text))
            return contexts[run.id, place]

        decision = decide(
            graph, states[run.id], context_of=context_of, cancel_requested=run.cancel_requested
        )
        decisions[run.id] = decision
        for place in decision.ready:
            if graph.nodes[place].context is not None:
                context_of(place)
    results = yield from _results(writer, moving, decisions, known)
    changes = list(_changes(moving, decisions, results, contexts))
    ending = [
        (run, end)
        for run in runs
        if (end := _end(run, states[run.id], decisions.get(run.id))) is not None
    ]
    if not changes and not ending:
        return
    told = [(run, end, _error(run, end, states[run.id])) for run, end in ending]
    ends = [
        End(n, run.id, end, error, event_data(error=msgspec.Raw(error.encode())) if error else None)
        for n, (run, end, error) in enumerate(told)
    ]
    yield from writer.let_go(changes, ends)
    yield from _follow(writer, told)


def _states(writer: RunWriter, runs: Sequence[Locked]) -> Script[dict[str, list[State]]]:
    rows = yield Step(writer.statements["run_states"], {"runs": _ranges(runs)})
    return {run_id: [State(one) for one in states.split(",")] for run_id, states in rows}


def _ranges(runs: Sequence[Locked]) -> str:
    return encode_rows([{"first": run.id, "last": last_id_of(run.id)} for run in runs])


def _writes(
    writer: RunWriter, runs: Sequence[Locked], states: Mapping[str, Sequence[State]]
) -> Script[dict[str, str]]:
    """What completed tasks wrote, where somebody is about to see it."""
    asking = []
    for run in runs:
        graph = decode_graph(run.graph)
        if graph.uses_context and candidates(graph, states[run.id]):
            asking.append(run)
    if not asking:
        return {}
    return dict((yield Step(writer.statements["run_writes"], {"runs": _ranges(asking)})))


def _results(
    writer: RunWriter,
    runs: Sequence[Locked],
    decisions: Mapping[str, Decision],
    known: Mapping[str, Output],
) -> Script[dict[str, str | None]]:
    """What the tasks returned that feed those which are let go."""
    results: dict[str, str | None] = {id_: output.result for id_, output in known.items()}
    wanted = {
        placed_id(run.id, source)
        for run in runs
        for place in decisions[run.id].ready
        for source in decode_graph(run.graph).nodes[place].outputs.values()
    }
    if unknown := sorted(wanted - results.keys()):
        rows = yield Step(writer.statements["run_results"], {"ids": encode_rows(unknown)})
        results |= {id_: result for id_, _, result, _ in rows}
    return results


def _changes(
    runs: Sequence[Locked],
    decisions: Mapping[str, Decision],
    results: Mapping[str, str | None],
    contexts: Mapping[tuple[str, int], Mapping[str, Any]],
) -> Iterator[Change]:
    n = 0
    for run in runs:
        decision = decisions[run.id]
        graph = decode_graph(run.graph)
        for place in decision.skipped:
            yield Change(n, placed_id(run.id, place), State.SKIPPED)
            n += 1
        for place in decision.ready:
            node = graph.nodes[place]
            args = None
            if node.outputs or node.context is not None:
                args = arguments(
                    node,
                    inputs=_raw(run.inputs),
                    result_of=lambda source, run=run: results.get(placed_id(run.id, source)),  # type: ignore[misc]
                    context=lambda run=run, place=place: _encode(  # type: ignore[misc]
                        contexts[run.id, place]
                    ).decode(),
                )
            yield Change(n, placed_id(run.id, place), State.READY, args)
            n += 1


def _end(run: Locked, states: Sequence[State], decision: Decision | None) -> RunState | None:
    end = (
        end_of(decode_graph(run.graph), states, cancel_requested=run.cancel_requested)
        if decision is None
        else decision.end
    )
    # It ran out of time: whatever was cancelled for it, that is a failure.
    return RunState.FAILED if end is not None and run.error is not None else end


def _error(run: Locked, end: RunState, states: Sequence[State]) -> str | None:
    if end is not RunState.FAILED or run.error is not None:
        return run.error
    graph = decode_graph(run.graph)
    names = [graph.nodes[place].name for place in unforgiven(graph, states)]
    return _encode(
        {"type": "TasksFailed", "message": f"Failed: {', '.join(names)}.", "tasks": names}
    ).decode()


# --- what people do -----------------------------------------------------------------------


def pause(writer: RunWriter, run_id: str) -> Script[RunAnswer]:
    return (yield from _switch(writer, run_id, RunState.PAUSED, RunEvent.PAUSED))


def resume(writer: RunWriter, run_id: str) -> Script[RunAnswer]:
    return (yield from _switch(writer, run_id, RunState.RUNNING, RunEvent.RESUMED))


def _switch(writer: RunWriter, run_id: str, state: RunState, event: RunEvent) -> Script[RunAnswer]:
    locked = yield from lock(writer.statements, [run_id])
    if not locked:
        return (yield from absent(writer.statements, run_id))
    if locked[0].state == state:
        return "already"
    yield from writer.change(run_id, RunChange(state, event))
    yield from advance(writer, [locked[0]._replace(state=state)])
    return "done"


def absent(statements: Mapping[str, Statement], run_id: str) -> Script[RunAnswer]:
    """Why there is no live run of this id."""
    known = yield Step(statements["run_state"], {"id": run_id})
    return "finished" if known else "unknown"


def live_tasks(writer: RunWriter, run: Locked) -> Script[list[str]]:
    states = yield from _states(writer, [run])
    return [
        placed_id(run.id, place) for place, state in enumerate(states[run.id]) if state not in FINAL
    ]


# --- what follows -----------------------------------------------------------------------


def _follow(
    writer: RunWriter, ended: Sequence[tuple[Locked, RunState, str | None]]
) -> Script[None]:
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
            )
        )
    if new:
        yield from writer.create(new)


def _all_results(writer: RunWriter, run: Locked) -> Script[dict[str, msgspec.Raw]]:
    nodes = decode_graph(run.graph).nodes
    ids = encode_rows([placed_id(run.id, place) for place in range(len(nodes))])
    rows = yield Step(writer.statements["run_results"], {"ids": ids})
    return {
        nodes[place_of(id_)].name: msgspec.Raw(result.encode())
        for id_, state, result, _ in sorted(rows)
        if state == State.COMPLETED and result is not None
    }


def _raw(text: str) -> dict[str, bytes]:
    return {name: bytes(raw) for name, raw in _members(text).items()}
