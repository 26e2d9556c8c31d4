"""What a task remembers, starts and is told, when something goes wrong at exactly that moment."""

import signal
from collections import Counter
from pathlib import Path

import pytest

from penstock import App
from penstock.errors import StoreUnavailable
from penstock.testing import Faults, lose_reply
from tests.support import flow_tasks
from tests.support.workers import QUICK, Place, Workers, types, wait_until

NOBODY = "nobody"  # who dies after a step
FOURTH = "kill 1 3"


@pytest.fixture
def declared() -> App:
    return flow_tasks.app


def taken(place: Place) -> Counter[str]:
    """How often each step was taken, as the steps themselves wrote it down."""
    lines = Path(f"{place.directory / 'runs'}-flows").read_text("utf-8").splitlines()
    return Counter(word for _, word, *_ in map(str.split, lines) if word in flow_tasks.STEPS)


def children(app: App) -> list[str]:
    return [run.id for run in app.store.find_runs(workflow="child")]


# --- steps ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("point", "again"), [("before_store_steps", 1), ("after_store_steps", 0)])
def test_a_worker_killed_as_it_stores_a_step_repeats_it_only_if_it_was_not_stored(
    app: App, place: Place, workers: Workers, point: str, again: int
) -> None:
    execution = flow_tasks.durable.enqueue(NOBODY)
    victim = workers.start_with({point: FOURTH}, target=flow_tasks.TARGET, **QUICK)
    assert victim.wait() == -signal.SIGKILL
    assert ("charge" in app.store.memory(execution.id).steps) == (not again)
    workers.launch(flow_tasks.TARGET, QUICK)

    assert execution.result(timeout=20) == list(flow_tasks.STEPS)
    assert taken(place) == Counter([*flow_tasks.STEPS, *["charge"] * again])
    assert types(app.store, execution.id).count("task.recovered") == 1


@pytest.mark.parametrize("point", ["before_store_steps", "after_store_steps"])
def test_a_step_whose_reply_was_lost_is_taken_once(
    app: App, place: Place, workers: Workers, point: str
) -> None:
    execution = flow_tasks.durable.enqueue(NOBODY)
    worker = workers.start_with({point: "lose_reply 2"}, target=flow_tasks.TARGET, **QUICK)

    assert execution.result(timeout=20) == list(flow_tasks.STEPS)
    assert taken(place) == Counter(flow_tasks.STEPS)
    assert execution.refresh().attempt == 1
    assert "cut off by a test" in worker.log()


# --- runs that a task starts ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "started"), [("before_start_child", 0), ("after_start_child", 1)]
)
def test_a_worker_killed_as_its_task_starts_a_run_starts_one(
    app: App, workers: Workers, point: str, started: int
) -> None:
    execution = flow_tasks.parent.enqueue(21)
    victim = workers.start_with({point: "kill"}, target=flow_tasks.TARGET, **QUICK)
    assert victim.wait() == -signal.SIGKILL
    first = children(app)
    assert len(first) == started
    workers.launch(flow_tasks.TARGET, QUICK)

    assert execution.result(timeout=20) == 42
    assert len(children(app)) == 1
    assert set(first) <= set(children(app))


@pytest.mark.parametrize("point", ["before_start_child", "after_start_child"])
def test_a_run_whose_start_got_no_reply_is_started_once(
    app: App, workers: Workers, point: str
) -> None:
    execution = flow_tasks.parent.enqueue(21)
    workers.start_with({point: "lose_reply"}, target=flow_tasks.TARGET, **QUICK)

    assert execution.result(timeout=20) == 42
    assert len(children(app)) == 1
    # The handler was told that it is unknown; its next attempt found out.
    assert types(app.store, execution.id).count("task.retry_scheduled") == 1


# --- signals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["before_signal", "after_signal"])
def test_a_signal_whose_reply_was_lost_may_be_repeated(
    app: App, workers: Workers, point: str
) -> None:
    execution = flow_tasks.ask.enqueue(1)
    workers.launch(flow_tasks.TARGET, QUICK)
    wait_until(lambda: execution.refresh().state == "waiting")
    with Faults().at(point, lose_reply).injected(app) as faults:
        with pytest.raises(StoreUnavailable, match="the same request is safe"):
            app.signal(execution.id, "answer", 7)
        assert app.signal(execution.id, "answer", 7) == "told"
    assert faults.happened == {point: 1}

    assert execution.result(timeout=20) == 7
    assert types(app.store, execution.id).count("task.marked_ready") == 2
    assert app.signal(execution.id, "answer", 8) == "finished"
