"""What must be true when a soak is over: the tables, and what the tasks themselves wrote down."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.engine.verifying import verify
from penstock.model.events import EventType
from penstock.model.states import FINAL, State
from penstock.store.contract import Store
from tests.soak import tasks
from tests.soak.auditing_flows import query, wrong_with_flows
from tests.support.handling import effects
from tests.support.workers import Place

MOST_COMPLAINTS = 50


@dataclass
class Audit:
    executions: int = 0
    events: int = 0
    flows: int = 0  # runs of workflows
    runs: int = 0
    extra_runs: int = 0
    recovered: int = 0
    abandoned: int = 0
    effects: int = 0
    states: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def complain(self, sentence: str) -> None:
        if len(self.complaints) < MOST_COMPLAINTS:
            self.complaints.append(sentence)


def audit(
    store: Store, place: Place, acknowledged: Collection[str], flows: Collection[str]
) -> Audit:
    """Compare the tables with each other and with the ledgers; complain of every difference.

    `acknowledged` are executions that somebody was told of, and `flows` such runs of workflows.
    """
    found = Audit(flows=sum(store.run_counts().values()))
    for stretch in verify(store):
        found.executions += stretch.executions
        found.events += stretch.events
        for finding in stretch.findings:
            found.complain(f"{finding.execution_id} {finding.code}: {finding.wrong}")
    executions = {
        id_: (task, State(state), args)
        for id_, task, state, args in query(
            place, "SELECT CAST(id AS text), task, state, args FROM task_executions"
        )
    }
    found.states = Counter(state.value for _, state, _ in executions.values())
    for lost in set(acknowledged) - executions.keys():
        found.complain(f"{lost} was acknowledged and is not there")
    for id_, (task, state, _) in executions.items():
        if state not in FINAL:
            found.complain(f"{id_} ({task}) never ended: it is {state}")
    told = _told(place)
    _check_runs(found, place, executions, told)
    _check_effects(found, place, executions)
    _check_follow_ups(found, executions)
    for complaint in wrong_with_flows(place, flows, told):
        found.complain(complaint)
    return found


Executions = Mapping[str, tuple[str, State, str]]


Told = Mapping[str, Counter[str]]


def _told(place: Place) -> Told:
    """How often each thing happened to each execution."""
    told: dict[str, Counter[str]] = defaultdict(Counter)
    for id_, kind, count in query(
        place,
        "SELECT CAST(task_execution_id AS text), type, count(*) FROM execution_events "
        "WHERE task_execution_id IS NOT NULL GROUP BY task_execution_id, type",
    ):
        told[id_][kind] = count
    return told


def _check_runs(found: Audit, place: Place, executions: Executions, told: Told) -> None:
    """Every run has its claim, and every claim but the first an event that explains it."""
    began = Counter(run.execution_id for run in place.runs())
    found.runs = began.total()
    found.extra_runs = began.total() - len(began)
    for id_, counts in told.items():
        found.recovered += counts[EventType.RECOVERED]
        found.abandoned += counts[EventType.ABANDONED]
        lives = 1 + counts[EventType.RERUN]
        back = sum(
            counts[kind]
            for kind in (
                EventType.RECOVERED,
                EventType.RELEASED,
                EventType.RETRY_SCHEDULED,
                EventType.SUSPENDED,
            )
        )
        # A task that deferred itself is scheduled again, and a scheduled one was so at first.
        back += counts[EventType.SCHEDULED]
        if counts[EventType.CLAIMED] > lives + back:
            found.complain(f"{id_} has claims that nothing explains: {dict(counts)}")
        if began[id_] > counts[EventType.CLAIMED]:
            found.complain(f"{id_} began {began[id_]} times: {dict(counts)}")
        endings = sum(
            counts[kind]
            for kind in (
                EventType.COMPLETED,
                EventType.FAILED,
                EventType.ABANDONED,
                EventType.CANCELLED,
                EventType.SKIPPED,
            )
        )
        if endings != lives:
            found.complain(f"{id_} ended {endings} times in {lives} lives: {dict(counts)}")
    for id_ in began.keys() - executions.keys():
        found.complain(f"{id_} ran and is not there")


def _check_effects(found: Audit, place: Place, executions: Executions) -> None:
    taken = Counter(effects(place))
    found.effects = taken.total()
    for id_, count in taken.items():
        if count > 1:
            found.complain(f"{id_} took effect {count} times")
    for id_, (task, state, _) in executions.items():
        done = state is State.COMPLETED
        if task in tasks.EFFECT_WITH_COMPLETION and taken[id_] != done:
            found.complain(f"{id_} ({task}) is {state} with {taken[id_]} effects")
        if task == tasks.EFFECT_ONCE and done and taken[id_] != 1:
            found.complain(f"{id_} ({task}) is {state} with {taken[id_]} effects")


def _check_follow_ups(found: Audit, executions: Executions) -> None:
    followed = Counter(
        msgspec.json.decode(args)["execution_id"]
        for task, _, args in executions.values()
        if task == tasks.FOLLOWS
    )
    for id_, (task, state, _) in executions.items():
        if task == tasks.FOLLOWED and followed[id_] != (state is State.COMPLETED):
            found.complain(f"{id_} is {state} and was followed {followed[id_]} times")
