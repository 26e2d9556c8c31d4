"""How runs go on: what the end of a task lets go, skips and ends.

Everything is decided anew from the states of a run's tasks, under the lock on the run. So
it does not matter how many ended at once, who looks, or how often.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from penstock.model.context import merged
from penstock.model.graph import Decision, arguments, candidates, decide, decode_graph, end_of
from penstock.model.ids import MOST_ELEMENTS, last_place_of, place_of, placed_id
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.store import fanning
from penstock.store.batches import encode_rows, event_data
from penstock.store.ending import error_of, follow, trace_of
from penstock.store.fanning import ELEMENTS, Group, Opened
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
    looked_at = [Standing(run, states[run.id]) for run in runs]
    results: dict[str, str | None] = {id_: one.result for id_, one in (known or {}).items()}
    yield from _look_at_lists(writer, looked_at, results)
    yield from _hold(writer, [one for one in looked_at if one.paused])
    moving = [one for one in looked_at if not one.paused]
    yield from _read_writes(writer, moving)
    for one in moving:
        yield from _decide(writer, one, results)
    yield from _read_results(writer, moving, results)
    changes = [change for one in looked_at for change in one.changes(results)]
    for n, change in enumerate(changes):
        change.n = n
    ended = [
        (one.run, end, error_of(one.run, end, one.states))
        for one in looked_at
        if (end := one.end()) is not None
    ]
    if changes or ended:
        why = yield from _reasons(
            writer,
            [run for run, end, _ in ended if end is RunState.CANCELLED and run.cancel_requested],
        )
        ends = [_told(n, *one, why.get(one[0].id)) for n, one in enumerate(ended)]
        yield from writer.let_go(changes, ends)
        yield from follow(writer, ended)


class Standing:
    """A run that nobody else can change meanwhile, and what follows from where its tasks stand."""

    def __init__(self, run: Locked, states: str) -> None:
        self.run = run
        self.graph = decode_graph(run.graph)
        self.paused = run.state == RunState.PAUSED
        read, lists = _read_states(states)
        self.states = list(read)
        # The tasks that wait for their elements.
        self.lists = [Group(run.id, place, count) for place, count in lists]
        self.writes: dict[int, str] = {}  # by place
        self.decision = Decision((), (), None)
        self._more: list[Change] = []
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

    @property
    def to_open(self) -> dict[int, str]:
        """The tasks whose turn it is to run for each element of a list, and who returned it."""
        nodes = self.graph.nodes
        return {
            place: self.id_of(for_each.source)
            for place in self.decision.ready
            if (for_each := nodes[place].for_each) is not None
        }

    def lists_at(self, places: Iterable[int]) -> list[Group]:
        """Those of these tasks that run for each element of a list, which is not open."""
        nodes = self.graph.nodes
        return [
            Group(self.run.id, place, MOST_ELEMENTS)
            for place in places
            if nodes[place].for_each is not None
        ]

    def settle(self, place: int, change: Change) -> None:
        """Note what becomes of a task that waits for elements."""
        self._more.append(change)
        state = State(change.state)
        self.states[place] = State.RUNNING if state is State.WAITING else state
        if change.writes is not None:
            self.writes[place] = change.writes

    def let_go(self, changes: Sequence[Change]) -> None:
        self._more.extend(changes)

    def _context_of(self, place: int) -> dict[str, Any]:
        if place not in self._contexts:
            upstream = sorted(self.graph.ancestors[place])
            seen = [self.writes[one] for one in upstream if one in self.writes]
            self._contexts[place] = merged(self.run.inputs, seen)
        return self._contexts[place]

    def id_of(self, place: int) -> str:
        return placed_id(self.run.id, place)

    @property
    def sources(self) -> Iterator[str]:
        """The tasks whose results are needed."""
        for place in self.decision.ready:
            yield from map(self.id_of, self.graph.nodes[place].outputs.values())

    def changes(self, results: Mapping[str, str | None]) -> Iterator[Change]:
        yield from self._more
        for place in self.decision.skipped:
            yield Change(0, self.id_of(place), State.SKIPPED)
        for place in self.decision.ready:
            node = self.graph.nodes[place]
            # Without these it is complete since the run began.
            fed = node.outputs or node.context is not None
            args = self.arguments(place, results) if fed else None
            yield Change(0, self.id_of(place), State.READY, args)

    def arguments(
        self, place: int, results: Mapping[str, str | None], element: str | None = None
    ) -> str:
        return arguments(
            self.graph.nodes[place],
            inputs=raw_members(self.run.inputs),
            result_of=lambda source: results.get(self.id_of(source)),
            context=lambda: _encode(self._context_of(place)).decode(),
            element=element,
        )

    def end(self) -> RunState | None:
        end = self.decision.end
        if self.paused:  # what was running may have been the last of it
            end = end_of(self.graph, self.states, cancel_requested=self.run.cancel_requested)
        # It ran out of time: whatever was cancelled for that, it is a failure.
        return RunState.FAILED if end is not None and self.run.error is not None else end


def states_of(writer: RunWriter, runs: Sequence[Locked]) -> Script[dict[str, str]]:
    """Where each run's tasks stand, in the order of its graph, in one text."""
    rows = yield Step(writer.statements["run_states"], {"runs": _ranges(runs)})
    return dict(rows)


