"""Tasks that run once for each element of a list: how they open, and how they end.

The task itself never runs. It waits for its elements, which are executions of their own with
ids right behind those of the run's tasks, and ends with the last of them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from penstock.model.context import merged
from penstock.model.graph import Node
from penstock.model.ids import MOST_ELEMENTS, element_id, index_of, place_of, placed_id, run_of
from penstock.model.states import State
from penstock.store.batches import encode_rows
from penstock.store.runs import Change, RunWriter, TaskRow
from penstock.store.scripts import Script, Step

ELEMENTS = "elements:"
MOST_NAMED = 20  # of the elements that failed, in the error

_encode = msgspec.json.Encoder().encode
_elements_of = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Group(NamedTuple):
    """A task of a run, and how many elements it has."""

    run_id: str
    place: int
    size: int

    @property
    def id(self) -> str:
        return placed_id(self.run_id, self.place)


class Element(NamedTuple):
    """An element as it is stored."""

    id: str
    state: State
    args: str
    result: str | None
    writes: str | None


class Counted(NamedTuple):
    """How far the elements of a task are."""

    live: int
    held: int  # those that wait since the run was paused


class Opened(NamedTuple):
    """What becomes of a task whose list is known."""

    change: Change
    new: list[TaskRow]
    reset: list[str]  # elements of an earlier life that go once more
    again: list[Change]


def read(writer: RunWriter, groups: Sequence[Group]) -> Script[dict[str, list[Element]]]:
    """What is stored of the elements of these tasks, in order, by the id of the task."""
    found: dict[str, list[Element]] = {group.id: [] for group in groups}
    if groups:
        rows = yield Step(writer.statements["elements"], {"groups": _ranges(groups)})
        for id_, state, *rest in rows:
            element = Element(id_, State(state), *rest)
            found[placed_id(run_of(id_), place_of(id_))].append(element)
    return found


def count(writer: RunWriter, groups: Sequence[Group]) -> Script[dict[str, Counted]]:
    if not groups:
        return {}
    rows = yield Step(writer.statements["element_states"], {"groups": _ranges(groups)})
    return {placed_id(run_of(id_), place_of(id_)): Counted(*rest) for id_, *rest in rows}


def _ranges(groups: Sequence[Group]) -> str:
    return encode_rows(
        [
            {
                "first": element_id(group.run_id, group.place, 0),
                "last": element_id(group.run_id, group.place, max(group.size, 1) - 1),
            }
            for group in groups
        ]
    )


def open_list(
    run_id: str,
    place: int,
    node: Node,
    result: str | None,
    *,
    arguments_of: Callable[[str], str],
    stored: Sequence[Element],
) -> Opened:
    """Make an element of each item; keep those of an earlier life that are the same and done."""
    id_ = placed_id(run_id, place)
    try:
        items = _elements_of(result or "null")
    except msgspec.DecodeError:
        return _refused(id_, "for_each needs a list, and what it was given is none.", stored)
    if len(items) > MOST_ELEMENTS:
        return _refused(
            id_,
            f"for_each takes up to {MOST_ELEMENTS} elements, and it was given {len(items)}.",
            stored,
        )
    again = not_needed(stored[len(items) :])
    if not items:
        return Opened(Change(0, id_, State.COMPLETED, result="[]"), [], [], again)
    before = {index_of(element.id): element for element in stored}
    opened = Opened(Change(0, id_, State.WAITING, awaits=f"{ELEMENTS}{len(items)}"), [], [], again)
    for index, item in enumerate(items):
        args = arguments_of(bytes(item).decode())
        known = before.get(index)
        if known is None:
            row = _row(element_id(run_id, place, index), run_id, node, args)
            row.n = len(opened.new)
            opened.new.append(row)
        elif known.state is not State.COMPLETED or known.args != args:
            opened.reset.append(known.id)
            opened.again.append(Change(0, known.id, State.READY, args))
    if not opened.new and not opened.reset:
        # All of it was done in an earlier life: no element will end and close the list.
        kept = [before[index] for index in range(len(items))]
        return opened._replace(change=close_list(Group(run_id, place, len(items)), kept))
    return opened


def _row(id_: str, run_id: str, node: Node, args: str) -> TaskRow:
    return TaskRow(
        0,
        id_,
        run_id,
        node.task,
        node.queue,
        node.priority,
        node.max_crashes,
        args,
        State.READY,
        node.follow_ups,
    )


def _refused(id_: str, message: str, stored: Sequence[Element]) -> Opened:
    error = _encode({"type": "InvalidElements", "message": message}).decode()
    return Opened(Change(0, id_, State.FAILED, error=error), [], [], not_needed(stored))


def not_needed(stored: Sequence[Element]) -> list[Change]:
    """Skip what was to run again, and has no place in the list of this life."""
    return [
        Change(0, element.id, State.SKIPPED) for element in stored if element.state is State.WAITING
    ]


def close_list(group: Group, elements: Sequence[Element]) -> Change:
    """End a task whose elements have all ended: with their results in order, or failed."""
    failed = [index_of(one.id) for one in elements if one.state is State.FAILED]
    if failed:
        named = ", ".join(map(str, failed[:MOST_NAMED]))
        more = ", …" if len(failed) > MOST_NAMED else ""
        first = next(one.id for one in elements if one.state is State.FAILED)
        message = (
            f"{len(failed)} of {group.size} elements failed, counted from 0: {named}{more}. "
            f"`penstock show {first}` has the first one's error."
        )
        error = {"type": "ElementsFailed", "message": message, "elements": failed[:MOST_NAMED]}
        return Change(0, group.id, State.FAILED, error=_encode(error).decode())
    if any(element.state is not State.COMPLETED for element in elements):
        return Change(0, group.id, State.CANCELLED)
    results = ",".join(element.result or "null" for element in elements)
    writes = [element.writes for element in elements if element.writes]
    return Change(
        0,
        group.id,
        State.COMPLETED,
        result=f"[{results}]",
        writes=_encode(merged("{}", writes)).decode() if writes else None,
    )
