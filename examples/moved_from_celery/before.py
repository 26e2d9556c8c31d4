"""The shop's background work, on Celery: what the move begins with.

Needs `pip install "celery[redis]"`, a Redis server and `celery -A before worker`. It is kept
here to be read beside after.py; nothing in this repository runs it.
"""

import sqlite3
import time
from pathlib import Path

from celery import Celery, Task, chain

app = Celery("shop", broker="redis://localhost/0", backend="redis://localhost/1")
app.conf.task_acks_late = True  # a killed worker would lose its tasks otherwise
app.conf.task_reject_on_worker_lost = True
app.conf.broker_transport_options = {"visibility_timeout": 3600}


class GatewayBusy(Exception):
    pass


def send_mail(to: str, text: str) -> None:
    with Path("mails.txt").open("a") as mails:
        mails.write(f"{to}: {text}\n")


@app.task(
    bind=True,
    autoretry_for=(GatewayBusy,),
    retry_backoff=1,
    retry_kwargs={"max_retries": 3},
    time_limit=30,
)
def charge(self: Task, order_id: int, cents: int) -> str:
    if self.request.retries == 0:
        raise GatewayBusy
    return f"charge-{order_id}-{cents}"


@app.task(queue="mail")
def send_receipt(charge_id: str, to: str) -> None:
    send_mail(to, f"paid, {charge_id}")


@app.task(bind=True, max_retries=None)
def ship(self: Task, order_id: int) -> str:
    if not Path(f"packed-{order_id}").exists():
        raise self.retry(countdown=5)
    return f"shipped {order_id}"


def place_order(connection: sqlite3.Connection, to: str, cents: int) -> int:
    with connection:
        cursor = connection.execute("INSERT INTO orders (email) VALUES (?)", [to])
        order_id = int(cursor.lastrowid or 0)
    # After the commit, and hoping that nothing happens in between: a crash here is an order that
    # nobody charges. Before the commit, a worker could look for an order that is not there yet.
    chain(charge.s(order_id, cents), send_receipt.s(to)).delay()
    ship.apply_async((order_id,), countdown=60)
    return order_id


def wait_for(order_id: int) -> str:
    result = ship.delay(order_id)
    while not result.ready():
        time.sleep(0.5)
    return str(result.get())
