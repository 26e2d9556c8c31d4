"""From rows to what `verify` looks at: the columns come in the same order from both databases."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from penstock.model.context import merged
from penstock.model.examinations import Examination, Examined, Place, RunExamination
from penstock.model.graph import Graph, decode_graph
from penstock.model.ids import last_id_of, last_place_of, place_of, placed_id, run_of
from penstock.model.retelling import Retelling, RunRetelling, Wrong
from penstock.model.verifying_runs import places_that_ask, states_of, verdict
from penstock.store.decoding import HIGHEST_ID
from penstock.store.scripts import Row


class Stretch(NamedTuple):
    """The rows between two ids, those of the events one by one."""

    executions: Iterable[Row]
    runs: Sequence[Row]
    outbox: Iterable[Row]
    events: Iterable[Row]


class Values(NamedTuple):
    """What a run's rules can ask about: its inputs, and what its completed tasks wrote, by id."""

    inputs: str
    writes: Mapping[str, str]


class _Histories:
    """What the events of a stretch add up to. They are read one by one, and not kept."""

    def __init__(self, events: Iterable[Row]) -> None:
        self.count = 0
        self.tasks: dict[str, Retelling] = {}
        self.runs: dict[str, RunRetelling] = {}
        for root_id, task_execution_id, type_, worker_id, data in events:
            self.count += 1
            if task_execution_id is None:
                self._of_run(root_id).add(type_)
            elif root_id in {task_execution_id, run_of(task_execution_id)}:
                self._of_task(task_execution_id).add(type_, worker_id, data)
            else:
                self._note_foreign(root_id, task_execution_id)

    def _of_task(self, execution_id: str) -> Retelling:
        told = self.tasks.get(execution_id)
        if told is None:
            told = self.tasks[execution_id] = Retelling()
        return told

    def _of_run(self, run_id: str) -> RunRetelling:
        told = self.runs.get(run_id)
        if told is None:
            told = self.runs[run_id] = RunRetelling()
        return told

    def _note_foreign(self, root_id: str, task_execution_id: str) -> None:
        # A run's own events come first, so by now it is known whose history this is.
        told = self.runs[root_id] if root_id in self.runs else self._of_task(root_id)
        told.events += 1
        told.note(Wrong.FOREIGN_EVENT, f"has an event about {task_execution_id} in its history")


def assemble(
    stretch: Stretch, values_of: Callable[[str], Values], *, until: str, schema: str = ""
) -> Examined:
    """Put together what belongs together.

    `values_of` is asked only for runs with rules about values, and nothing of it is kept.
    """
    histories = _Histories(stretch.events)
    places: dict[str, list[Place]] = {}
    for row in stretch.outbox:
        place = Place(row[0], row[1], row[2], suspect=bool(row[3]), task=row[4])
        places.setdefault(place.execution_id, []).append(place)
    run_ids = {row[0] for row in stretch.runs}
    examinations = [
        _examination(row, places, histories.tasks, run_ids) for row in stretch.executions
    ]
    runs = [_run_examination(row, examinations, histories.runs, values_of) for row in stretch.runs]
    return Examined(
        executions=examinations,
        strays=[place for left in places.values() for place in left],
        remains=histories.tasks,
        events=histories.count,
        until=until,
        next=None if until == HIGHEST_ID else until,
        runs=runs,
        remains_of_runs=histories.runs,
        schema=schema,
    )


def _examination(
    row: Sequence[Any],
    places: dict[str, list[Place]],
    histories: dict[str, Retelling],
    run_ids: set[str],
) -> Examination:
    run_id = run_of(row[0])
    return Examination(
        id=row[0],
        root_id=row[1],
        task=row[2],
        queue=row[3],
        priority=row[4],
        state=row[5],
        sub_state=row[6],
        attempt=row[7],
        retries=row[8],
        crashes=row[9],
        suspect=bool(row[10]),
        fence=row[11],
        worker_id=row[12],
        has_due_time=bool(row[13]),
        finished=bool(row[14]),
        serial=row[15],
        ahead=row[16],
        serial_is_known=bool(row[17]),
        will_be_released=bool(row[18]),
        twin=row[19],
        places=places.pop(row[0], ()),
        told=histories.pop(row[0]) if row[0] in histories else Retelling(),
        run_id=run_id if run_id in run_ids else None,
        awaits=row[20],
    )


class _Error(msgspec.Struct):
    type: str | None = None


_decode_error = msgspec.json.Decoder(_Error).decode


def _run_examination(
    row: Sequence[Any],
    examinations: Sequence[Examination],
    histories: dict[str, RunRetelling],
    values_of: Callable[[str], Values],
) -> RunExamination:
    id_, state, text, cancel_requested, error, finished, will_go_on, parent_cancelled = row
    first = bisect_right(examinations, id_, key=attrgetter("id"))
    between = bisect_right(examinations, last_place_of(id_), key=attrgetter("id"))
    last = bisect_right(examinations, last_id_of(id_), key=attrgetter("id"))
    tasks = examinations[first:between]
    elements: dict[int, list[Examination]] = {}
    for element in examinations[between:last]:
        elements.setdefault(place_of(element.id), []).append(element)
    graph = _graph(text)
    return RunExamination(
        id=id_,
        state=state,
        graph=graph,
        cancel_requested=bool(cancel_requested),
        out_of_time=error is not None and _is_out_of_time(error),
        finished=bool(finished),
        will_go_on=bool(will_go_on),
        parent_cancelled=bool(parent_cancelled),
        tasks=tasks,
        elements=elements,
        verdicts={} if graph is None else _verdicts(id_, graph, tasks, values_of),
        told=histories.pop(id_) if id_ in histories else RunRetelling(),
    )


def _graph(text: str) -> Graph | None:
    try:
        graph = decode_graph(text)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    try:
        _ = graph.ancestors, graph.listened_to
    except (KeyError, IndexError):  # it can be decoded, and means nothing
        return None
    return graph


def _is_out_of_time(error: str) -> bool:
    """Whether a run failed for another reason than the ends of its tasks."""
    try:
        return _decode_error(error).type != "TasksFailed"
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return False


def _verdicts(
    run_id: str,
    graph: Graph,
    tasks: Sequence[Examination],
    values_of: Callable[[str], Values],
) -> dict[int, bool]:
    asking = places_that_ask(graph)
    if not asking or len(tasks) != len(graph.nodes):
        return {}
    states = states_of(tasks)
    if states is None:
        return {}
    values = values_of(run_id)
    verdicts: dict[int, bool] = {}
    for place in asking:
        upstream = (placed_id(run_id, one) for one in sorted(graph.ancestors[place]))
        writes = (values.writes[one] for one in upstream if one in values.writes)
        runs = verdict(graph, states, place, merged(values.inputs, writes))
        if runs is not None:
            verdicts[place] = runs
    return verdicts
