"""Claimed tasks of one queue do not stand in the way of another one."""

import time

from penstock import App
from tests.support.workers import wait_until

IN_THE_MIDDLE = 300
ANSWERED_AFTER = 0.1


def test_a_task_does_not_wait_behind_what_another_queue_has_in_stock(flows: App) -> None:
    order: list[str] = []

    @flows.task(queue="broken", retry=None)
    def fail(number: int) -> None:
        order.append("fail")
        if number == IN_THE_MIDDLE:
            claimed = quick.enqueue()
            wait_until(lambda: claimed.refresh().state == "running")
            time.sleep(ANSWERED_AFTER)  # the database has it, and then the worker learns of it
            order.append("claimed")
        raise RuntimeError("again")

    @flows.task(queue="healthy")
    def quick() -> None:
        order.append("quick")

    flows.enqueue_many(fail.request(number) for number in range(1_000))
    with flows.worker(slots=1) as worker:
        worker.wait_until_idle()
    assert order.index("quick") - order.index("claimed") <= 2
    assert flows.counts()["failed"] == 1_000
