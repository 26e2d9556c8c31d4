"""doctor asks whether anybody collects the metrics of the workers that are alive."""

from penstock.integrations.health import Health
from penstock.integrations.serving import serving
from penstock.model.workers import WorkerInfo
from tests.e2e.command_line import CommandLine, wait_until
from tests.e2e.test_doctor import days_ago, execute, findings
from tests.support.scraping import free_ports, page


def test_workers_without_metrics_are_told(penstock: CommandLine) -> None:
    with penstock.store() as store:
        for name in ("a", "b"):
            store.register(WorkerInfo(id=name, queues=("default",), tasks=("add",), metrics=""))
    found = findings(penstock("doctor", "--json"), "warning")
    assert found["metrics"].startswith("None of 2 live workers serves metrics")


def test_a_worker_that_fell_silent_is_not_asked_for_its_metrics(penstock: CommandLine) -> None:
    with penstock.store() as store:
        store.register(WorkerInfo(id="a", queues=("default",), tasks=("add",), metrics=""))
    execute(penstock, f"UPDATE workers SET beat_at = {days_ago(penstock, 1)}")
    found = findings(penstock("doctor", "--json"), "ok")
    assert found["metrics"] == "No worker is alive that says whether it serves metrics."


def test_metrics_that_nobody_fetches_are_told_and_fetched_ones_are_well(
    penstock: CommandLine,
) -> None:
    penstock.open_shop()
    port = free_ports()
    worker = penstock.start("worker", "shop:app", "--metrics-port", str(port))
    try:
        wait_until(lambda: page(port, "/readyz")[0] == 200)
        young = findings(penstock("doctor", "--json"), "ok")["metrics"]
        assert young.endswith("whether they are scraped cannot be asked from here.")

        execute(penstock, f"UPDATE workers SET started_at = {days_ago(penstock, 1)}")
        found = findings(penstock("doctor", "--json"), "warning")
        address = f"http://127.0.0.1:{port}/metrics"
        assert found["metrics"].startswith(f"Nobody has fetched {address} in the last 5m")

        assert page(port, "/metrics")[0] == 200
        well = findings(penstock("doctor", "--json"), "ok")["metrics"]
        assert (
            well == "1 of 1 live workers serve metrics, and the 1 that could be asked are scraped."
        )
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


def test_an_address_where_another_worker_answers_proves_nothing(penstock: CommandLine) -> None:
    probes = Health()
    with serving("127.0.0.1", 0, probes.pages) as port, penstock.store() as store:
        store.register(
            WorkerInfo(id="elsewhere", tasks=("add",), metrics=f"http://127.0.0.1:{port}")
        )
        execute(penstock, f"UPDATE workers SET started_at = {days_ago(penstock, 1)}")
        told = findings(penstock("doctor", "--json"), "ok")["metrics"]
    assert told.endswith("whether they are scraped cannot be asked from here.")
