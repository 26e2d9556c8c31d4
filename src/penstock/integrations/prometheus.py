"""Prometheus: what a worker does, counted; what a database holds, measured when asked.

Needs the extra `metrics`. Labels are names of tasks that the worker knows, queues, outcomes
and a few fixed words, so the number of time series is bounded by the code.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from penstock.engine.hooks import AttemptEnded, Hooks
from penstock.engine.outages import OPERATIONS
from penstock.engine.vitals import Living, Vitals
from penstock.errors import StoreError
from penstock.integrations import declared
from penstock.integrations.declared import Metric
from penstock.integrations.outcomes import NAME_OF
from penstock.integrations.serving import Page, Pages
from penstock.model.executions import Recovered
from penstock.model.gauges import Gauges
from penstock.model.outcomes import Outcome
from penstock.model.states import State
from penstock.store.contract import Store

READ_AT_MOST_EVERY = 5.0
READ_SHARE = 0.05  # of the time may go into counting, however much there is to count
MOST_QUEUES = 200
OTHER_QUEUES = "(others)"


class WorkerMetrics(Hooks):
    """Counts what the workers of this process do."""

    def __init__(
        self, tasks: Callable[[], Iterable[str]], registry: CollectorRegistry | None = None
    ) -> None:
        self.registry = registry or CollectorRegistry()
        self._tasks = tasks
        self._scraped_at: float | None = None
        self._processed = self._counter(declared.PROCESSED)
        self._duration = self._histogram(declared.DURATION)
        self._wait = self._histogram(declared.WAIT)
        self._polls = self._counter(declared.CLAIM_POLLS)
        self._claimed = self._counter(declared.CLAIMED)
        self._errors = self._counter(declared.STORE_ERRORS)
        self._lost = self._counter(declared.LEASES_LOST)
        self._recoveries = self._counter(declared.RECOVERIES)
        # Looked up by us: the library checks and copies the labels each time, under a lock.
        self._children: dict[tuple[str, type[Outcome]], Counter] = {}
        self._durations: dict[str, Histogram] = {}
        self._waits: dict[str, Histogram] = {}
        self._vitals = _VitalsCollector()
        self.registry.register(self._vitals)
        ProcessCollector(registry=self.registry)

    @property
    def pages(self) -> Pages:
        return {"/metrics": self._scraped}

    def _scraped(self) -> Page:
        self._scraped_at = time.monotonic()
        return page_of(self.registry)

    @property
    def since_scrape(self) -> float | None:
        """Seconds since somebody last fetched the page; None: nobody has."""
        return None if self._scraped_at is None else time.monotonic() - self._scraped_at

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.meaning, metric.labels, registry=self.registry)

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(
            metric.name,
            metric.meaning,
            metric.labels,
            buckets=declared.SECONDS,
            registry=self.registry,
        )

    # --- what is told -----------------------------------------------------------------

    def worker_started(self, worker: Living) -> None:
        self._vitals.workers = (*self._vitals.workers, worker)
        # From zero: a counter that appears with its first failure shows no increase.
        for task in self._tasks():
            self._duration.labels(task)
            for outcome in NAME_OF:
                self._child(task, outcome)
        for doing in OPERATIONS:
            self._errors.labels(doing)
        for state in (State.READY, State.FAILED):
            self._recoveries.labels(state.value)

    def worker_stopped(self, worker: Living) -> None:
        self._vitals.workers = tuple(one for one in self._vitals.workers if one is not worker)

    def claim_polled(self, claimed: int) -> None:
        self._polls.inc()
        self._claimed.inc(claimed)

    def attempt_settled(self, attempt: AttemptEnded) -> None:
        self._child(attempt.task, type(attempt.outcome)).inc()
        duration = self._durations.get(attempt.task)
        if duration is None:
            duration = self._durations[attempt.task] = self._duration.labels(attempt.task)
        duration.observe(attempt.took)
        if attempt.waited is not None:
            queue = attempt.claimed.queue
            wait = self._waits.get(queue)
            if wait is None:
                wait = self._waits[queue] = self._wait.labels(queue)
            wait.observe(attempt.waited)

    def _child(self, task: str, outcome: type[Outcome]) -> Counter:
        child = self._children.get((task, outcome))
        if child is None:
            child = self._processed.labels(task, NAME_OF[outcome])
            self._children[task, outcome] = child
        return child

    def lease_lost(self, execution_id: str) -> None:
        del execution_id
        self._lost.inc()

    def executions_recovered(self, executions: Sequence[Recovered]) -> None:
        for execution in executions:
            self._recoveries.labels(execution.state.value).inc()

    def store_failed(self, doing: str, error: BaseException) -> None:
        del error
        self._errors.labels(doing).inc()


class _VitalsCollector(Collector):
    """Asks the workers of this process how they are, whenever somebody looks."""

    def __init__(self) -> None:
        self.workers: tuple[Living, ...] = ()

    def collect(self) -> Iterator[Family]:
        vitals = [worker.vitals() for worker in self.workers]
        sums: dict[Metric, Callable[[Vitals], float]] = {
            declared.SLOTS: lambda one: one.slots,
            declared.SLOTS_BUSY: lambda one: one.slots - one.slots_free,
            declared.RUNNING_HERE: lambda one: one.running,
            declared.IN_STOCK: lambda one: one.in_stock,
            declared.UNSETTLED: lambda one: one.unsettled,
            declared.RUNAWAYS: lambda one: one.runaways,
        }
        for metric, value in sums.items():
            yield _gauge(metric, sum(value(one) for one in vitals))
        yield _gauge(declared.SINCE_POLL, max((one.since_poll for one in vitals), default=0.0))


class DatabaseCollector(Collector):
    """Asks the database, not more often than it can bear, and remembers the answer meanwhile."""

    def __init__(
        self,
        store: Store,
        *,
        lease: timedelta,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._lease = lease
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known_queues: set[str] = set()
        self._answer: list[Family] = []
        self._ask_at = monotonic()

    def describe(self) -> list[Family]:
        """Say nothing: whoever registers us must not cause a question."""
        return []

    def collect(self) -> Iterator[Family]:
        with self._lock:
            if self._monotonic() >= self._ask_at:
                self._answer = self._asked()
            yield from self._answer

    def _asked(self) -> list[Family]:
        begun = self._monotonic()
        try:
            gauges = self._store.gauges(lease=self._lease)
            served = {queue for peer in self._store.workers() for queue in peer.info.queues}
        except StoreError:
            self._ask_at = self._monotonic()
            return [_gauge(declared.DATABASE_UP, 0)]
        took = self._monotonic() - begun
        self._ask_at = self._monotonic() + max(READ_AT_MOST_EVERY, took / READ_SHARE)
        answer = [_gauge(declared.DATABASE_UP, 1), _gauge(declared.READ_SECONDS, took)]
        return [*answer, *self._families(gauges, served)]

    def _families(self, gauges: Gauges, served: set[str]) -> Iterator[Family]:
        ready = {depth.queue: depth.ready for depth in gauges.queues}
        ages = {depth.queue: depth.oldest_age.total_seconds() for depth in gauges.queues}
        # A queue that has become empty goes on as 0: a gap would look like a missing exporter.
        self._known_queues |= served | set(ready) | set(gauges.paused)
        queues = sorted(self._known_queues, key=lambda name: (-ready.get(name, 0), name))
        shown, others = sorted(queues[:MOST_QUEUES]), queues[MOST_QUEUES:]
        pending, oldest, paused = (
            GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            for metric in (declared.PENDING, declared.OLDEST_READY, declared.PAUSED)
        )
        for queue in shown:
            pending.add_metric([queue], ready.get(queue, 0))
            oldest.add_metric([queue], ages.get(queue, 0.0))
            paused.add_metric([queue], queue in gauges.paused)
        if others:
            pending.add_metric([OTHER_QUEUES], sum(ready.get(queue, 0) for queue in others))
            oldest.add_metric([OTHER_QUEUES], max(ages.get(queue, 0.0) for queue in others))
        yield from (pending, oldest, paused)
        yield _gauge(declared.SCHEDULED, gauges.scheduled)
        yield _gauge(declared.RUNNING, gauges.running)
        yield _gauge(declared.DEFERRED, gauges.deferred)
        yield _gauge(declared.FAILED, gauges.failed)
        yield _gauge(declared.WORKERS, gauges.workers)
        yield _gauge(declared.SILENT, gauges.silent_workers)
        if gauges.oldest_transaction is not None:
            yield _gauge(declared.OLDEST_TRANSACTION, gauges.oldest_transaction.total_seconds())


def page_of(registry: CollectorRegistry) -> Page:
    return Page(200, CONTENT_TYPE_LATEST, generate_latest(registry))


def _gauge(metric: Metric, value: float) -> Family:
    return GaugeMetricFamily(metric.name, metric.meaning, value)
