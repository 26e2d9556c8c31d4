"""What a task waits for that has begun and has no worker: a signal, a run, or its elements."""

from penstock.engine.reasons import Code, Reason
from penstock.model.outcomes import end_of_run, signal_named
from penstock.model.telling import moment
from penstock.model.waiting import Waiting


def why_it_awaits(facts: Waiting, awaits: str) -> Reason:
    one = facts.snapshot
    until = (
        f", until {moment(one.run_at)} at most" if facts.due_in is not None and one.run_at else ""
    )
    if (signal := awaits.removeprefix(signal_named(""))) != awaits:
        return Reason(
            Code.SIGNAL,
            f"It waits for the signal {signal!r}, without a slot and without a worker{until}.",
            f'app.signal("{one.id}", "{signal}", …) lets it go on.',
        )
    if (run_id := awaits.removeprefix(end_of_run(""))) != awaits:
        return Reason(
            Code.CHILD,
            f"It waits for the run {run_id} that it started, without a slot and without a worker.",
            f"`penstock why {run_id}` says where that one stands.",
        )
    count = awaits.rpartition(":")[2]
    return Reason(
        Code.ELEMENTS,
        f"It runs for each of {count} elements, and not all of them have ended.",
        f"`penstock show {one.root_id}` says how far they are.",
    )
