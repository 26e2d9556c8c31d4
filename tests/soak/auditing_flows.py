"""What must be true of runs, steps, signals and children when a soak is over."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock.model.events import EventType
from penstock.model.runs import FINAL_RUN
from penstock.model.states import State
from tests.soak import flows
from tests.support.handling import connected, effects
from tests.support.workers import Place

decode = msgspec.json.decode

# What makes an attempt begin once more without having taken its steps to the end. A wait is
# none of these: what it comes back to has been stored.
EXCUSES = (EventType.RECOVERED, EventType.RELEASED, EventType.RETRY_SCHEDULED)


class Task(NamedTuple):
    id: str
    root_id: str
    task: str
    state: str
    args: str
    result: str | None

    @property
    def number(self) -> int:
        return int(decode(self.args)["number"])


class OfRun(NamedTuple):
    id: str
    workflow: str
    state: str
    inputs: str
    parent_id: str | None

    @property
    def number(self) -> int:
        return int(decode(self.inputs)["number"])


def query(place: Place, statement: str) -> list[Any]:
    with connected(place) as connection:
        found: list[Any] = connection.execute(statement).fetchall()
        return found


def wrong_with_flows(
    place: Place, acknowledged: Collection[str], told: Mapping[str, Counter[str]]
) -> Iterator[str]:
    """Each broken promise as a sentence; `told` counts the events of each execution."""
    runs = [
        OfRun(*row)
        for row in query(
            place,
            "SELECT CAST(id AS text), workflow, state, inputs, CAST(parent_id AS text) "
            "FROM workflow_executions",
        )
    ]
    tasks = [
        Task(*row)
        for row in query(
            place,
            "SELECT CAST(id AS text), CAST(root_id AS text), task, state, args, result "
            "FROM task_executions",
        )
    ]
    for lost in set(acknowledged) - {run.id for run in runs}:
        yield f"the run {lost} was acknowledged and is not there"
    for run in runs:
        if run.state not in FINAL_RUN:
            yield f"the run {run.id} ({run.workflow}) never ended: it is {run.state}"
    yield from _wrong_results(runs, tasks)
    yield from _wrong_children(runs, tasks)
    yield from _wrong_steps(place, tasks, told)


# What each task returns for its number, or for the number of its run.
RETURNED: Mapping[str, Callable[[int], object]] = {
    "diamond.bottom": lambda number: [number + 1, 2 * number, ["top", "left", "right"]],
    "diamond.rescue": lambda _: "rescued",
    "fan.gather": lambda number: [one * one for one in range(number % 7)],
    "nested.end": lambda number: 2 * number + 1,
    "child.double": lambda number: 2 * number,
    "parent": lambda number: 2 * number,
    "ask": lambda number: number if flows.waits_for_answer(number) else -1,
}


def _wrong_results(runs: list[OfRun], tasks: list[Task]) -> Iterator[str]:
    """What completed returned what it would have returned without any fault."""
    numbers = {run.id: run.number for run in runs}
    for task in tasks:
        if task.state != State.COMPLETED or task.task not in RETURNED:
            continue
        of_run = numbers.get(task.root_id)
        expected = RETURNED[task.task](task.number if of_run is None else of_run)
        if decode(task.result or "null") != expected:
            yield f"{task.id} ({task.task}) returned {task.result}, not {expected}"


def _wrong_children(runs: list[OfRun], tasks: list[Task]) -> Iterator[str]:
    children = Counter(run.parent_id for run in runs if run.parent_id)
    for task in tasks:
        if task.task not in {"parent", "nested.begin"}:
            continue
        count = children[task.id]
        if count > 1 or (task.state == State.COMPLETED and count != 1):
            yield f"{task.id} ({task.task}) is {task.state} and started {count} runs"


def _wrong_steps(
    place: Place, tasks: list[Task], told: Mapping[str, Counter[str]]
) -> Iterator[str]:
    """A stored step took effect once, and was called again only before it was stored."""
    calls: dict[tuple[str, str], list[str]] = defaultdict(list)
    path = Path(f"{place.directory / 'runs'}-steps")
    for line in path.read_text("utf-8").splitlines() if path.exists() else []:
        execution_id, step, token = line.split()
        calls[execution_id, step].append(token)
    stored = {
        (execution_id, step): decode(result)
        for execution_id, step, result in query(
            place, "SELECT CAST(task_execution_id AS text), name, result FROM step_results"
        )
        if step in flows.STEPS
    }
    taken = Counter(effects(place))
    for (execution_id, step), token in stored.items():
        if (count := taken[f"{execution_id}:{step}"]) != 1:
            yield f"{execution_id}: the step {step!r} is stored and took effect {count} times"
        if token not in calls[execution_id, step]:
            yield f"{execution_id}: the step {step!r} is stored with what no call returned"
    for (execution_id, step), tokens in calls.items():
        again = sum(told[execution_id][kind] for kind in EXCUSES)
        if len(tokens) > 1 + again:
            yield f"{execution_id}: the step {step!r} was called {len(tokens)} times"
    for task in tasks:
        if task.task == flows.durable.name and task.state == State.COMPLETED:
            remembered = [stored.get((task.id, step)) for step in flows.STEPS]
            if decode(task.result or "null") != remembered:
                yield f"{task.id} returned {task.result}, and remembers {remembered}"
