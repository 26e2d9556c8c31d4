"""Random graphs, random failures, random order: the same ends as a model that knows no order.

The model works them out from the last task backwards, one task at a time, in the plainest
words; the stores get there by settlements in batches, in whatever order they come.
"""

import json
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.executions import Claimed
from penstock.model.graph import Graph
from penstock.model.outcomes import Outcome
from penstock.model.rules import (
    Both,
    ContextValue,
    Dependencies,
    Either,
    Not,
    Quantity,
    Rule,
    TaskEnded,
)
from penstock.model.runs import RunState
from penstock.model.states import State
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.flows import (
    claim_all,
    completed,
    graph,
    node,
    place,
    run_of,
    start,
    task_at,
)
from tests.contract.support import MINUTE, finish, types, worker

QUANTITIES: list[Quantity] = [
    "all_succeeded", "all_done", "any_succeeded", "any_failed", "none_failed",
]  # fmt: skip
ENDS = ["completed", "failed", "skipped"]


@dataclass(frozen=True)
class Story:
    """A graph, and what each of its tasks does when its turn comes."""

    shape: Graph
    fails: frozenset[int]
    retried: frozenset[int]  # fail once, and then do as they are told
    writes: dict[int, int]
    seed: int


@st.composite
def stories(draw: st.DrawFn, most: int = 60) -> Story:
    count = draw(st.integers(1, most))
    random = Random(draw(st.integers(0, 2**32)))
    thickness = draw(st.sampled_from([0.5, 1.0, 2.0, 4.0]))
    upstream: list[set[int]] = []
    nodes = []
    for n in range(count):
        wanted = min(n, int(random.expovariate(1 / thickness)))
        after = sorted(random.sample(range(n), wanted))
        known = set(after).union(*(upstream[one] for one in after))
        upstream.append(known)
        rule = _rule(random, sorted(known), depth=2 if random.random() < 0.5 else 0)
        outputs = {f"from_{one}": one for one in after if random.random() < 0.5}
        context = "shared" if random.random() < 0.3 else None
        nodes.append(node(f"t{n}", *after, rule=rule, outputs=outputs, context=context))
    return Story(
        shape=graph(*nodes),
        fails=frozenset(n for n in range(count) if random.random() < 0.2),
        retried=frozenset(n for n in range(count) if random.random() < 0.1),
        writes={n: random.randrange(10) for n in range(count) if random.random() < 0.3},
        seed=random.randrange(2**32),
    )


def _rule(random: Random, upstream: list[int], depth: int) -> Rule:
    if depth and random.random() < 0.6:
        left = _rule(random, upstream, depth - 1)
        if random.random() < 0.3:
            return Not(left)
        right = _rule(random, upstream, depth - 1)
        return Both(left, right) if random.random() < 0.5 else Either(left, right)
    kind = random.random()
    if upstream and kind < 0.3:
        return TaskEnded(f"t{random.choice(upstream)}", random.choice(ENDS))  # type: ignore[arg-type]
    if kind < 0.5:
        test = random.choice(["<", ">=", "exists"])
        return ContextValue("n", test, random.randrange(10))  # type: ignore[arg-type]
    return Dependencies(random.choice(QUANTITIES) if random.random() < 0.6 else "all_succeeded")


