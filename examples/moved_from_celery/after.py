"""The same shop on Penstock: the same functions, without the broker.

python examples/moved_from_celery/after.py
"""

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from penstock import App, Retry, TaskHandle

app = App()  # PENSTOCK_DATABASE_URL says where the database is; there is no broker and no backend


class GatewayBusy(Exception):
    pass


def send_mail(to: str, text: str) -> None:
    with Path("mails.txt").open("a") as mails:
        mails.write(f"{to}: {text}\n")


# bind=True became a handle, and autoretry_for a policy with the delays in one place. acks_late and
# reject_on_worker_lost have no counterpart: a task is never lost with its worker.
@app.task(retry=Retry(delays=["1s", "2s", "4s"], on=(GatewayBusy,)), timeout="30s")
def charge(handle: TaskHandle, order_id: int, cents: int, to: str) -> str:
    if handle.attempt == 1:
        raise GatewayBusy
    charge_id = f"charge-{order_id}-{cents}"
    # The chain's second link, enqueued where the first one ends.
    send_receipt.using(key=handle.execution_id).enqueue(charge_id, to)
    return charge_id


@app.task(queue="mail")
def send_receipt(charge_id: str, to: str) -> None:
    send_mail(to, f"paid, {charge_id}")


# retry(countdown=5) for ever was a way to wait. It is said as what it is now, and costs no attempt.
@app.task
def ship(handle: TaskHandle, order_id: int) -> str:
    handle.defer_until(Path(f"packed-{order_id}").exists, every="5s", reason="not packed yet")
    return f"shipped {order_id}"


def place_order(connection: sqlite3.Connection, to: str, cents: int) -> int:
    with connection:
        cursor = connection.execute("INSERT INTO orders (email) VALUES (?)", [to])
        order_id = int(cursor.lastrowid or 0)
        # In the transaction of the order: both are there, or neither.
        with app.using(connection=connection):
            charge.enqueue(order_id, cents, to)
            ship.using(run_after="1s").enqueue(order_id)
    return order_id


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        os.environ["PENSTOCK_DATABASE_URL"] = "sqlite:///shop.db"
        app.migrate()
        with closing(sqlite3.connect("shop.db", timeout=30)) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, email TEXT)")
            order_id = place_order(connection, "ada@example.com", 1999)
        Path(f"packed-{order_id}").touch()
        charged, shipped = app.find(task="charge")[0], app.find(task="ship")[0]
        with app.worker():
            print(charged.result(timeout=30), "in attempt", charged.attempt)
            print(shipped.result(timeout=30))
            (receipt,) = app.find(task="send_receipt")
            receipt.result(timeout=30)
        print(Path("mails.txt").read_text(), end="")
        app.close()
        os.chdir("/")


if __name__ == "__main__":
    main()
