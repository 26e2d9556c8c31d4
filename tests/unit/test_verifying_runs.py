"""The rules of `verify` about runs: what a graph leads to is right, anything else is found."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model.events import EventType, RunEvent
from penstock.model.examinations import Examination, Examined, RunExamination
from penstock.model.graph import Graph, Node, decide
from penstock.model.ids import placed_id
from penstock.model.retelling import RunRetelling, Wrong
from penstock.model.rules import ALL_SUCCEEDED, ContextValue, Dependencies, Rule, TaskEnded
from penstock.model.runs import RUN_TRANSITIONS, RunState
from penstock.model.states import FINAL, State
from penstock.model.verifying import findings_in
from penstock.model.verifying_runs import complaints_about_run
from tests.unit.test_verifying import COMPLETED, CREATED, ENQUEUED, LAST, claimed, execution, told

RUN = "0197a000-0000-7000-8000-000000000000"
ENDS = (State.COMPLETED, State.FAILED, State.CANCELLED)


def node(name: str, *after: int, rule: Rule = ALL_SUCCEEDED) -> Node:
    return Node(name=name, task="send", queue="mail", max_crashes=3, after=after, rule=rule)


def task(place: int, state: State) -> Examination:
    return replace(
        execution(state, CREATED), id=placed_id(RUN, place), root_id=RUN, run_id=RUN, places=()
    )


def history(*events: RunEvent) -> RunRetelling:
    retelling = RunRetelling()
    for event in events:
        retelling.add(event)
    return retelling


def run(
    graph: Graph, states: Sequence[State], state: RunState = RunState.RUNNING
) -> RunExamination:
    events = [RunEvent.STARTED]
    if state is not RunState.RUNNING:
        events.append(RunEvent(f"workflow.{state}"))
    return RunExamination(
        id=RUN,
        state=state,
        graph=graph,
        cancel_requested=False,
        out_of_time=False,
        finished=state in {RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED},
        will_go_on=False,
        parent_cancelled=False,
        tasks=[task(place, one) for place, one in enumerate(states)],
        told=history(*events),
    )


def codes(examined: RunExamination) -> list[Wrong]:
    return [code for code, _, _ in complaints_about_run(examined)]


def chain(*rules: Rule) -> Graph:
    nodes = [node("t0"), *(node(f"t{n}", n - 1, rule=rule) for n, rule in enumerate(rules, 1))]
    return Graph(workflow="nightly", nodes=tuple(nodes))


TWO = chain(ALL_SUCCEEDED)
QUANTITIES: list[Rule] = [
    ALL_SUCCEEDED,
    Dependencies("all_done"),
    Dependencies("any_failed"),
    Dependencies("none_failed"),
]
C, R, W, S = State.COMPLETED, State.READY, State.WAITING, State.SKIPPED


@given(st.data())
def test_what_the_decisions_lead_to_is_never_a_finding(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 8))
    nodes = []
    for n in range(size):
        upstream = st.lists(st.integers(0, n - 1), unique=True, max_size=3) if n else st.just([])
        after: list[int] = data.draw(upstream)
        rules = [*QUANTITIES, *(TaskEnded(f"t{one}", "failed") for one in after)]
        nodes.append(node(f"t{n}", *after, rule=data.draw(st.sampled_from(rules))))
    graph = Graph(workflow="nightly", nodes=tuple(nodes))
    states = [State.WAITING] * size
    while True:
        decision = decide(graph, states, context_of=lambda _: {})
        for place in decision.ready:
            states[place] = State.READY
        for place in decision.skipped:
            states[place] = State.SKIPPED
        assert codes(run(graph, states, decision.end or RunState.RUNNING)) == []
        live = [place for place, state in enumerate(states) if state is State.READY]
        if not live:
            break
        states[data.draw(st.sampled_from(live))] = data.draw(st.sampled_from(ENDS))
    assert all(state in FINAL for state in states)


@pytest.mark.parametrize(
    ("examined", "expected"),
    [
        (replace(run(TWO, [C, R]), state="paused"), [Wrong.RUN_STATE_DIFFERS]),
        (replace(run(TWO, [C, R]), finished=True), [Wrong.RUN_FINISHED_AT_DIFFERS]),
        (replace(run(TWO, [C, R]), graph=None), [Wrong.RUN_GRAPH_UNREADABLE]),
        (replace(run(TWO, [C, R]), tasks=()), [Wrong.RUN_TASKS_DIFFER]),
        (run(TWO, [C, R, W]), [Wrong.RUN_TASKS_DIFFER]),
        (run(TWO, [C, R], RunState.COMPLETED), [Wrong.RUN_ENDED_EARLY]),
        (run(TWO, [C, C]), [Wrong.RUN_NOT_ENDED]),
        (replace(run(TWO, [C, C]), will_go_on=True), []),
        (run(TWO, [C, C], RunState.FAILED), [Wrong.RUN_END_DIFFERS]),
        (replace(run(TWO, [C, C], RunState.FAILED), out_of_time=True), []),
        (run(TWO, [C, W]), [Wrong.STUCK_IN_RUN]),
        (replace(run(TWO, [C, W]), will_go_on=True), []),
        (run(TWO, [C, W], RunState.PAUSED), []),
        (run(TWO, [R, R]), [Wrong.BEFORE_ITS_TURN]),
        (replace(run(TWO, [C, R]), parent_cancelled=True), [Wrong.CHILD_LEFT]),
        (replace(run(TWO, [C, R]), parent_cancelled=True, will_go_on=True), []),
        (replace(run(TWO, [C, R]), parent_cancelled=True, cancel_requested=True), []),
        (replace(run(TWO, [C, C], RunState.COMPLETED), parent_cancelled=True), []),
        (run(TWO, [C, S], RunState.COMPLETED), [Wrong.AGAINST_ITS_RULE]),
        (run(TWO, [S, R]), [Wrong.AGAINST_ITS_RULE, Wrong.AGAINST_ITS_RULE]),
    ],
)
def test_each_corruption_is_found_and_nothing_else_is_said(
    examined: RunExamination, expected: list[Wrong]
) -> None:
    assert codes(examined) == expected


def test_a_rule_about_values_is_judged_by_what_the_values_said() -> None:
    asking = run(chain(ContextValue("size", ">", 5)), [C, S], RunState.COMPLETED)
    assert codes(replace(asking, verdicts={1: False})) == []
    assert codes(replace(asking, verdicts={1: True})) == [Wrong.AGAINST_ITS_RULE]
    assert codes(asking) == []  # nobody can say


def test_of_many_only_a_few_are_named() -> None:
    wide = Graph(workflow="nightly", nodes=tuple(node(f"t{n}") for n in range(9)))
    ((_, _, wrong),) = complaints_about_run(run(wide, [R] * 9, RunState.COMPLETED))
    assert "'t0' is ready" in wrong
    assert wrong.endswith("and 6 more")


# --- what retention has removed -----------------------------------------------------------------


def remains(*events: RunEvent, task_state: State = State.COMPLETED) -> list[Wrong]:
    """The findings about a run of which only the history is left."""
    of_task = told(*ENQUEUED, claimed(1), COMPLETED)
    of_task.state = task_state
    examined = Examined(
        executions=(),
        strays=(),
        remains={placed_id(RUN, 0): of_task},
        events=0,
        until=LAST,
        next=None,
        remains_of_runs={RUN: history(*events)},
    )
    return [one.code for one in findings_in(examined)]


def test_what_is_left_of_a_run_tells_whether_it_may_have_been_removed() -> None:
    assert remains(RunEvent.STARTED, RunEvent.COMPLETED) == []
    assert remains(RunEvent.STARTED, RunEvent.CANCELLED, task_state=State.FAILED) == []
    assert remains(RunEvent.STARTED, RunEvent.FAILED) == [Wrong.LOST_EXECUTION]
    assert remains(RunEvent.STARTED) == [Wrong.LOST_EXECUTION]
    live = remains(RunEvent.STARTED, RunEvent.COMPLETED, task_state=State.READY)
    assert live == [Wrong.LOST_EXECUTION]


def test_a_run_may_begin_with_a_rerun_once_retention_took_the_rest() -> None:
    again = history(RunEvent.RERUN)
    assert (again.state, again.whole, again.faults) == (RunState.RUNNING, False, {})
    revived = run(TWO, [C, R])
    forgotten = [replace(revived.tasks[0], told=told()), revived.tasks[1]]
    assert codes(replace(revived, tasks=forgotten, told=again)) == []
    assert codes(replace(revived, tasks=forgotten)) == [Wrong.NO_HISTORY]


# --- a run's own history ------------------------------------------------------------------------


@given(st.lists(st.sampled_from(sorted(RunEvent)), min_size=1, max_size=12))
def test_a_history_of_a_run_has_a_fault_exactly_when_the_table_forbids_it(
    events: list[RunEvent],
) -> None:
    state = RunState.COMPLETED if events[0] is RunEvent.RERUN else None
    possible = True
    for event in events:
        possible = possible and (state, event) in RUN_TRANSITIONS
        state = RUN_TRANSITIONS.get((state, event))
    retelling = history(*events)
    assert (retelling.faults == {}) == possible
    if possible:
        assert retelling.state is state


def test_an_event_of_a_task_is_none_of_a_run() -> None:
    retelling = RunRetelling()
    retelling.add(EventType.CREATED)
    assert set(retelling.faults) == {Wrong.UNKNOWN_EVENT}
