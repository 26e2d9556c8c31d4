"""The tasks of the demo, which is a small shop.

Its workers are started with `penstock worker penstock.cli.demo_tasks:app`.
Which orders are unlucky follows from their numbers, so that every run tells the same story.
"""

import time

from penstock import App, GiveUp, TaskHandle

BUSY_EVERY = 9
NOBODY_EVERY = 100

app = App()


@app.task(retry=["300ms", "600ms", "1s"])
def send_receipt(handle: TaskHandle, order_id: int, to: str) -> str:
    """Take as long as a mail server would, and fail as one does now and then."""
    time.sleep(0.07 + 0.02 * (order_id % 5))
    if to.startswith("nobody@"):
        raise GiveUp(to)
    if order_id % BUSY_EVERY == 0 and handle.attempt == 1:
        raise MailServerBusy
    return f"receipt of order {order_id} sent to {to}"


class MailServerBusy(ConnectionError):
    """What a retry is for."""

    def __init__(self) -> None:
        super().__init__("the mail server is busy, try again later")


def address_of(order_id: int) -> str:
    name = "nobody" if order_id % NOBODY_EVERY == 0 else f"customer{order_id}"
    return f"{name}@example.com"
