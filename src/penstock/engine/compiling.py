"""A workflow as it is stored with each of its runs, made from its tasks as they are declared."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from penstock.engine.fingerprints import fingerprint
from penstock.engine.inputs import Inputs
from penstock.engine.wiring import check_types, in_order
from penstock.engine.workflow_errors import EmptyWorkflow, TooManyTasks
from penstock.engine.workflow_tasks import AnyWorkflowTask
from penstock.model.graph import ForEach, Graph, Node, encode_graph
from penstock.model.ids import MOST_TASKS


class Compiled(msgspec.Struct, frozen=True):
    """The workflow as it is stored with a run, made once for as long as nothing is declared."""

    graph: Graph
    text: str
    fingerprint: str
    # The inputs that a task annotates otherwise than the workflow does.
    to_check: tuple[tuple[AnyWorkflowTask, str], ...]


def compiled(name: str, tasks: Mapping[str, AnyWorkflowTask], inputs: Inputs) -> Compiled:
    """Return the workflow as it is stored; its annotations must be known by now.

    Raises:
        EmptyWorkflow: it has no tasks.
        InvalidTask, InvalidWorkflow: an annotation turns out to be wrong.
    """
    if not tasks:
        raise EmptyWorkflow(name)
    if len(tasks) > MOST_TASKS:
        raise TooManyTasks(name, len(tasks), most=MOST_TASKS)
    for task in tasks.values():
        check_types(task, tasks)
    ordered = in_order(tasks)
    places = {task.short_name: place for place, task in enumerate(ordered)}
    graph = Graph(workflow=name, nodes=tuple(_node(task, places, inputs) for task in ordered))
    text = encode_graph(graph)
    return Compiled(
        graph,
        text,
        fingerprint(text, (task.function for task in ordered)),
        tuple(_annotated_otherwise(ordered, inputs)),
    )


def _node(task: AnyWorkflowTask, places: Mapping[str, int], inputs: Inputs) -> Node:
    options = task.options
    return Node(
        name=task.short_name,
        task=task.name,
        queue=options.queue,
        priority=options.priority,
        max_crashes=options.max_crashes,
        after=tuple(sorted(places[name] for name in task.after)),
        rule=task.rule,
        inputs=tuple(_inputs_of(task, inputs)),
        outputs={name: places[source] for name, source in task.outputs.items()},
        context=task.signature.context,
        follow_ups=options.follow_ups,
        for_each=_for_each(task, places),
    )


def _for_each(task: AnyWorkflowTask, places: Mapping[str, int]) -> ForEach | None:
    if task.for_each is None or task.element is None:
        return None
    return ForEach(task.element, places[task.for_each])


def _inputs_of(task: AnyWorkflowTask, inputs: Inputs) -> Iterator[str]:
    for name in task.signature.parameters:
        fed = name in task.outputs or name == task.signature.context
        if name in inputs.parameters and not fed:
            yield name


def _annotated_otherwise(
    tasks: Sequence[AnyWorkflowTask], inputs: Inputs
) -> Iterator[tuple[AnyWorkflowTask, str]]:
    for task in tasks:
        for name in _inputs_of(task, inputs):
            optional = name in inputs.defaults
            if optional or task.signature.hint_of(name) != inputs.hint_of(name):
                yield task, name
