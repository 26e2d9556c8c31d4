"""The report service in action: a server, a worker, and a user who asks for a report.

    python examples/report_service            plays it through and ends
    python examples/report_service --serve    stays, until Ctrl-C

It makes a database of its own in a temporary directory, unless PENSTOCK_DATABASE_URL names one.
"""

import contextlib
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert

HERE = Path(__file__).parent
FIRST, LAST = date(2026, 10, 1), date(2026, 10, 31)


def prepare() -> None:
    """Make the tables, and a year of sales."""
    from reports import Base, Sale, app, engine  # noqa: PLC0415 - once it is known where they are

    app.migrate()
    Base.metadata.create_all(engine)
    dice = random.Random(42)
    days = [date(2026, 1, 1) + timedelta(days=n) for n in range(365)]
    rows = [{"day": day, "cents": dice.randrange(100, 10_000)} for day in days for _ in range(100)]
    with engine.begin() as connection:
        connection.execute(insert(Sale), rows)
    engine.dispose()
    app.close()


@contextlib.contextmanager
def running(*arguments: str) -> Iterator[None]:
    """Run a Python program beside this one, until the block ends."""
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(command, cwd=HERE) as process:
        try:
            yield
        finally:
            process.terminate()


def ask(port: int, path: str, body: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.load(answer)
    finally:
        connection.close()


def wait_for(port: int) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def play(port: int) -> None:
    status, answer = ask(port, "/reports", {"from": str(FIRST), "to": str(LAST)})
    print(f"POST /reports    {status} {answer}")
    place = answer["report"]
    while True:
        status, answer = ask(port, place)
        if answer["state"] in {"completed", "failed"}:
            break
        time.sleep(0.05)
    print(f"GET {place}   {status} {answer}")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.environ.setdefault("PENSTOCK_DATABASE_URL", f"sqlite:///{directory}/reports.db")
        prepare()
        port = free_port()
        with (
            running("uvicorn", "service:service", "--log-level", "warning", "--port", str(port)),
            running("penstock", "worker", "reports:app"),
        ):
            wait_for(port)
            play(port)
            if "--serve" in sys.argv:
                print(f"Serving on http://127.0.0.1:{port}/reports; Ctrl-C ends it")
                with contextlib.suppress(KeyboardInterrupt):
                    while True:
                        time.sleep(1)


if __name__ == "__main__":
    main()
