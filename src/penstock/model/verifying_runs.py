"""What must be true of every run of a workflow at every moment: its row, its tasks, its graph."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.model import rules
from penstock.model.examinations import Examination, RunExamination
from penstock.model.graph import Graph, end_of, task_ids
from penstock.model.ids import index_of, place_of
from penstock.model.retelling import Wrong
from penstock.model.runs import FINAL_RUN, RunState
from penstock.model.states import FINAL, State

REMOVABLE_RUNS = FINAL_RUN - {RunState.FAILED}
"""The runs that retention takes away by itself, each with all of its tasks."""

MOST_NAMED = 3

Complaint = tuple[Wrong, str, str]  # what kind, about which execution, and the sentence's rest


def complaints_about_run(run: RunExamination) -> Iterator[Complaint]:
    yield from _row_and_history(run)
    yield from _histories_of_tasks(run)
    yield from _parent(run)
    if run.graph is None:
        yield Wrong.RUN_GRAPH_UNREADABLE, run.id, "has a graph that cannot be read"
        return
    different = _other_tasks(run, run.graph)
    if different:
        yield Wrong.RUN_TASKS_DIFFER, run.id, _several(different)
        return
    states = states_of(run.tasks)
    if states is None:
        return  # a state that there is not; the task itself is complained about
    yield from _end(run, run.graph, states)
    for place, task in enumerate(run.tasks):
        yield from _turn(run, run.graph, states, place, task)
        yield from _elements(run, task, run.elements.get(place, ()))


def states_of(tasks: Sequence[Examination]) -> list[State] | None:
    """The states of a run's tasks as they bear on others; None if one of them is unheard of.

    One that awaits something has begun: it does not wait for its dependencies any more.
    """
    try:
        states = [State(task.state) for task in tasks]
    except ValueError:
        return None
    return [
        State.RUNNING if task.awaits and state not in FINAL else state
        for task, state in zip(tasks, states, strict=True)
    ]


def verdict(
    graph: Graph, states: Sequence[State], place: int, context: Mapping[str, Any]
) -> bool | None:
    """Whether a task's rule has it run; None while that is open, or nobody can say any more."""
    node = graph.nodes[place]
    named = {graph.places[name] for name in rules.tasks_in(node.rule)}
    # Of a task that is not upstream nobody knows how it stood when the rule was looked at.
    if not named <= graph.ancestors[place]:
        return None
    if any(states[one] not in FINAL for one in node.after):
        return None
    return rules.holds(
        node.rule,
        dependencies=[states[one] for one in node.after],
        state_of=lambda name: states[graph.places[name]],
        context=context,
    )


# --- the run and its history ------------------------------------------------------------


def _row_and_history(run: RunExamination) -> Iterator[Complaint]:
    for code, wrong in run.told.faults.items():
        yield code, run.id, wrong
    if run.told.events == 0:
        if not _is_forgotten(run):
            yield Wrong.NO_HISTORY, run.id, f"is {run.state} and has no history of its own"
    elif run.state != run.told.state:
        by_history = run.told.state or "nothing"
        yield (
            Wrong.RUN_STATE_DIFFERS,
            run.id,
            f"is {run.state}, but by its history it is {by_history}",
        )
    if run.finished != (run.state in FINAL_RUN):
        has = "a" if run.finished else "no"
        yield (
            Wrong.RUN_FINISHED_AT_DIFFERS,
            run.id,
            f"is {run.state} and has {has} time at which it finished",
        )


def _histories_of_tasks(run: RunExamination) -> Iterator[Complaint]:
    if run.told.events == 0 and not any(task.told.events for task in run.tasks):
        return  # if that must not be, it has been said of the run
    for task in (*run.tasks, *(one for found in run.elements.values() for one in found)):
        # Retention may have removed the history of a run that was rerun later, in part.
        forgotten = not run.told.whole and task.state in FINAL
        if task.told.events == 0 and not forgotten:
            wrong = f"is {task.state} and has no history, though the run that it is part of has one"
            yield Wrong.NO_HISTORY, task.id, wrong


def _parent(run: RunExamination) -> Iterator[Complaint]:
    """Whether it was cancelled with the task that started it; a rerun is its own."""
    left = run.parent_cancelled and not (run.will_go_on or run.told.seen_to)
    if left and not run.finished and not run.cancel_requested:
        wrong = f"is {run.state}, though the task that started it was cancelled"
        yield Wrong.CHILD_LEFT, run.id, wrong


def _is_forgotten(run: RunExamination) -> bool:
    """Whether retention may have taken the events: whole, and before it takes the run."""
    return run.state in REMOVABLE_RUNS and not any(task.told.events for task in run.tasks)


# --- the run and its tasks --------------------------------------------------------------


def _other_tasks(run: RunExamination, graph: Graph) -> list[str]:
    if not run.tasks:
        return ["has no tasks"]
    expected = task_ids(run.id, len(graph.nodes))
    found = {task.id: task for task in run.tasks}
    missing = [
        f"has no {node.name!r}"
        for node, id_ in zip(graph.nodes, expected, strict=True)
        if id_ not in found
    ]
    changed = [
        f"has the task {found[id_].task!r} as {node.name!r}, which is {node.task!r}"
        for node, id_ in zip(graph.nodes, expected, strict=True)
        if id_ in found and found[id_].task != node.task
    ]
    extra = [
        f"has {id_}, which its graph does not know"
        for id_ in (*found, *(one.id for group in run.elements.values() for one in group))
        if not is_task_of(graph, id_)
    ]
    return missing + changed + extra + _missing_elements(run, graph)


