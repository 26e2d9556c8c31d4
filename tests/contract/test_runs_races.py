"""Runs under the hands of many at once: workers settle while people pause, cancel and rerun."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import pytest

from penstock.model.executions import Claimed
from penstock.model.graph import ForEach, Graph, Node
from penstock.model.outcomes import Outcome, Suspended, signal_named
from penstock.model.rules import Dependencies
from penstock.model.runs import FINAL_RUN, RunState
from penstock.store.contract import Store
from tests.contract.databases import Database
from tests.contract.flows import claim_all, completed, diamond, graph, new_run, node
from tests.contract.support import QUEUE, TASK, finish, worker
from tests.contract.threads import in_threads

RUNS = 60
THREADS = 4


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    store = database.open()
    store.migrate()
    yield store
    store.close()


def fanned() -> Graph:
    each = Node(
        name="each", task=TASK, queue=QUEUE, max_crashes=3, after=(0,),
        for_each=ForEach("item", 0),
    )  # fmt: skip
    last = node("last", 1, rule=Dependencies("all_done"))
    return graph(node("list"), each, last)


def outcome(one: Claimed, random: Random) -> Outcome:
    match random.randrange(12):
        case 0:
            return finish(one, "failed")
        case 1:
            return finish(one, "released")
        case 2:
            return Suspended(lease=one.lease, run_id=one.run_id, awaits=signal_named("go"))
        case _:
            return completed(one, "[1,2,3]")


class Crowd:
    """Workers, and somebody who meddles with what they do."""

    def __init__(self, store: Store, ids: list[str]) -> None:
        self._store = store
        self._ids = ids
        self._over = threading.Event()

    def live(self) -> bool:
        return any(run.state not in FINAL_RUN for run in self._store.runs(self._ids))

    def work(self, number: int) -> None:
        random = Random(number)
        me = worker(self._store, f"worker-{number}")
        while not self._over.is_set():
            claimed = claim_all(self._store, me, limit=random.randint(1, 8))
            random.shuffle(claimed)
            while claimed:
                some = [claimed.pop() for _ in range(min(len(claimed), random.randint(1, 4)))]
                self._store.settle([outcome(one, random) for one in some])
            self._store.propagate()

    def meddle(self) -> None:
        random = Random(0)
        try:
            for _ in range(150):
                self._meddle_with(random.choice(self._ids), random)
            for _ in range(400):
                self._let_all_go()
                if not self.live():
                    return
        finally:
            self._over.set()

    def _meddle_with(self, run_id: str, random: Random) -> None:
        store = self._store
        task_id = random.choice([one.id for one in store.tasks_of(run_id)])
        acts: list[Callable[[], object]] = [
            lambda: store.pause_run(run_id),
            lambda: store.resume_run(run_id),
            lambda: store.cancel_run(run_id),
            lambda: store.rerun_run(run_id),
            lambda: store.rerun([task_id]),
            lambda: store.cancel([task_id]),
        ]
        random.choice(acts)()

    def _let_all_go(self) -> None:
        for run in self._store.runs(self._ids):
            if run.state is RunState.PAUSED:
                self._store.resume_run(run.id)
        for one in self._store.find(limit=10_000):
            if one.finished_at is None:
                self._store.signal(one.id, "go", "1")


def test_whatever_happens_at_once_every_run_ends_as_its_tasks_say(store: Store) -> None:
    shapes = [diamond(), fanned()]
    runs = [new_run(shapes[n % 2]) for n in range(RUNS)]
    store.start_runs(runs)
    crowd = Crowd(store, [run.id for run in runs])

    workers: list[Callable[[], None]] = [partial(crowd.work, n) for n in range(1, THREADS)]
    in_threads([crowd.meddle, *workers], timeout=90)

    store.propagate()
    assert not crowd.live()
    for run in runs:
        told = [event.type for event in store.history(run.id) if event.execution_id is None]
        assert told[0] == "workflow.started"
        assert told[-1] in {"workflow.completed", "workflow.failed", "workflow.cancelled"}
