"""What is exposed to Prometheus: all that is declared, and labels that stay few."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from penstock import App
from penstock.errors import StoreUnavailable
from penstock.integrations import declared
from penstock.integrations.outcomes import NAME_OF
from penstock.integrations.prometheus import (
    MOST_QUEUES,
    OTHER_QUEUES,
    READ_AT_MOST_EVERY,
    DatabaseCollector,
    WorkerMetrics,
    page_of,
)
from penstock.model.gauges import Gauges
from penstock.model.outcomes import Outcome
from penstock.model.waiting import QueueDepth
from penstock.store.contract import Store

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
LEASE = timedelta(seconds=15)
Sample = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(registry: CollectorRegistry) -> Sample:
    text = page_of(registry).body.decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def families(registry: CollectorRegistry) -> set[str]:
    text = page_of(registry).body.decode()
    names = {family.name for family in text_string_to_metric_families(text)}
    return {name for name in names if not name.endswith("_created")}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/metrics.db", migrate=True)

    @app.task(queue="sums", aliases=["plus"])
    def add(a: int, b: int) -> int:
        return a + b

    @app.task(retry=None)
    def fail() -> None:
        message = "boom"
        raise ValueError(message)

    yield app
    app.close()


def test_a_worker_exposes_what_is_declared_and_counts_what_it_did(app: App) -> None:
    metrics = WorkerMetrics(lambda: app.tasks)
    app.add_hooks(metrics)
    for _ in range(3):
        app.enqueue("add", {"a": 1, "b": 2})
    app.enqueue("fail")

    with app.worker(slots=4) as worker:
        worker.wait_until_idle()
        exposed = samples(metrics.registry)
        names = families(metrics.registry)

    assert {metric.name for metric in declared.OF_A_WORKER} <= names
    assert all(name.startswith("process_") for name in names - _names(declared.OF_A_WORKER))
    processed = {
        (dict(labels)["task"], dict(labels)["outcome"]): value
        for (name, labels), value in exposed.items()
        if name == "penstock_task_processed_total" and value
    }
    assert processed == {("add", "completed"): 3, ("fail", "failed"): 1}
    assert exposed["penstock_task_duration_seconds_count", (("task", "add"),)] == 3
    assert exposed["penstock_task_wait_seconds_count", (("queue", "sums"),)] == 3
    assert exposed["penstock_worker_slots", ()] == 4
    assert exposed["penstock_worker_claimed_total", ()] == 4


def test_counters_of_known_tasks_begin_at_zero(app: App) -> None:
    metrics = WorkerMetrics(lambda: app.tasks)
    app.add_hooks(metrics)
    with app.worker():
        exposed = samples(metrics.registry)
    labels = (("outcome", "failed"), ("task", "fail"))
    assert exposed["penstock_task_processed_total", labels] == 0


def test_a_former_name_of_a_task_is_no_label_of_its_own(app: App) -> None:
    metrics = WorkerMetrics(lambda: app.tasks)
    app.add_hooks(metrics)
    app.enqueue("plus", {"a": 1, "b": 2}, queue="sums")
    with app.worker() as worker:
        worker.wait_until_idle()
    assert {
        dict(labels)["task"] for name, labels in samples(metrics.registry) if "processed" in name
    } == {"add", "fail"}


# --- the database -----------------------------------------------------------------------


def database_registry(store: Store, **options: object) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(DatabaseCollector(store, lease=LEASE, **options))  # type: ignore[arg-type]
    return registry


def test_the_database_exposes_what_is_declared(app: App) -> None:
    app.enqueue("add", {"a": 1, "b": 2})
    app.enqueue("fail", run_after="1d")
    registry = database_registry(app.store)

    exposed = samples(registry)

    only_on_postgres = {declared.OLDEST_TRANSACTION.name}
    assert families(registry) == _names(declared.OF_A_DATABASE) - only_on_postgres
    assert exposed["penstock_tasks_pending", (("queue", "sums"),)] == 1
    assert exposed["penstock_tasks_scheduled", ()] == 1
    assert exposed["penstock_database_up", ()] == 1


class Answering:
    """A store with prepared answers, and a clock that asking moves."""

    def __init__(self, *, took: float = 0.0, queues: int = 1) -> None:
        self.now = 100.0
        self.took = took
        self.queues = queues
        self.asked = 0
        self.away = False

    def monotonic(self) -> float:
        return self.now

    def gauges(self, *, lease: timedelta) -> Gauges:
        self.asked += 1
        self.now += self.took
        if self.away:
            raise StoreUnavailable("count", because=ConnectionError())
        return Gauges(
            queues=tuple(QueueDepth(f"q{n}", n + 1, lease) for n in range(self.queues)),
            paused=(),
            scheduled=0,
            running=0,
            deferred=0,
            failed=0,
            workers=0,
            silent_workers=0,
            oldest_transaction=None,
        )

    def workers(self) -> list[object]:
        return []


def collector_of(store: Answering) -> CollectorRegistry:
    return database_registry(store, monotonic=store.monotonic)  # type: ignore[arg-type]


def test_however_often_somebody_looks_the_database_is_asked_seldom() -> None:
    store = Answering()
    registry = collector_of(store)
    for _ in range(5):
        samples(registry)
    assert store.asked == 1
    store.now += READ_AT_MOST_EVERY
    samples(registry)
    assert store.asked == 2


def test_counting_that_takes_long_is_done_more_seldom() -> None:
    store = Answering(took=2.0)
    registry = collector_of(store)
    samples(registry)
    store.now += 39
    samples(registry)
    assert store.asked == 1
    store.now += 2
    samples(registry)
    assert store.asked == 2


def test_a_database_that_does_not_answer_is_down_and_is_asked_again() -> None:
    store = Answering()
    store.away = True
    registry = collector_of(store)
    assert samples(registry) == {("penstock_database_up", ()): 0}
    store.away = False
    assert samples(registry)["penstock_database_up", ()] == 1


def test_a_queue_that_has_become_empty_goes_on_as_zero() -> None:
    store = Answering(queues=2)
    registry = collector_of(store)
    samples(registry)
    store.queues = 1
    store.now += READ_AT_MOST_EVERY
    assert samples(registry)["penstock_tasks_pending", (("queue", "q1"),)] == 0


def test_thousands_of_queues_become_few_series_and_nothing_is_left_out_of_the_sum() -> None:
    store = Answering(queues=1000)
    pending = {
        dict(labels)["queue"]: value
        for (name, labels), value in samples(collector_of(store)).items()
        if name == "penstock_tasks_pending"
    }
    assert len(pending) == MOST_QUEUES + 1
    assert sum(pending.values()) == 1000 * 1001 / 2
    assert "q999" in pending
    assert pending[OTHER_QUEUES] == sum(range(1, 801))


# --- the reference ----------------------------------------------------------------------


def test_the_reference_of_the_metrics_is_up_to_date() -> None:
    page = PAGE.read_text("utf-8")
    assert declared.with_reference(page) == page


def _names(metrics: tuple[declared.Metric, ...]) -> set[str]:
    return {metric.name for metric in metrics}


def test_every_kind_of_outcome_has_a_name_for_other_systems() -> None:
    assert set(NAME_OF) == set(get_args(Outcome))
