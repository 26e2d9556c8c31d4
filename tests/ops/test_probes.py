"""Probes of a real worker while its database goes away and comes back."""

from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from penstock import App
from penstock.integrations import health
from penstock.integrations.health import Health
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


def test_claims_that_hang_while_heartbeats_arrive_call_for_a_restart(
    postgres_url: str, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has locked the outbox: the database is there, and no claim comes back."""
    monkeypatch.setattr(health, "LIVE_FOR", 1.0)
    probes = Health()

    def livez() -> int:
        return probes.pages["/livez"]().status

    with closing(App(postgres_url, schema=postgres_schema, migrate=True)) as app:
        app.task(name="add")(lambda: None)
        app.add_hooks(probes)
        with (
            app.worker(poll=0.2, heartbeat=0.1, lease=5),
            psycopg.connect(postgres_url) as other,
        ):
            wait_until(lambda: probes.pages["/readyz"]().status == 200)
            outbox = sql.Identifier(postgres_schema, "task_outbox")
            other.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(outbox))
            assert livez() == 200
            wait_until(lambda: livez() == 503)
            other.rollback()
            wait_until(lambda: livez() == 200)
