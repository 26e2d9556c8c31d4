"""A real Prometheus scrapes a real busy worker and a real database."""

import json
import math
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.model.states import State
from tests.e2e.command_line import CommandLine, wait_until
from tests.ops.tools import OPS, dashboard_queries, program
from tests.support.scraping import free_ports, page

WINDOW = "20s"
Vector = list[tuple[dict[str, str], float]]

CONFIGURATION = """
global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: [{rules}]
scrape_configs:
  - job_name: penstock-database
    static_configs: [{{ targets: ["127.0.0.1:{database}"] }}]
  - job_name: penstock-workers
    static_configs: [{{ targets: ["127.0.0.1:{worker}"] }}]
"""


class Prometheus:
    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, query: str) -> Vector:
        typed = urllib.parse.urlencode({"query": query})
        answer = json.loads(page(self.port, f"/api/v1/query?{typed}")[1])
        assert answer["status"] == "success", answer
        return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]

    def number(self, query: str) -> float | None:
        answer = self.ask(query)
        return answer[0][1] if answer else None

    def is_ready(self) -> bool:
        return page(self.port, "/-/ready")[0] == 200

    def rules(self) -> dict[str, str]:
        """The name of every rule, and how its evaluation goes."""
        groups = json.loads(page(self.port, "/api/v1/rules")[1])["data"]["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}


@contextmanager
def ended(*processes: "subprocess.Popen[str]") -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.communicate(timeout=30)


@pytest.fixture
def prometheus(penstock: CommandLine, tmp_path: Path) -> Iterator[Prometheus]:
    """Scrapes a worker of the shop, and the exporter of its database, every second."""
    binary = program("prometheus")
    penstock.open_shop()
    first = free_ports(3)
    configuration = tmp_path / "prometheus.yml"
    rules = OPS / "prometheus" / "penstock.rules.yml"
    configuration.write_text(
        CONFIGURATION.format(rules=rules, database=first, worker=first + 1), "utf-8"
    )
    server = subprocess.Popen(
        [
            binary,
            f"--config.file={configuration}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{first + 2}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    found = Prometheus(first + 2)
    with ended(
        server,
        penstock.start("metrics", "--port", str(first)),
        penstock.start("worker", "shop:app", "--metrics-port", str(first + 1)),
    ):
        wait_until(found.is_ready)
        wait_until(lambda: found.number("sum(up)") == 2)
        yield found


@pytest.mark.slow
def test_every_query_of_the_dashboard_has_data_and_counts_are_the_databases(
    prometheus: Prometheus, penstock: CommandLine
) -> None:
    asked = {
        query.replace("$__rate_interval", WINDOW): title for title, query in dashboard_queries()
    }

    def without_data() -> list[str]:
        for _ in range(5):
            penstock.enqueue("add", '{"a": 1, "b": 2}')
        penstock.enqueue("break_down", '{"what": "it"}')
        return [title for query, title in asked.items() if not _has_data(prometheus.ask(query))]

    wait_until(lambda: not without_data(), within=60)
    for _ in range(7):
        penstock.enqueue("add", '{"a": 1, "b": 2}', delay=timedelta(days=1))

    with penstock.store() as store:
        wait_until(lambda: store.counts()[State.READY] + store.counts()[State.RUNNING] == 0)
        counts = store.counts()
    told = {
        'sum(penstock_task_processed_total{outcome="completed"})': counts[State.COMPLETED],
        'sum(penstock_task_processed_total{outcome="failed"})': counts[State.FAILED],
        "sum(penstock_task_duration_seconds_count)": counts[State.COMPLETED] + counts[State.FAILED],
        "max(penstock_tasks_failed)": counts[State.FAILED],
        "max(penstock_tasks_scheduled)": 7,
        "sum(penstock_tasks_pending)": 0,
        "max(penstock_workers)": 1,
    }
    for query, expected in told.items():
        wait_until(lambda query=query, expected=expected: prometheus.number(query) == expected)  # type: ignore[misc]


@pytest.mark.slow
def test_prometheus_evaluates_every_rule(prometheus: Prometheus) -> None:
    wait_until(lambda: len(prometheus.rules()) >= 12)
    wait_until(lambda: set(prometheus.rules().values()) == {"ok"})


def _has_data(vector: Vector) -> bool:
    return any(not math.isnan(value) for _, value in vector)
