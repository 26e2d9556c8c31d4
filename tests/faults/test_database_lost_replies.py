"""A call was carried out, and its answer was lost: nothing is lost with it, and nothing doubled."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock import App
from penstock.errors import StoreUnavailable
from penstock.model.events import EventType
from penstock.model.workers import Beat, WorkerInfo
from penstock.store.contract import Store
from tests.support.workers import types, wait_until

TASKS = 5
ONCE = ["task.created", "task.marked_ready", "task.claimed", "task.started", "task.completed"]


class LostReplies:
    """Calls a method of the store, and loses its answer so many times when there is one."""

    def __init__(self, call: Callable[..., Any], *, times: int, always: bool) -> None:
        self._call = call
        self._left = times
        self._always = always  # also an empty answer
        self._lock = threading.Lock()
        self.lost = 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method has it
        answer = self._call(*arguments, **named)
        with self._lock:
            if self._left == 0 or not (answer or self._always):
                return answer
            self._left -= 1
            self.lost += 1
        raise StoreUnavailable(self._call.__name__, because=ConnectionResetError("cut off"))


LoseReplies = Callable[[Store, str], LostReplies]


@pytest.fixture
def lose_replies(monkeypatch: pytest.MonkeyPatch) -> LoseReplies:
    def lose(store: Store, method: str) -> LostReplies:
        losing = LostReplies(getattr(store, method), times=2, always=method != "claim")
        monkeypatch.setattr(store, method, losing)
        return losing

    return lose


@pytest.fixture
def runs() -> Counter[int]:
    return Counter()


@pytest.fixture
def app(make_app: Callable[[], App], runs: Counter[int]) -> App:
    app = make_app()

    @app.task(retry=None)
    def count(number: int) -> int:
        runs[number] += 1
        return number

    return app


def test_tasks_of_a_claim_whose_reply_was_lost_are_given_back_and_run_once(
    app: App, runs: Counter[int], lose_replies: LoseReplies
) -> None:
    executions = [app.enqueue("count", {"number": n}) for n in range(TASKS)]
    losing = lose_replies(app.store, "claim")
    with app.worker(poll=1):
        for number, execution in enumerate(executions):
            assert execution.result(timeout=20) == number
    assert losing.lost == 2
    assert runs == Counter(range(TASKS))
    gave_back = 0
    for execution in executions:
        events = types(app.store, execution.id)
        times = events.count(EventType.RELEASED)
        assert events.count(EventType.CLAIMED) == times + 1
        assert EventType.RECOVERED not in events
        gave_back += times
        assert execution.refresh().attempt == 1
    assert gave_back == losing.lost * TASKS


def test_a_settlement_whose_reply_was_lost_is_not_made_twice(
    app: App, runs: Counter[int], lose_replies: LoseReplies, caplog: pytest.LogCaptureFixture
) -> None:
    executions = [app.enqueue("count", {"number": n}) for n in range(TASKS)]
    losing = lose_replies(app.store, "settle")
    with app.worker():
        for execution in executions:
            execution.result(timeout=20)
        wait_until(lambda: losing.lost == 2)
    assert runs == Counter(range(TASKS))
    for execution in executions:
        assert types(app.store, execution.id) == ONCE
    assert "its lease went to another worker" not in caplog.text


def test_a_start_whose_reply_was_lost_is_told_once(
    make_app: Callable[[], App], lose_replies: LoseReplies
) -> None:
    app, gate = make_app(), threading.Event()

    @app.task
    def hold() -> None:
        gate.wait(60)

    execution = hold.enqueue()
    losing = lose_replies(app.store, "start")
    with app.worker():
        wait_until(lambda: losing.lost == 2)
        gate.set()
        execution.result(timeout=20)
    assert types(app.store, execution.id) == ONCE


def test_a_suspect_whose_start_got_no_reply_is_given_back_and_runs_once(
    app: App, runs: Counter[int], lose_replies: LoseReplies
) -> None:
    """A suspect's start is recorded before it begins; without the reply it does not begin."""
    store = app.store
    suspect = app.enqueue("count", {"number": 1})
    for name in ("victim", "observer"):
        store.register(WorkerInfo(id=name, queues=["default"], tasks=["count"]))
    (claimed,) = store.claim("victim", queues=["default"], tasks=["count"], limit=1)
    assert store.start([claimed.lease]) == []
    store.recover("observer", dead=[Beat("victim", 0)])
    store.unregister("observer")
    assert suspect.refresh().state == "ready"

    losing = lose_replies(store, "start")
    with app.worker(heartbeat=0.3, lease=1.5, poll=1):
        assert suspect.result(timeout=20) == 1
    assert losing.lost == 2
    assert runs == Counter([1])
    events = types(store, suspect.id)
    assert events.count(EventType.RECOVERED) == 1
    assert events.count(EventType.CLAIMED) == 1 + 1 + events.count(EventType.RELEASED)


def test_a_heartbeat_whose_reply_was_lost_costs_a_living_worker_nothing(
    app: App, runs: Counter[int], lose_replies: LoseReplies
) -> None:
    losing = lose_replies(app.store, "heartbeat")
    with app.worker(heartbeat=0.3, lease=1.5) as worker:
        name = worker.id
        wait_until(lambda: losing.lost == 2)
        assert app.enqueue("count", {"number": 1}).result(timeout=20) == 1
        assert worker.id == name
    assert runs == Counter([1])
