"""Why a run of a workflow stands where it stands, and what a task of it waits for."""

from collections.abc import Sequence
from functools import cached_property
from typing import assert_never

import msgspec

from penstock.engine.conditions import told
from penstock.engine.reasons import Code, Reason
from penstock.model.executions import Snapshot
from penstock.model.graph import Graph, Node, decode_graph
from penstock.model.ids import place_of
from penstock.model.payloads import decode
from penstock.model.runs import RunSnapshot, RunState
from penstock.model.states import FINAL, State
from penstock.model.telling import count, error_line, listed, moment
from penstock.model.waiting import Waiting

_UNDER_WAY = (State.RUNNING, State.SCHEDULED, State.READY)


class RunFacts(msgspec.Struct, frozen=True, dict=True):
    """A run and its tasks, in the order of its graph."""

    run: RunSnapshot
    tasks: Sequence[Snapshot]
    reason: str | None = None  # why somebody cancelled it

    @cached_property
    def graph(self) -> Graph:
        return decode_graph(self.run.graph)

    def name_of(self, place: int) -> str:
        return self.graph.nodes[place].name

    def stands(self, place: int) -> str:
        return f"{self.name_of(place)!r} {self.tasks[place].state}"


def why_task_waits(facts: Waiting, run: RunSnapshot) -> Reason:
    """Return what a waiting task of a run waits for."""
    node, ahead = _node(facts, run), facts.waits_for
    if ahead:
        within = f"{run.workflow}."
        told_of = ", ".join(f"{one.task.removeprefix(within)!r} {one.state}" for one in ahead)
        verb = "has" if len(ahead) == 1 else "have"
        paused = "; the run is paused, too" if run.state is RunState.PAUSED else ""
        return Reason(
            Code.DEPENDENCIES,
            f"It is a task of the run {run.id} of {run.workflow!r}, and "
            f"{count(len(ahead), 'task')} that it depends on {verb} not ended: "
            f"{told_of}{paused}. Then its rule decides: {told(node.rule)}.",
            f"`penstock why {ahead[0].id}` says what the first of them waits for.",
        )
    if run.state is RunState.PAUSED:
        return Reason(
            Code.RUN_PAUSED,
            f"The run {run.id} of {run.workflow!r} is paused, and nothing of it begins.",
            f"`penstock resume {run.id}` lets it go on.",
        )
    return Reason(
        Code.TO_BE_RELEASED,
        "All that it depends on has ended; a worker releases it with its next look.",
        "Ask again in a moment; if it still waits then, look for a live worker with "
        "`penstock workers`.",
    )


def why_task_was_skipped(facts: Waiting, run: RunSnapshot) -> Reason:
    """Return which rule said no."""
    at = moment(facts.snapshot.finished_at or facts.at)
    return Reason(
        Code.SKIPPED,
        f"It was skipped at {at}: its rule, {told(_node(facts, run).rule)}, did not hold when all "
        "that it depends on had ended.",
        f"Nothing; `penstock show {run.id}` shows how the others ended.",
    )


def _node(facts: Waiting, run: RunSnapshot) -> Node:
    return decode_graph(run.graph).nodes[place_of(facts.snapshot.id)]


def explain_run(facts: RunFacts) -> list[Reason]:
    """Return why the run is in its state, never nothing."""
    run = facts.run
    match run.state:
        case RunState.RUNNING | RunState.PAUSED:
            return list(_why_live(facts))
        case RunState.COMPLETED:
            skipped = [n for n, one in enumerate(facts.tasks) if one.state is State.SKIPPED]
            without = f"; skipped: {listed(map(facts.name_of, skipped))}" if skipped else ""
            return [Reason(Code.COMPLETED, f"It completed at {_when(run)}{without}.", "Nothing.")]
        case RunState.CANCELLED:
            return [
                Reason(
                    Code.CANCELLED,
                    f"It was cancelled at {_when(run)}, "
                    f"{_given(facts.reason)}. Who it was is not recorded.",
                    f"`penstock history {run.id}` tells what had run by then; `penstock rerun "
                    f"{run.id}` lets it go on.",
                )
            ]
        case RunState.FAILED:
            return [_why_failed(facts)]
        case _:
            assert_never(run.state)


def _given(reason: str | None) -> str:
    return f"with this reason: {reason}" if reason else "without a reason on record"


def _why_live(facts: RunFacts) -> list[Reason]:
    run = facts.run
    reasons = []
    if run.state is RunState.PAUSED:
        reasons.append(
            Reason(
                Code.RUN_PAUSED,
                "It is paused: what ran when that happened goes on, and nothing else begins.",
                f"`penstock resume {run.id}` lets it go on.",
            )
        )
    if run.cancel_requested:
        reasons.append(
            Reason(
                Code.CANCEL_REQUESTED,
                "Somebody has asked it to stop, and it ends with the last task that runs.",
                "A task stops where it asks `handle.raise_if_cancelled()` or awaits something.",
            )
        )
    live = [place for place, one in enumerate(facts.tasks) if _is_under_way(one)]
    ended = sum(one.state in FINAL for one in facts.tasks)
    if live:
        first = facts.tasks[live[0]].id
        shown = ", ".join(facts.stands(place) for place in live[:5])
        more = f" and {len(live) - 5} more" if len(live) > 5 else ""  # noqa: PLR2004
        reasons.append(
            Reason(
                Code.RUNNING,
                f"{ended} of its {count(len(facts.tasks), 'task')} have ended; under way: "
                f"{shown}{more}.",
                f"`penstock why {first}` says what the first of them waits for.",
            )
        )
    return reasons or [
        Reason(
            Code.TO_BE_RELEASED,
            "Nothing of it is under way; a worker lets its next tasks go with its next look.",
            "Ask again in a moment; if it still stands then, look for a live worker with "
            "`penstock workers`.",
        )
    ]


def _is_under_way(task: Snapshot) -> bool:
    # One that waits for a signal, for a run or for its elements has begun, without a worker.
    return task.state in _UNDER_WAY or task.awaits is not None


def _why_failed(facts: RunFacts) -> Reason:
    run = facts.run
    failed = [place for place, one in enumerate(facts.tasks) if one.state is State.FAILED]
    own = None if run.error is None else decode(run.error)
    told_why = [
        f"{facts.name_of(place)!r} with {error_line(_error(facts.tasks[place])).rstrip('.')}"
        for place in failed
    ]
    if isinstance(own, dict) and own.get("tasks") is None:
        told_why.insert(0, error_line(own).rstrip("."))
    first = (
        f"`penstock show {facts.tasks[failed[0]].id}` has the traceback"
        if failed
        else (f"`penstock history {run.id}` tells the whole story")
    )
    return Reason(
        Code.FAILED,
        f"It failed at {_when(run)}: {'; '.join(told_why) or 'nobody stored why'}.",
        f"{first}; mend the cause, then `penstock rerun {run.id}` goes on from there. What nobody "
        f"needs any more goes with `penstock dismiss {run.id}`.",
    )


def _error(task: Snapshot) -> object:
    return None if task.error is None else decode(task.error)


def _when(run: RunSnapshot) -> str:
    return moment(run.finished_at or run.created_at)