class Model:
    """How a story must end, whoever is fast or slow."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._nodes = story.shape.nodes
        self.end = cache(self._end)

    def _end(self, place: int) -> str:
        if not self._holds(self._nodes[place].rule, place):
            return "skipped"
        return "failed" if place in self._story.fails else "completed"

    def upstream(self, place: int) -> set[int]:
        after = self._nodes[place].after
        return set(after).union(*(self.upstream(one) for one in after))

    def context(self, place: int) -> dict[str, Any]:
        seen: dict[str, Any] = {"day": "monday"}
        for one in sorted(self.upstream(place)):
            if self.end(one) == "completed" and one in self._story.writes:
                seen["n"] = self._story.writes[one]
                seen.setdefault("all", [])
                if one not in seen["all"]:
                    seen["all"].append(one)
        return seen

    def _holds(self, rule: Rule, place: int) -> bool:
        if isinstance(rule, Both | Either):
            join = all if isinstance(rule, Both) else any
            return join(self._holds(part, place) for part in (rule.left, rule.right))
        if isinstance(rule, Not):
            return not self._holds(rule.it, place)
        if isinstance(rule, TaskEnded):
            return self.end(int(rule.task[1:])) == rule.state
        if isinstance(rule, ContextValue):
            return self._value_holds(rule, place)
        return self._together(rule.ended, place)

    def _value_holds(self, rule: ContextValue, place: int) -> bool:
        n = self.context(place).get("n")
        if n is None:
            return False
        return bool({"<": n < rule.operand, ">=": n >= rule.operand, "exists": True}[rule.test])

    def _together(self, ended: Quantity, place: int) -> bool:
        ends = Counter(self.end(one) for one in self._nodes[place].after)
        return {
            "all_succeeded": ends["completed"] == ends.total(),
            "all_done": True,
            "any_succeeded": ends["completed"] > 0,
            "any_failed": ends["failed"] > 0,
            "none_failed": ends["failed"] == 0,
        }[ended]

    def run_state(self) -> RunState:
        for failed in range(len(self._nodes)):
            if self.end(failed) == "failed" and not any(
                self.end(other) == "completed"
                and (failed in node.after or f"t{failed}" in _named(node.rule))
                for other, node in enumerate(self._nodes)
            ):
                return RunState.FAILED
        return RunState.COMPLETED


def _named(rule: Rule) -> set[str]:
    if isinstance(rule, Both | Either):
        return _named(rule.left) | _named(rule.right)
    if isinstance(rule, Not):
        return _named(rule.it)
    return {rule.task} if isinstance(rule, TaskEnded) else set()


def live(store: Store, story: Story, clock: ManualClock) -> tuple[str, dict[int, Claimed]]:
    """Let a story happen, in an order that its seed decides; return what each task was given."""
    run_id = start(store, story.shape)
    return run_id, live_on(store, story, clock)


def live_on(store: Store, story: Story, clock: ManualClock) -> dict[int, Claimed]:
    random = Random(story.seed)
    given: dict[int, Claimed] = {}
    in_hand: list[Claimed] = []

    def outcome(one: Claimed) -> Outcome:
        here = place(one)
        if here in story.retried and one.retries == 0:
            return finish(one, "retry")
        if here in story.fails:
            return finish(one, "failed")
        writes = None
        if here in story.writes:
            writes = json.dumps({"n": story.writes[here], "all": [here]})
        return completed(one, str(here), writes)

    while True:
        claimed = claim_all(store, limit=random.randint(1, 10))
        given |= {place(one): one for one in claimed}
        in_hand += claimed
        if not in_hand:
            clock.advance(MINUTE)
            if not store.promote().promoted:
                return given
            continue
        random.shuffle(in_hand)
        some = random.randint(1, len(in_hand))
        assert store.settle([outcome(one) for one in in_hand[:some]]) == []
        del in_hand[:some]


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=stories())
def test_a_run_ends_as_its_graph_says_in_whatever_order_its_tasks_end(
    store: Store, clock: ManualClock, story: Story
) -> None:
    worker(store)
    model = Model(story)
    count = len(story.shape.nodes)
    run_id, given = live(store, story, clock)

    tasks = store.tasks_of(run_id)
    assert [task.state.value for task in tasks] == [model.end(n) for n in range(count)]
    assert run_of(store, run_id).state is model.run_state()
    assert set(given) == {n for n in range(count) if model.end(n) != "skipped"}
    for n, claimed in given.items():
        expected: dict[str, Any] = {
            name: source if model.end(source) == "completed" else None
            for name, source in story.shape.nodes[n].outputs.items()
        }
        if story.shape.nodes[n].context is not None:
            expected["shared"] = model.context(n)
        assert json.loads(claimed.args) == expected
    for n, task in enumerate(tasks):
        runs = [
            event for event in store.history(task_at(run_id, n)) if event.type == "task.claimed"
        ]
        turns = 0 if task.state is State.SKIPPED else 2 if n in story.retried else 1
        assert len(runs) == task.attempt == turns


@pytest.mark.parametrize("width", [100])
def test_a_fan_of_a_hundred_comes_together_once(
    store: Store, clock: ManualClock, width: int
) -> None:
    worker(store)
    fan = [node(f"t{n}", 0) for n in range(1, width + 1)]
    shape = graph(node("t0"), *fan, node("join", *range(1, width + 1)))
    story = Story(shape, frozenset(), frozenset(), {}, seed=7)
    run_id, given = live(store, story, clock)
    assert len(given) == width + 2
    assert run_of(store, run_id).state is RunState.COMPLETED


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=stories(most=25))
def test_a_run_that_is_rerun_ends_as_a_fresh_one_with_its_failures_mended_would(
    store: Store, clock: ManualClock, story: Story
) -> None:
    worker(store)
    run_id, _ = live(store, story, clock)
    before = store.tasks_of(run_id)
    mended = replace(story, fails=frozenset(), retried=frozenset())
    failed = {n for n, task in enumerate(before) if task.state is State.FAILED}

    answer = store.rerun_run(run_id)

    assert answer == ("done" if failed else "nothing")
    live_on(store, mended, clock)
    model = Model(mended)
    # Those that never ran had no chance to fail; what ran and failed has been mended.
    count = len(story.shape.nodes)
    tasks = store.tasks_of(run_id)
    assert [task.state.value for task in tasks] == [model.end(n) for n in range(count)]
    assert run_of(store, run_id).state is model.run_state()
    again = story.shape.downstream(failed)
    for n, (old, new) in enumerate(zip(before, tasks, strict=True)):
        told = types(store.history(new.id))
        assert told.count("task.rerun") == (n in again)
        if n not in again:
            assert (new.result, new.attempt) == (old.result, old.attempt)
