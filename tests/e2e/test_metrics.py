"""Metrics and health of real workers, as a scraper and a probe see them."""

import os
import signal
import subprocess
import sys

from tests.e2e.command_line import CommandLine, wait_until
from tests.support.scraping import free_ports, page, page_json, parse, scrape


def completed(port: int) -> float:
    labels = (("outcome", "completed"), ("task", "add"))
    return scrape(port).get(("penstock_task_processed_total", labels), 0)


def end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_workers_counters_equal_what_the_database_says(penstock: CommandLine) -> None:
    penstock.open_shop()
    for _ in range(20):
        penstock.enqueue("add", '{"a": 1, "b": 2}')
    penstock.enqueue("break_down", '{"what": "it"}')
    port = free_ports()
    worker = penstock.start("worker", "shop:app", "--metrics-port", str(port))
    try:
        wait_until(lambda: completed(port) == 20)
        wait_until(lambda: page(port, "/readyz")[0] == 200)
        assert page(port, "/livez")[0] == 200
        exposed = scrape(port)
        states = penstock("status", "--json").json["states"]
    finally:
        end(worker)
    assert states["completed"] == 20
    failed = (("outcome", "failed"), ("task", "break_down"))
    assert exposed["penstock_task_processed_total", failed] == states["failed"] == 1
    assert exposed["penstock_task_duration_seconds_count", (("task", "add"),)] == 20
    assert exposed["penstock_task_wait_seconds_count", (("queue", "default"),)] == 21


def test_a_worker_that_finishes_its_tasks_is_alive_and_not_ready(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    on_sqlite.open_shop()
    on_sqlite.enqueue("nap", queue="slow")
    port = free_ports()
    worker = on_sqlite.start("worker", "shop:app", "--metrics-port", str(port), "--grace", "20s")
    try:
        wait_until((on_sqlite.directory / "napping").exists)
        worker.send_signal(signal.SIGTERM)
        wait_until(lambda: page(port, "/readyz")[0] == 503)
        assert page(port, "/livez")[0] == 200
        assert page_json(port, "/readyz")["workers"][0]["reason"] == "stops"
    finally:
        end(worker)


def test_each_of_several_processes_has_a_port_and_its_successor_has_it_again(
    on_sqlite: CommandLine,
) -> None:
    on_sqlite("admin", "migrate")
    on_sqlite.open_shop()
    port = free_ports(2)
    workers = on_sqlite.start(
        *("worker", "shop:app", "--processes", "2", "--metrics-port", str(port))
    )
    ports = (port, port + 1)
    try:
        wait_until(lambda: all(page(one, "/readyz")[0] == 200 for one in ports))
        (first,) = [
            peer["name"] for peer in on_sqlite("workers", "--json").json if _is_at(peer, port)
        ]
        os.kill(int(first.partition(":")[2]), signal.SIGKILL)
        wait_until(lambda: page(port, "/readyz")[0] != 200)
        wait_until(lambda: page(port, "/readyz")[0] == 200)
        assert page(port + 1, "/readyz")[0] == 200
    finally:
        end(workers)


def _is_at(peer: dict[str, str], port: int) -> bool:
    (worker,) = page_json(port, "/readyz")["workers"]
    return bool(worker["id"] == peer["id"])


def test_a_port_that_is_taken_stops_the_worker_and_is_named(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    on_sqlite.open_shop()
    port = free_ports()
    worker = on_sqlite.start("worker", "shop:app", "--metrics-port", str(port))
    try:
        wait_until(lambda: page(port, "/livez")[0] == 200)
        answer = on_sqlite.alone("worker", "shop:app", "--metrics-port", str(port))
    finally:
        end(worker)
    assert answer.status == 1
    assert f"port {port}" in answer.err
    assert "Traceback" not in answer.err


def test_metrics_prints_what_the_database_knows(penstock: CommandLine) -> None:
    penstock.enqueue("add", queue="mail")
    penstock.enqueue("add", queue="mail")
    answer = penstock("metrics")
    assert answer.status == 0
    exposed = parse(answer.out)
    assert exposed["penstock_tasks_pending", (("queue", "mail"),)] == 2
    assert exposed["penstock_tasks_failed", ()] == 0


def test_metrics_serves_until_it_is_told_to_stop(penstock: CommandLine) -> None:
    port = free_ports()
    exporter = penstock.start("metrics", "--port", str(port))
    try:
        wait_until(lambda: page(port, "/metrics")[0] == 200)
        assert scrape(port)["penstock_database_up", ()] == 1
    finally:
        end(exporter)


def test_without_the_extra_both_commands_say_what_to_install(on_sqlite: CommandLine) -> None:
    on_sqlite("admin", "migrate")
    on_sqlite.open_shop()
    without = (
        "import sys; sys.modules['prometheus_client'] = None; import penstock.cli as c; c.main()"
    )
    for arguments in (["metrics"], ["worker", "shop:app", "--metrics-port", "9108"]):
        finished = subprocess.run(
            [sys.executable, "-c", without, *arguments, *on_sqlite.database],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert finished.returncode == 2
        assert "pip install 'penstock[metrics]'" in finished.stderr
        assert "Traceback" not in finished.stderr