def _missing_elements(run: RunExamination, graph: Graph) -> list[str]:
    counts = [
        (graph.nodes[place_of(task.id)].name, size, _first(run, task, size))
        for task in run.tasks
        if (size := _size(task)) is not None and is_task_of(graph, task.id)
    ]
    return [
        f"has {len(there)} of the {size} elements of {name!r}"
        for name, size, there in counts
        if len(there) < size
    ]


def _size(task: Examination) -> int | None:
    """How many elements a task waits for; None if it waits for none."""
    kind, _, size = (task.awaits or "").partition(":")
    return int(size) if kind == "elements" and size.isdecimal() else None


def _first(run: RunExamination, task: Examination, size: int) -> list[Examination]:
    elements = run.elements.get(place_of(task.id), ())
    return [one for one in elements if (index_of(one.id) or 0) < size]


def _end(run: RunExamination, graph: Graph, states: Sequence[State]) -> Iterator[Complaint]:
    ended = run.state in FINAL_RUN
    live = [place for place, state in enumerate(states) if state not in FINAL]
    if live:
        if ended:
            tasks = _several([f"{graph.nodes[place].name!r} is {states[place]}" for place in live])
            yield Wrong.RUN_ENDED_EARLY, run.id, f"is {run.state}, though {tasks}"
        return
    if not ended:
        if not run.will_go_on:
            yield Wrong.RUN_NOT_ENDED, run.id, f"is {run.state}, though all of its tasks have ended"
        return
    by_tasks = end_of(graph, states, cancel_requested=run.cancel_requested)
    expected = RunState.FAILED if run.out_of_time else by_tasks
    if run.state != expected:
        wrong = f"is {run.state}, but by the ends of its tasks it is {expected}"
        yield Wrong.RUN_END_DIFFERS, run.id, wrong


def _turn(
    run: RunExamination, graph: Graph, states: Sequence[State], place: int, task: Examination
) -> Iterator[Complaint]:
    """Whether a task may be where it is, from where those stand that it depends on."""
    state, node = states[place], graph.nodes[place]
    unended = [one for one in node.after if states[one] not in FINAL]
    if state is State.CANCELLED:
        return  # at any time
    if state is State.WAITING:
        if not unended and run.state == RunState.RUNNING and not run.will_go_on:
            wrong = "is waiting, though all that it depends on has ended and its run goes on"
            yield Wrong.STUCK_IN_RUN, task.id, wrong
        return
    if unended:
        others = _several([f"{graph.nodes[one].name!r} is {states[one]}" for one in unended])
        wrong = f"is {state}, though it depends on others: {others}"
        yield Wrong.BEFORE_ITS_TURN, task.id, wrong
        return
    if rules.asks_context(node.rule):
        runs = run.verdicts.get(place)
    else:
        runs = verdict(graph, states, place, {})
    if runs is None:
        return
    if runs and state is State.SKIPPED:
        yield Wrong.AGAINST_ITS_RULE, task.id, "is skipped, though by its rule it runs"
    if not runs and state is not State.SKIPPED:
        yield Wrong.AGAINST_ITS_RULE, task.id, f"is {state}, though by its rule it is skipped"


def _elements(
    run: RunExamination, task: Examination, found: Sequence[Examination]
) -> Iterator[Complaint]:
    """Whether the elements of a task and the task that waits for them agree."""
    size = _size(task)
    awaited = [] if size is None else _first(run, task, size)
    known = {one.id for one in awaited}
    live = [one for one in found if one.state not in FINAL]
    if size is not None and not run.will_go_on:
        if known.isdisjoint(one.id for one in live):
            yield Wrong.STUCK_IN_RUN, task.id, "waits for its elements, which have all ended"
        for one in live:
            held = one.state == State.WAITING and one.awaits is None
            if held and one.id in known and run.state == RunState.RUNNING:
                wrong = "is waiting, though its run goes on and its list has been opened"
                yield Wrong.STUCK_IN_RUN, one.id, wrong
    if size is None and task.state not in FINAL:
        return  # its list will be opened, and decides about them
    for one in live:
        if one.id not in known:
            wrong = f"is {one.state}, though the task that it is an element of does not wait for it"
            yield Wrong.ELEMENT_LEFT, one.id, wrong


def _several(items: Sequence[str]) -> str:
    named = ", ".join(items[:MOST_NAMED])
    more = len(items) - MOST_NAMED
    return named if more <= 0 else f"{named} and {more} more"


def places_that_ask(graph: Graph) -> list[int]:
    """The tasks whose rule asks for values of the context."""
    return [place for place, node in enumerate(graph.nodes) if rules.asks_context(node.rule)]


def is_task_of(graph: Graph, task_id: str) -> bool:
    """Whether a graph has a task of this id, or a task that may have it as an element."""
    place = place_of(task_id)
    if not 0 <= place < len(graph.nodes):
        return False
    return index_of(task_id) is None or graph.nodes[place].for_each is not None
