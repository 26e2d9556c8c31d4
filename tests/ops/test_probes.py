"""Probes of a real worker while its database goes away and comes back."""

from pathlib import Path

from tests.e2e.command_line import CommandLine, wait_until
from tests.support.scraping import free_ports, page, page_json, scrape
from tests.support.servers import private_server


def test_a_database_that_is_away_makes_a_worker_not_ready_and_leaves_it_alive(
    tmp_path: Path,
) -> None:
    with private_server() as server:
        penstock = CommandLine(tmp_path, server.url)
        assert penstock("admin", "migrate").status == 0
        penstock.open_shop()
        port = free_ports()
        worker = penstock.start("worker", "shop:app", "--metrics-port", str(port))
        try:
            wait_until(lambda: page(port, "/readyz")[0] == 200)
            server.stop()
            wait_until(lambda: page(port, "/readyz")[0] == 503, within=60)
            (judged,) = page_json(port, "/livez")["workers"]
            assert judged["reason"] == "waits for the database, which does not answer"
            assert page(port, "/livez")[0] == 200
            server.start()
            wait_until(lambda: page(port, "/readyz")[0] == 200, within=60)
            errors = [
                value for (name, _), value in scrape(port).items() if "store_errors_total" in name
            ]
            assert sum(errors) > 0
        finally:
            worker.terminate()
            worker.communicate(timeout=60)
