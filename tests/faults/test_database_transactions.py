"""What a worker leaves open on PostgreSQL while it works, and what others leave open."""

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from penstock import App, AsyncTaskHandle, TaskHandle
from penstock.model.events import EventType
from tests.support.servers import Client, Server, private_server
from tests.support.workers import counted, wait_until

pytestmark = pytest.mark.postgres

WATCHED_FOR = 2.0
OLD = 0.2  # seconds: a statement of a worker takes a few milliseconds


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with private_server() as server:
        yield server


def test_no_transaction_is_open_while_long_handlers_run(server: Server) -> None:
    app, gate = App(server.url, migrate=True), threading.Event()

    @app.task
    def on_thread(handle: TaskHandle) -> str:
        gate.wait(60)
        return handle.execution_id

    @app.task
    async def on_loop(handle: AsyncTaskHandle) -> str:
        await handle.defer_until(gate.is_set, every=0.2)
        return handle.execution_id

    seen: list[Client] = []
    with app.worker(heartbeat=0.3, lease=1.5):
        executions = [app.enqueue(task) for task in ("on_thread", "on_loop") * 3]
        ids = [execution.id for execution in executions]
        wait_until(lambda: counted(app.store, ids, EventType.STARTED).total() == len(ids))
        end = time.monotonic() + WATCHED_FOR
        while time.monotonic() < end:
            seen += server.clients()
            time.sleep(0.02)
        gate.set()
        for execution in executions:
            assert execution.result(timeout=20) == execution.id
    app.close()

    assert {client.name for client in seen} == {"penstock", "penstock listener"}
    assert [client for client in seen if client.state.startswith("idle in transaction")] == []
    assert [client for client in seen if (client.transaction_age or 0.0) > OLD] == []


def test_a_claim_steps_over_what_somebody_holds(server: Server) -> None:
    app = App(server.url, migrate=True)

    @app.task
    def work(number: int) -> int:
        return number

    held, free = work.enqueue(1), work.enqueue(2)
    with psycopg.connect(server.url) as somebody:
        somebody.execute(
            "SELECT FROM penstock.task_outbox WHERE task_execution_id = %s FOR UPDATE", [held.id]
        )
        with app.worker(poll="1s"):  # nobody tells it that the row is free again
            try:
                assert free.result(timeout=20) == 2
                assert held.refresh().state == "ready"
            finally:
                somebody.rollback()  # a worker whose claim waits for it could not stop
            assert held.result(timeout=20) == 1
    app.close()
