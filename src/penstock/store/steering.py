"""What people, and the clock, do to runs as a whole."""

from collections.abc import Collection, Mapping, Sequence

from penstock.model.events import RunEvent
from penstock.model.ids import index_of, place_of, placed_id
from penstock.model.runs import FINAL_RUN, RunAnswer, RunState
from penstock.model.states import FINAL, State
from penstock.store import fanning
from penstock.store.advancing import Standing, advance, states_of
from penstock.store.batches import event_data
from penstock.store.runs import Locked, RunChange, RunWriter, lock
from penstock.store.scripts import Script, Step
from penstock.store.sql import Statement


def pause(writer: RunWriter, run_id: str) -> Script[RunAnswer]:
    return (yield from _switch(writer, run_id, RunState.PAUSED, RunEvent.PAUSED))


def resume(writer: RunWriter, run_id: str) -> Script[RunAnswer]:
    return (yield from _switch(writer, run_id, RunState.RUNNING, RunEvent.RESUMED))


def _switch(writer: RunWriter, run_id: str, state: RunState, event: RunEvent) -> Script[RunAnswer]:
    locked = yield from lock(writer.statements, [run_id])
    if not locked:
        return (yield from absent(writer.statements, run_id))
    if locked[0].state == state:
        return "already"
    yield from writer.change(run_id, RunChange(state, event))
    yield from advance(writer, [locked[0]._replace(state=state)])
    return "done"


def rerun(writer: RunWriter, run_id: str, tasks: Collection[str] | None) -> Script[RunAnswer]:
    """Give tasks that have ended, and all downstream of them, a new life.

    Without `tasks`: those that failed or were cancelled. What the others returned is kept. A
    task that runs for each element of a list takes all of its elements along when it is named,
    and otherwise those that did not complete.
    """
    rows = yield Step(writer.statements["lock_run"], {"id": run_id})
    if not rows:
        return "unknown"
    run = Locked(*rows[0])
    standing = Standing(run, (yield from states_of(writer, [run]))[run_id])
    states = standing.states
    if tasks is None:
        places = [n for n, one in enumerate(states) if one in {State.FAILED, State.CANCELLED}]
    else:
        places = [place_of(task_id) for task_id in tasks]
    again = sorted(standing.graph.downstream(places))
    if any(states[place] not in FINAL and states[place] is not State.WAITING for place in again):
        return "live"
    ended = [placed_id(run_id, place) for place in again if states[place] in FINAL]
    if not ended:
        return "nothing"
    elements = yield from _elements_again(writer, standing, again, tasks or ())
    was_over = RunState(run.state) in FINAL_RUN
    yield from writer.revive(run_id, [*ended, *elements], ended=was_over)
    state = RunState.RUNNING if was_over else RunState(run.state)
    yield from advance(writer, [run._replace(state=state, cancel_requested=False, error=None)])
    return "done"


def _elements_again(
    writer: RunWriter, standing: Standing, places: Sequence[int], tasks: Collection[str]
) -> Script[list[str]]:
    """The elements of named tasks; of others their list decides, when it is opened again."""
    named = {place_of(one) for one in tasks if index_of(one) is None}
    lists = standing.lists_at(place for place in places if place in named)
    stored = yield from fanning.read(writer, lists)
    of_lists = [element.id for found in stored.values() for element in found]
    return [*of_lists, *(one for one in tasks if index_of(one) is not None)]


def ask_to_stop(
    writer: RunWriter, run: Locked, *, reason: str | None, error: str | None
) -> Script[None]:
    """Note that a run is to end early, and once in its history why."""
    event = None if run.cancel_requested else RunEvent.CANCEL_REQUESTED
    change = RunChange(event=event, cancel=True, error=error, data=event_data(reason=reason))
    yield from writer.change(run.id, change)


def absent(statements: Mapping[str, Statement], run_id: str) -> Script[RunAnswer]:
    """Why there is no live run of this id."""
    known = yield Step(statements["run_state"], {"id": run_id})
    return "finished" if known else "unknown"


def live_tasks(writer: RunWriter, run: Locked) -> Script[list[str]]:
    """What of a run can be cancelled: a task with elements ends with them."""
    standing = Standing(run, (yield from states_of(writer, [run]))[run.id])
    lists = {group.place for group in standing.lists}
    # Elements of an earlier life may wait for a list that is to be opened again.
    unopened = [n for n, state in enumerate(standing.states) if state is State.WAITING]
    stored = yield from fanning.read(writer, [*standing.lists, *standing.lists_at(unopened)])
    elements = [one.id for found in stored.values() for one in found if one.state not in FINAL]
    live = [
        placed_id(run.id, place)
        for place, state in enumerate(standing.states)
        if state not in FINAL and place not in lists
    ]
    return [*live, *elements]
