"""A payment that happens once, although the worker is killed in the middle of it.

    python examples/payment.py

The task charges a card at a provider, over which no transaction of ours has any power, and books
the payment in our own database. The first worker is killed between the two. The second attempt
shows the provider the same key, so the card is charged once; booking and the end of the task are
one commit, so there is one booking.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from penstock import App, TaskHandle

app = App()  # PENSTOCK_DATABASE_URL says where the database is


# --- the provider: somebody else's computer, with an idempotency key as real ones have it -------


class Provider:
    """Charges cards. A key that it has seen gets the answer that it got then."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def charge(self, cents: int, *, key: str) -> str:
        with closing(sqlite3.connect(self._file, timeout=30)) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS charges (key TEXT UNIQUE, cents INT)")
            connection.execute("INSERT OR IGNORE INTO charges VALUES (?, ?)", [key, cents])
            number = connection.execute("SELECT rowid FROM charges WHERE key = ?", [key])
            return f"charge-{number.fetchone()[0]}"

    def charges(self) -> list[int]:
        with closing(sqlite3.connect(self._file)) as connection:
            return [cents for (cents,) in connection.execute("SELECT cents FROM charges")]


# --- ours ---------------------------------------------------------------------------------------


def directory() -> Path:
    return Path(os.environ["SHOP_DIRECTORY"])


def connect() -> sqlite3.Connection:
    return sqlite3.connect(directory() / "shop.db", timeout=30)


@app.task(retry=["1s", "10s"])
def pay(handle: TaskHandle, order_id: int, cents: int) -> str:
    # The execution's id is the same in every attempt.
    receipt = Provider(directory() / "provider.db").charge(cents, key=handle.execution_id)
    power_cut()
    with closing(connect()) as connection, connection:
        connection.execute("INSERT INTO bookings VALUES (?, ?, ?)", [order_id, cents, receipt])
        return handle.complete(receipt, connection=connection)


def power_cut() -> None:
    """Kill this process without a last word, the first time."""
    happened = directory() / "power-cut"
    if not happened.exists():
        happened.touch()
        os.kill(os.getpid(), signal.SIGKILL)


# --- the demonstration --------------------------------------------------------------------------


def start_worker() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "penstock", "worker", "payment:app"]
    return subprocess.Popen(command, cwd=Path(__file__).parent)


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        os.environ["SHOP_DIRECTORY"] = made
        os.environ["PENSTOCK_DATABASE_URL"] = f"sqlite:///{made}/shop.db"
        app.migrate()
        with closing(connect()) as connection, connection:
            connection.execute("CREATE TABLE bookings (order_id INT, cents INT, receipt TEXT)")
            execution = pay.using(connection=connection).enqueue(42, cents=1999)

        print("the first worker ends with", start_worker().wait())
        # The second sees, at once on the same machine, that the first is gone, and takes over.
        second = start_worker()
        print("the second worker returns", execution.result(timeout=60))
        second.terminate()
        second.wait()
        print("charged:", Provider(Path(made) / "provider.db").charges())
        with closing(connect()) as connection:
            print("booked:", connection.execute("SELECT * FROM bookings").fetchall())
        for event in execution.history():
            print(f"  {event.type}")
        app.close()


if __name__ == "__main__":
    main()
