"""A workflow as it is stored with each of its runs, and what the ends of its tasks lead to.

Everything here is a pure function of the states of the tasks: whoever ends one, in whatever
order, and however often it is asked, comes to the same decision.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec

from penstock.model import rules
from penstock.model.ids import placed_id
from penstock.model.rules import ALL_SUCCEEDED, Rule
from penstock.model.runs import RunState
from penstock.model.states import FINAL, State

MOST_DECISIONS = 1_000  # kept for each graph
MOST_NODES = 64  # of a graph whose decisions are kept: in larger ones they hardly come again


class ForEach(msgspec.Struct, frozen=True):
    """A task runs once for each element of a list."""

    parameter: str  # that takes the element
    source: int  # the place of the task that returns the list


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One task of a workflow."""

    name: str  # within the workflow
    task: str  # as workers know it
    queue: str
    priority: int = 0
    max_crashes: int
    after: tuple[int, ...] = ()  # the places of its direct dependencies, all before its own
    rule: Rule = ALL_SUCCEEDED
    inputs: tuple[str, ...] = ()  # parameters that take an input of the run of the same name
    outputs: dict[str, int] = {}  # parameters that take a result, and the place it comes from
    context: str | None = None  # the parameter that takes the context
    follow_ups: str | None = None
    for_each: ForEach | None = None


class Graph(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The tasks of a workflow, each after all that it depends on, else as declared."""

    workflow: str
    nodes: tuple[Node, ...]

    @cached_property
    def places(self) -> dict[str, int]:
        return {node.name: place for place, node in enumerate(self.nodes)}

    @cached_property
    def ancestors(self) -> tuple[frozenset[int], ...]:
        """For each place, the places of all tasks upstream."""
        found: list[frozenset[int]] = []
        for node in self.nodes:
            found.append(frozenset(node.after).union(*(found[place] for place in node.after)))
        return tuple(found)

    @cached_property
    def decisions(self) -> dict[tuple[tuple[State, ...], bool], "Decision"]:
        """What has been decided before, by the states and whether the run is to be cancelled."""
        return {}

    def downstream(self, places: Iterable[int]) -> frozenset[int]:
        """These places, and those of all tasks downstream of them."""
        begin = frozenset(places)
        return begin | {n for n, above in enumerate(self.ancestors) if above & begin}

    @cached_property
    def uses_context(self) -> bool:
        return any(asks_context(node) for node in self.nodes)

    @cached_property
    def listened_to(self) -> tuple[frozenset[int], ...]:
        """For each place, who has a say about its failure: its dependents, and rules naming it."""
        heard: list[set[int]] = [set() for _ in self.nodes]
        for place, node in enumerate(self.nodes):
            named = {self.places[name] for name in rules.tasks_in(node.rule)}
            for upstream in named.union(node.after):
                heard[upstream].add(place)
        return tuple(frozenset(one) for one in heard)


def asks_context(node: Node) -> bool:
    """Whether the context must be known before this task can be let go."""
    return node.context is not None or rules.asks_context(node.rule)


def encode_graph(graph: Graph) -> str:
    return msgspec.json.encode(graph).decode()


@lru_cache(maxsize=256)
def decode_graph(text: str) -> Graph:
    return _decoder.decode(text)


_decoder = msgspec.json.Decoder(Graph)


class Decision(NamedTuple):
    """What follows from the states of a run's tasks."""

    ready: tuple[int, ...]
    skipped: tuple[int, ...]
    end: RunState | None


def candidates(graph: Graph, states: Sequence[State]) -> list[int]:
    """The waiting tasks whose dependencies have all ended, before anything is skipped."""
    return [
        place
        for place, node in enumerate(graph.nodes)
        if states[place] is State.WAITING and all(states[one] in FINAL for one in node.after)
    ]


def decide(
    graph: Graph,
    states: Sequence[State],
    *,
    context_of: Callable[[int], Mapping[str, Any]],
    cancel_requested: bool = False,
) -> Decision:
    """Return which waiting tasks are ready or skipped by now, and how the run ends if it does.

    Skipping cascades: the decision takes into account what it has just skipped.
    """
    if graph.uses_context or len(graph.nodes) > MOST_NODES:
        return _decide(graph, states, context_of, cancel_requested=cancel_requested)
    # Then it follows from the states alone, and many runs of a workflow pass through the same.
    known, key = graph.decisions, (tuple(states), cancel_requested)
    decision = known.get(key)
    if decision is None:
        if len(known) >= MOST_DECISIONS:
            known.clear()
        decision = _decide(graph, states, context_of, cancel_requested=cancel_requested)
        known[key] = decision
    return decision


def _decide(
    graph: Graph,
    states: Sequence[State],
    context_of: Callable[[int], Mapping[str, Any]],
    *,
    cancel_requested: bool,
) -> Decision:
    now = list(states)
    ready: list[int] = []
    skipped: list[int] = []
    for place, node in enumerate(graph.nodes):
        if now[place] is not State.WAITING:
            continue
        dependencies = [now[one] for one in node.after]
        if not all(state in FINAL for state in dependencies):
            continue
        context = context_of(place) if rules.asks_context(node.rule) else {}
        runs = rules.holds(
            node.rule,
            dependencies=dependencies,
            state_of=lambda name: now[graph.places[name]],
            context=context,
        )
        now[place] = State.READY if runs else State.SKIPPED
        (ready if runs else skipped).append(place)
    end = end_of(graph, now, cancel_requested=cancel_requested)
    return Decision(tuple(ready), tuple(skipped), end)


def end_of(graph: Graph, states: Sequence[State], *, cancel_requested: bool) -> RunState | None:
    """Return how a run ended, or None while a task of it lives."""
    if any(state not in FINAL for state in states):
        return None
    cancelled = State.CANCELLED in states
    if cancelled and cancel_requested:
        return RunState.CANCELLED
    if unforgiven(graph, states):
        return RunState.FAILED
    return RunState.CANCELLED if cancelled else RunState.COMPLETED


def unforgiven(graph: Graph, states: Sequence[State]) -> list[int]:
    """Return the failures that make a run fail.

    One is forgiven by a task that was told of it, ran all the same, and completed.
    """
    return [
        place
        for place, state in enumerate(states)
        if state is State.FAILED
        and not any(states[listener] is State.COMPLETED for listener in graph.listened_to[place])
    ]


def arguments(
    node: Node,
    *,
    inputs: Mapping[str, bytes],
    result_of: Callable[[int], str | None],
    context: Callable[[], str],
    element: str | None = None,
) -> str:
    """Return the arguments of a task as JSON text, put together from texts that are stored.

    What a task that did not succeed would have returned is null.
    """
    members = [f"{_quoted(name)}:{inputs[name].decode()}" for name in node.inputs if name in inputs]
    members += [
        f"{_quoted(name)}:{result_of(place) or 'null'}" for name, place in node.outputs.items()
    ]
    if node.for_each is not None and element is not None:
        members.append(f"{_quoted(node.for_each.parameter)}:{element}")
    if node.context is not None:
        members.append(f"{_quoted(node.context)}:{context()}")
    return "{" + ",".join(members) + "}"


def _quoted(name: str) -> str:
    return msgspec.json.encode(name).decode()


def task_ids(run_id: str, count: int) -> list[str]:
    """The ids of a run's tasks, in the order of its graph."""
    return [placed_id(run_id, place) for place in range(count)]
