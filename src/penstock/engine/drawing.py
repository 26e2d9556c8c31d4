"""A workflow as a picture: Mermaid for pages and dashboards, levels of text for a terminal."""

import re
from collections.abc import Iterator

from penstock.engine.conditions import told
from penstock.model import rules
from penstock.model.graph import Graph, Node
from penstock.model.rules import ALL_SUCCEEDED

# Words that mean something else to Mermaid where the name of a node could stand.
_RESERVED = frozenset(
    {"call", "class", "click", "default", "direction", "end", "flowchart", "graph", "href", "style"}
    | {"classdef", "linkstyle", "subgraph"}
)
_PLAIN = r"[A-Za-z_][A-Za-z0-9_]*"


def as_mermaid(graph: Graph) -> str:
    """Return a flowchart: an arrow for each dependency, dotted where only a rule asks."""
    names = [_node_name(node, place) for place, node in enumerate(graph.nodes)]
    lines = ["flowchart TD"]
    lines += [f"    {name}{_label(node)}" for name, node in zip(names, graph.nodes, strict=True)]
    for place, node in enumerate(graph.nodes):
        fed: dict[int, list[str]] = {}
        for parameter, source in node.outputs.items():
            fed.setdefault(source, []).append(parameter)
        if node.for_each is not None:
            fed.setdefault(node.for_each.source, []).append(f"each {node.for_each.parameter}")
        for source in node.after:
            shown = f"|{', '.join(fed[source])}|" if source in fed else ""
            lines.append(f"    {names[source]} -->{shown} {names[place]}")
        asked = {graph.places[name] for name in rules.tasks_in(node.rule)}
        lines += [f"    {names[one]} -.-> {names[place]}" for one in sorted(asked - {*node.after})]
    return "\n".join(lines) + "\n"


def as_text(graph: Graph, *, takes: str = "") -> str:
    """Return the tasks level by level: those of one level wait for none of each other."""
    lines = [f"{graph.workflow}({takes})"]
    width = max((len(node.name) for node in graph.nodes), default=0)
    levels = levels_of(graph)
    digits = len(str(max(levels, default=0)))
    shown = 0
    for level, node in sorted(zip(levels, graph.nodes, strict=True), key=lambda one: one[0]):
        number = str(level) if level != shown else ""
        shown = level
        about = "; ".join(_about(graph, node))
        lines.append(f"  {number:>{digits}}  {node.name:<{width}}  {about}".rstrip())
    return "\n".join(lines) + "\n"


def levels_of(graph: Graph) -> list[int]:
    """For each task, from 1, how many tasks stand one behind the other up to it."""
    levels: list[int] = []
    for node in graph.nodes:
        levels.append(1 + max((levels[one] for one in node.after), default=0))
    return levels


def _about(graph: Graph, node: Node) -> Iterator[str]:
    fed = set(node.outputs.values())
    if node.inputs:
        yield f"takes {', '.join(node.inputs)}"
    if node.outputs:
        yield ", ".join(
            f"{name} from {graph.nodes[one].name}" for name, one in node.outputs.items()
        )
    if node.for_each is not None:
        fed.add(node.for_each.source)
        yield f"for each {node.for_each.parameter} of {graph.nodes[node.for_each.source].name}"
    if rest := [graph.nodes[one].name for one in node.after if one not in fed]:
        yield f"after {', '.join(rest)}"
    if node.context is not None:
        yield "context"
    if node.rule != ALL_SUCCEEDED:
        yield f"when {told(node.rule)}"


def _node_name(node: Node, place: int) -> str:
    plain = re.fullmatch(_PLAIN, node.name) and node.name.lower() not in _RESERVED
    return node.name if plain else f"task_{place}"


def _label(node: Node) -> str:
    lines = [node.name]
    if node.rule != ALL_SUCCEEDED:
        lines.append(f"when {told(node.rule)}")
    text = "<br/>".join(_escaped(line) for line in lines)
    return f'["{text}"]'


def _escaped(text: str) -> str:
    for sign, code in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, code)
    return text
