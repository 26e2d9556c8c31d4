"""DBOS: workflows in a queue; it is asked for work every tenth of a second."""

import signal
import threading
from typing import Any

from dbos import DBOS, DBOSClient
from playing import one_by_one, play, record, url

STEPS = 5
FAN = 100
IN_A_FAN = FAN + 2
POLL = 0.1

DBOS(config={"name": "bench", "system_database_url": url(), "log_level": "ERROR"})


@DBOS.workflow()
def noop(n: int) -> None:
    record(n)


@DBOS.step()
def step(n: int) -> None:
    record(n)


@DBOS.workflow()
def five_steps(n: int) -> None:
    for place in range(STEPS):
        step(n * STEPS + place)


@DBOS.workflow()
def fan(n: int) -> None:
    step(n * IN_A_FAN)
    blades = [DBOS.enqueue_workflow("q", noop, n * IN_A_FAN + one) for one in range(1, FAN + 1)]
    for blade in blades:
        blade.get_result()
    step(n * IN_A_FAN + FAN + 1)


class Peer:
    def setup(self) -> None:
        DBOS.launch()
        DBOS.register_queue("q", polling_interval_sec=POLL)
        DBOS.destroy()

    def one(self, first: int, count: int, apart: float = 0.0) -> dict[str, Any]:
        return self._enqueue("noop", first, count, apart)

    def runs(self, first: int, count: int) -> dict[str, Any]:
        return self._enqueue("five_steps", first, count)

    def fans(self, first: int, count: int) -> dict[str, Any]:
        return self._enqueue("fan", first, count)

    def _enqueue(self, name: str, first: int, count: int, apart: float = 0.0) -> dict[str, Any]:
        client = DBOSClient(system_database_url=url())
        client.list_queued_workflows(limit=1)
        return one_by_one(
            lambda n: client.enqueue({"queue_name": "q", "workflow_name": name}, n),
            first,
            count,
            apart,
        )

    def work(self) -> None:
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        DBOS.launch()
        DBOS.register_queue("q", polling_interval_sec=POLL)
        stop.wait()
        DBOS.destroy()


play(Peer())
