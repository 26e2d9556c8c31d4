"""What people, and the clock, do to runs as a whole."""

from collections.abc import Mapping

from penstock.model.events import RunEvent
from penstock.model.ids import placed_id
from penstock.model.runs import RunAnswer, RunState
from penstock.model.states import FINAL
from penstock.store.advancing import advance, states_of
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


def absent(statements: Mapping[str, Statement], run_id: str) -> Script[RunAnswer]:
    """Why there is no live run of this id."""
    known = yield Step(statements["run_state"], {"id": run_id})
    return "finished" if known else "unknown"


def live_tasks(writer: RunWriter, run: Locked) -> Script[list[str]]:
    states = yield from states_of(writer, [run])
    return [
        placed_id(run.id, place) for place, state in enumerate(states[run.id]) if state not in FINAL
    ]
