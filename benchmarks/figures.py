"""What a run is about: which figures there are, which way is better, and what they must reach."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Literal

from benchmarks.sizes import FULL

Better = Literal["more", "less"]
Measured = Mapping[str, float]  # by the key of the figure


@dataclass(frozen=True)
class Figure:
    key: str
    title: str
    unit: str
    better: Better = "more"


FIGURES: tuple[Figure, ...] = (
    Figure("enqueue one", "enqueue one", "/s"),
    Figure("enqueue bulk", "enqueue in bulk", "/s"),
    Figure("drain 1", "drain, 1 process", "/s"),
    Figure("drain 2", "drain, 2 processes", "/s"),
    Figure("latency p50", "idle latency p50", "ms", "less"),
    Figure("latency p95", "idle latency p95", "ms", "less"),
    Figure("latency p99", "idle latency p99", "ms", "less"),
    Figure("runs", "five-step workflows", "/s"),
    Figure("fans", "fans of 100", "/s"),
    Figure("wal", "WAL per task, drain", "bytes", "less"),
    Figure("commits", "commits per task, drain", "", "less"),
    Figure("dead", "dead tuples per task after", "", "less"),
    Figure("idle statements", "idle statements", "/s", "less"),
    Figure("memory", "idle worker's memory", "MB", "less"),
    Figure("import", "`import penstock`, with the interpreter", "ms", "less"),
    Figure("help", "`penstock --help`", "ms", "less"),
    Figure("shallow", "first tasks, nothing else there", "/s"),
    Figure("among ready", "first tasks of many ready", "/s"),
    Figure("among finished", "the same, many finished", "/s"),
    Figure("among scheduled", "the same, many scheduled", "/s"),
    Figure("held", "drain, a transaction held open", "/s"),
    Figure("not held", "drain of as many, none held", "/s"),
)


class Results:
    """All that was measured in one run, by figure and system; a system's value is the median."""

    def __init__(self, *, deep: int = FULL.deep) -> None:
        self.deep = deep  # how many others the deep tables held
        self._values: dict[tuple[str, str], list[float]] = {}
        self.failures: list[str] = []

    def add(self, system: str, measured: Measured) -> None:
        for key, value in measured.items():
            self._values.setdefault((key, system), []).append(value)

    def has(self, system: str) -> bool:
        return any(measured == system for _, measured in self._values)

    @property
    def has_any(self) -> bool:
        return bool(self._values)

    def get(self, key: str, system: str) -> float | None:
        values = self._values.get((key, system))
        return median(values) if values else None

    def rounds(self, key: str, system: str) -> list[float]:
        return self._values.get((key, system), [])


@dataclass(frozen=True)
class Promise:
    """One line of what must hold: our figure against a peer's, or against a number."""

    title: str  # {deep}: how many others the table held
    key: str
    ours: str
    than: str | None  # a system, another figure of ours, or none
    least: float | None = None
    most: float | None = None

    def says(self, results: Results) -> str:
        return self.title.format(deep=f"{results.deep:,}")

    def found(self, results: Results) -> float | None:
        """Return the ratio, or the figure itself where nobody is compared with."""
        value = results.get(self.key, self.ours)
        if value is None or self.compared_with is None:
            return value
        other = results.get(*self.compared_with)
        return value / other if other else None

    def turns(self, results: Results) -> list[float]:
        """Return the same for each turn by itself; nothing where not all took as many."""
        values = results.rounds(self.key, self.ours)
        if self.compared_with is None:
            return values
        others = results.rounds(*self.compared_with)
        if len(others) != len(values) or not all(others):
            return []
        return [value / other for value, other in zip(values, others, strict=True)]

    @property
    def compared_with(self) -> tuple[str, str] | None:
        """The key of a figure, and whose."""
        if self.than is None:
            return None
        key, _, system = self.than.rpartition("@")
        return key or self.key, system or self.ours

    def holds(self, results: Results) -> bool | None:
        found = self.found(results)
        if found is None:
            return None
        if self.most is not None:
            return found <= self.most
        return self.least is None or found >= self.least


PG, LITE = "penstock", "penstock-sqlite"

PROMISES: tuple[Promise, ...] = (
    Promise("drain, 1 process, × PgQueuer", "drain 1", PG, "@pgqueuer", least=1.5),
    Promise("drain, 1 process, × Graphile Worker (a goal)", "drain 1", PG, "@graphile", least=1.0),
    Promise("drain, 2 processes, × PgQueuer", "drain 2", PG, "@pgqueuer", least=1.2),
    Promise("drain of def tasks, × Celery", "drain 1", "penstock-def", "@celery", least=5.0),
    Promise("SQLite drain, × Huey", "drain 1", LITE, "@huey", least=8.0),
    Promise("enqueue one, × PgQueuer", "enqueue one", PG, "@pgqueuer", least=1.0),
    Promise("enqueue one on SQLite, × Huey", "enqueue one", LITE, "@huey", least=1.0),
    Promise("enqueue in bulk, × PgQueuer", "enqueue bulk", PG, "@pgqueuer", least=0.9),
    Promise("idle latency p50, × PgQueuer", "latency p50", PG, "@pgqueuer", most=1.0),
    Promise("idle latency p99, ms", "latency p99", PG, None, most=10.0),
    Promise("idle statements a second", "idle statements", PG, None, most=0.7),
    Promise("five-step workflows, × DBOS", "runs", PG, "@dbos", least=10.0),
    Promise("five-step workflows a second", "runs", PG, None, least=1_000.0),
    Promise("five-step workflows on SQLite, × Huey", "runs", LITE, "@huey", least=4.0),
    Promise("among {deep} ready, × shallow", "among ready", PG, "shallow@", least=0.8),
    Promise("beside {deep} finished, × shallow", "among finished", PG, "shallow@", least=0.8),
    Promise("beside {deep} scheduled, × shallow", "among scheduled", PG, "shallow@", least=0.8),
    Promise("SQLite, among {deep} ready, × shallow", "among ready", LITE, "shallow@", least=0.8),
    Promise("SQLite, {deep} finished, × shallow", "among finished", LITE, "shallow@", least=0.8),
    Promise("SQLite, {deep} scheduled, × shallow", "among scheduled", LITE, "shallow@", least=0.8),
    Promise("a transaction held open, × without", "held", PG, "not held@", least=0.9),
    Promise("memory of an idle worker, MB", "memory", PG, None, most=60.0),
    Promise("`import penstock`, ms", "import", PG, None, most=150.0),
    Promise("`penstock --help`, ms", "help", PG, None, most=300.0),
)
