"""How runs go on: what the end of a task lets go, skips and ends.

Everything is decided anew from the states of a run's tasks, under the lock on the run. So
it does not matter how many ended at once, who looks, or how often.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from penstock.model.context import merged
from penstock.model.graph import Decision, arguments, candidates, decide, decode_graph, end_of
from penstock.model.ids import last_id_of, place_of, placed_id
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.store.batches import encode_rows, event_data
from penstock.store.ending import error_of, follow
from penstock.store.runs import Change, End, Locked, Output, RunWriter, raw_members
from penstock.store.scripts import Script, Step

_encode = msgspec.json.Encoder().encode


def advance(
    writer: RunWriter, runs: Sequence[Locked], known: Mapping[str, Output] | None = None
) -> Script[None]:
    """Let go what the ends of tasks have made ready, skip what is to be skipped, end runs.

    Needs the lock on the runs. `known` are outputs of tasks that need not be read again.
    """
    if not runs:
        return
    states = yield from states_of(writer, runs)
    yield from _hold(writer, runs, states)
    moving = [_Moving(run, states[run.id]) for run in runs if run.state == RunState.RUNNING]
    yield from _read_writes(writer, moving)
    for one in moving:
        one.decide()
    results = yield from _results(writer, moving, known or {})
    changes = [change for one in moving for change in one.changes(results)]
    for n, change in enumerate(changes):
        change.n = n
    decided = {one.run.id: one.decision.end for one in moving}
    ended = [
        (run, end, error_of(run, end, states[run.id]))
        for run in runs
        if (end := _end(run, states[run.id], decided)) is not None
    ]
    if not changes and not ended:
        return
    yield from writer.let_go(changes, [_told(n, *one) for n, one in enumerate(ended)])
    yield from follow(writer, ended)


class _Moving:
    """A run that is not paused, and what follows from the states of its tasks."""

    def __init__(self, run: Locked, states: Sequence[State]) -> None:
        self.run = run
        self.graph = decode_graph(run.graph)
        self.states = states
        self.writes: dict[int, str] = {}  # by place
        self.decision = Decision([], [], None)
        self._contexts: dict[int, dict[str, Any]] = {}

    @property
    def asks_context(self) -> bool:
        return self.graph.uses_context and bool(candidates(self.graph, self.states))

    def decide(self) -> None:
        self.decision = decide(
            self.graph,
            self.states,
            context_of=self._context_of,
            cancel_requested=self.run.cancel_requested,
        )

    def _context_of(self, place: int) -> dict[str, Any]:
        if place not in self._contexts:
            upstream = sorted(self.graph.ancestors[place])
            seen = [self.writes[one] for one in upstream if one in self.writes]
            self._contexts[place] = merged(self.run.inputs, seen)
        return self._contexts[place]

    @property
    def sources(self) -> Iterator[str]:
        """The tasks whose results are needed."""
        for place in self.decision.ready:
            for source in self.graph.nodes[place].outputs.values():
                yield placed_id(self.run.id, source)

    def changes(self, results: Mapping[str, str | None]) -> Iterator[Change]:
        for place in self.decision.skipped:
            yield Change(0, placed_id(self.run.id, place), State.SKIPPED)
        for place in self.decision.ready:
            args = self._arguments(place, results)
            yield Change(0, placed_id(self.run.id, place), State.READY, args)

    def _arguments(self, place: int, results: Mapping[str, str | None]) -> str | None:
        node = self.graph.nodes[place]
        if not node.outputs and node.context is None:
            return None  # complete since the run began
        return arguments(
            node,
            inputs=raw_members(self.run.inputs),
            result_of=lambda source: results.get(placed_id(self.run.id, source)),
            context=lambda: _encode(self._context_of(place)).decode(),
        )


def states_of(writer: RunWriter, runs: Sequence[Locked]) -> Script[dict[str, list[State]]]:
    """The states of each run's tasks, in the order of its graph."""
    rows = yield Step(writer.statements["run_states"], {"runs": _ranges(runs)})
    return {run_id: [State(one) for one in states.split(",")] for run_id, states in rows}


def _ranges(runs: Sequence[Locked]) -> str:
    return encode_rows([{"first": run.id, "last": last_id_of(run.id)} for run in runs])


def _hold(
    writer: RunWriter, runs: Sequence[Locked], states: Mapping[str, Sequence[State]]
) -> Script[None]:
    """Take back what of a paused run could begin."""
    held = [
        placed_id(run.id, place)
        for run in runs
        if run.state == RunState.PAUSED
        for place, state in enumerate(states[run.id])
        if state in {State.READY, State.SCHEDULED}
    ]
    if held:
        yield from writer.hold(held)


def _read_writes(writer: RunWriter, moving: Sequence[_Moving]) -> Script[None]:
    """Look up what completed tasks wrote, where somebody is about to see it."""
    asking = {one.run.id: one for one in moving if one.asks_context}
    if not asking:
        return
    ranges = _ranges([one.run for one in asking.values()])
    for run_id, task_id, writes in (yield Step(writer.statements["run_writes"], {"runs": ranges})):
        asking[run_id].writes[place_of(task_id)] = writes


def _results(
    writer: RunWriter, moving: Sequence[_Moving], known: Mapping[str, Output]
) -> Script[dict[str, str | None]]:
    """What the tasks returned that feed those which are let go."""
    results: dict[str, str | None] = {id_: output.result for id_, output in known.items()}
    wanted = {source for one in moving for source in one.sources}
    if unknown := sorted(wanted - results.keys()):
        rows = yield Step(writer.statements["run_results"], {"ids": encode_rows(unknown)})
        results |= {id_: result for id_, _, result in rows}
    return results


def _end(
    run: Locked, states: Sequence[State], decided: Mapping[str, RunState | None]
) -> RunState | None:
    if run.id in decided:
        end = decided[run.id]
    else:  # paused: what was running may have been the last of it
        graph = decode_graph(run.graph)
        end = end_of(graph, states, cancel_requested=run.cancel_requested)
    # It ran out of time: whatever was cancelled for that, it is a failure.
    return RunState.FAILED if end is not None and run.error is not None else end


def _told(n: int, run: Locked, end: RunState, error: str | None) -> End:
    data = event_data(error=msgspec.Raw(error.encode())) if error else None
    return End(n, run.id, end, error, data)
