"""From rows to what `verify` looks at: the columns come in the same order from both databases."""

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.model.examinations import Examination, Examined, Place
from penstock.model.retelling import Retelling, Wrong
from penstock.store.decoding import HIGHEST_ID
from penstock.store.scripts import Row

EVENTS_PER_EXECUTION = 20
"""How many events a stretch may have for each execution that it may have: most have six."""


def assemble(
    executions: Iterable[Row], outbox: Iterable[Row], events: Iterable[Row], *, until: str
) -> Examined:
    """Put together what belongs together. The events are read one by one, and not kept."""
    histories: dict[str, Retelling] = {}
    count = 0
    for root_id, task_execution_id, type_, worker_id, data in events:
        count += 1
        told = histories.get(root_id)
        if told is None:
            told = histories[root_id] = Retelling()
        if task_execution_id == root_id:
            told.add(type_, worker_id, data)
        else:
            told.events += 1
            told.note(Wrong.FOREIGN_EVENT, f"has an event about {task_execution_id} in its history")
    places: dict[str, list[Place]] = {}
    for row in outbox:
        place = Place(row[0], row[1], row[2], suspect=bool(row[3]), task=row[4])
        places.setdefault(place.execution_id, []).append(place)
    examinations = [_examination(row, places, histories) for row in executions]
    return Examined(
        executions=examinations,
        strays=[place for left in places.values() for place in left],
        remains=histories,
        events=count,
        until=until,
        next=None if until == HIGHEST_ID else until,
    )


def _examination(
    row: Sequence[Any], places: dict[str, list[Place]], histories: dict[str, Retelling]
) -> Examination:
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
    )
