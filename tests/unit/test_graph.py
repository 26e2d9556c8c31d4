"""What a graph remembers of its decisions."""

from penstock.model.graph import Graph, Node, decide
from penstock.model.states import State

WIDE = 1_000
MOST_REMEMBERED = 100_000  # states: less than a megabyte


def test_a_wide_workflow_does_not_fill_the_memory_with_what_has_been_decided() -> None:
    """One of a thousand tasks passes through a thousand states, and hardly through one again."""
    one = Node(name="one", task="t", queue="default", max_crashes=3)
    graph = Graph(workflow="wide", nodes=(one,) * WIDE)

    for done in range(WIDE - 1):
        states = [State.COMPLETED] * done + [State.READY] * (WIDE - done)
        assert decide(graph, states, context_of=lambda _: {}).end is None

    assert sum(len(states) for states, _ in graph.decisions) <= MOST_REMEMBERED
