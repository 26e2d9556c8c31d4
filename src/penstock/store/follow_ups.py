"""What follows an end.

Follow-ups are written in the transaction that ends the execution, so each follows exactly once,
also when the end was found by a worker that never saw the code.
"""

from collections.abc import Iterable

import msgspec

from penstock.model.executions import NewExecution
from penstock.model.follow_ups import decode_follow_ups
from penstock.model.ids import new_id
from penstock.model.states import State
from penstock.store.scripts import Row


def following(ended: Iterable[Row]) -> list[NewExecution]:
    """Return what follows these ends: rows of id, task, state, follow_ups, result, error, trace."""
    found = []
    for execution_id, task, state, follow_ups, result, error, trace in ended:
        if follow_ups is None:
            continue
        both = decode_follow_ups(follow_ups)
        chosen = {State.COMPLETED: both.on_success, State.FAILED: both.on_failure}.get(State(state))
        if chosen is not None:
            facts = {
                "execution_id": execution_id,
                "task": task,
                "result": msgspec.Raw((result or "null").encode()),
                "error": msgspec.Raw((error or "null").encode()),
            }
            wanted = {name: facts[name] for name in chosen.wants}
            found.append(
                NewExecution(
                    id=new_id(),
                    task=chosen.task,
                    args=msgspec.json.encode(wanted).decode(),
                    queue=chosen.queue,
                    priority=chosen.priority,
                    max_crashes=chosen.max_crashes,
                    trace=trace,
                )
            )
    return found
