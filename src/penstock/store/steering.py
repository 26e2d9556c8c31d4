"""What people, and the clock, do to runs as a whole."""

from collections.abc import Collection, Mapping

from penstock.model.events import RunEvent
from penstock.model.graph import decode_graph
from penstock.model.ids import placed_id
from penstock.model.runs import FINAL_RUN, RunAnswer, RunState
from penstock.model.states import FINAL, State
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


def rerun(writer: RunWriter, run_id: str, places: Collection[int] | None) -> Script[RunAnswer]:
    """Give tasks that have ended, and all downstream of them, a new life.

    Without `places`: those that failed or were cancelled. What the others returned is kept.
    """
    rows = yield Step(writer.statements["lock_run"], {"id": run_id})
    if not rows:
        return "unknown"
    run = Locked(*rows[0])
    states = (yield from states_of(writer, [run]))[run_id]
    graph = decode_graph(run.graph)
    if places is None:
        places = [n for n, one in enumerate(states) if one in {State.FAILED, State.CANCELLED}]
    again = graph.downstream(places)
    if any(states[place] not in FINAL and states[place] is not State.WAITING for place in again):
        return "live"
    ended = [placed_id(run_id, place) for place in sorted(again) if states[place] in FINAL]
    if not ended:
        return "nothing"
    was_over = RunState(run.state) in FINAL_RUN
    yield from writer.revive(run_id, ended, ended=was_over)
    state = RunState.RUNNING if was_over else RunState(run.state)
    yield from advance(writer, [run._replace(state=state, cancel_requested=False, error=None)])
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