# Many runs stand where others have stood before. Few are kept: a text may name a thousand tasks.
@lru_cache(maxsize=128)
def _read_states(text: str) -> tuple[tuple[State, ...], tuple[tuple[int, int], ...]]:
    """Return the states, and the places of tasks that wait for so many elements."""
    tokens = text.split(",")
    lists = tuple(
        (place, int(token.removeprefix(ELEMENTS)))
        for place, token in enumerate(tokens)
        if token.startswith(ELEMENTS)
    )
    states = tuple(
        State.RUNNING if token.startswith(ELEMENTS) else State(token) for token in tokens
    )
    return states, lists


def _ranges(runs: Sequence[Locked]) -> str:
    return encode_rows([{"first": run.id, "last": last_place_of(run.id)} for run in runs])


def _look_at_lists(
    writer: RunWriter, runs: Sequence[Standing], results: dict[str, str | None]
) -> Script[None]:
    """End the tasks whose elements have all ended, and let go what a pause held back."""
    groups = [(one, group) for one in runs for group in one.lists]
    counted = yield from fanning.count(writer, [group for _, group in groups])
    looked_at = [
        (one, group)
        for one, group in groups
        if counted[group.id].live == 0 or (counted[group.id].held and not one.paused)
    ]
    elements = yield from fanning.read(writer, [group for _, group in looked_at])
    for one, group in looked_at:
        found = elements[group.id]
        if counted[group.id].live:
            waiting = [element for element in found if element.state is State.WAITING]
            one.let_go([Change(0, element.id, State.READY) for element in waiting])
        else:
            change = fanning.close_list(group, found)
            results[group.id] = change.result
            one.settle(group.place, change)


def _hold(writer: RunWriter, paused: Sequence[Standing]) -> Script[None]:
    """Take back what of a paused run could begin."""
    could_begin = {State.READY, State.SCHEDULED}
    held = [
        one.id_of(place)
        for one in paused
        for place, state in enumerate(one.states)
        if state in could_begin
    ]
    elements = yield from fanning.read(writer, [group for one in paused for group in one.lists])
    for found in elements.values():
        held += [element.id for element in found if element.state in could_begin]
    if held:
        yield from writer.hold(held)


def _read_writes(writer: RunWriter, moving: Sequence[Standing]) -> Script[None]:
    """Look up what completed tasks wrote, where somebody is about to see it."""
    asking = {one.run.id: one for one in moving if one.asks_context}
    if not asking:
        return
    ranges = _ranges([one.run for one in asking.values()])
    rows = yield Step(writer.statements["run_writes"], {"runs": ranges})
    for run_id, task_id, writes in rows:
        asking[run_id].writes[place_of(task_id)] = writes


def _decide(writer: RunWriter, one: Standing, results: dict[str, str | None]) -> Script[None]:
    """Decide, and decide again when a list turns out to be empty, or to be none."""
    one.decide()
    while places := one.to_open:
        yield from _read_missing(writer, [*places.values(), *one.sources], results)
        stored = yield from fanning.read(writer, one.lists_at(places))
        for place, source in places.items():
            opened = fanning.open_list(
                one.run.id,
                place,
                one.graph.nodes[place],
                results[source],
                arguments_of=lambda item, place=place: one.arguments(place, results, item),  # type: ignore[misc]
                stored=stored[one.id_of(place)],
            )
            results[one.id_of(place)] = opened.change.result
            one.settle(place, opened.change)
            yield from _write_elements(writer, one, opened)
        one.decide()
    never_opened = yield from fanning.read(writer, one.lists_at(one.decision.skipped))
    for stored_of in never_opened.values():
        one.let_go(fanning.not_needed(stored_of))


def _write_elements(writer: RunWriter, one: Standing, opened: Opened) -> Script[None]:
    if opened.new:
        trace = yield from trace_of(writer, one.run.id)
        for element in opened.new:
            element.trace = trace
        yield from writer.add(opened.new)
    if opened.reset:
        yield from writer.reset(opened.reset)
    one.let_go(opened.again)


def _read_results(
    writer: RunWriter, moving: Sequence[Standing], results: dict[str, str | None]
) -> Script[None]:
    """Look up what the tasks returned that feed those which are let go."""
    yield from _read_missing(writer, [id_ for one in moving for id_ in one.sources], results)


def _read_missing(
    writer: RunWriter, ids: Sequence[str], results: dict[str, str | None]
) -> Script[None]:
    if unknown := sorted(set(ids) - results.keys()):
        rows = yield Step(writer.statements["run_results"], {"ids": encode_rows(unknown)})
        results.update({id_: result for id_, _, result in rows})


def _reasons(writer: RunWriter, cancelled: Sequence[Locked]) -> Script[dict[str, str | None]]:
    """Why runs were cancelled, as data of the event that ends them."""
    if not cancelled:
        return {}
    ids = encode_rows([run.id for run in cancelled])
    rows = yield Step(writer.statements["cancel_reasons"], {"ids": ids})
    return dict(rows)


def _told(n: int, run: Locked, end: RunState, error: str | None, why: str | None) -> End:
    data = event_data(error=msgspec.Raw(error.encode())) if error else why
    return End(n, run.id, end, error, data)
