"""A real PgBouncer in front of the PostgreSQL of the tests."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tests.e2e.command_line import wait_until
from tests.ops.tools import program
from tests.support.scraping import free_ports

CONFIGURATION = """
[databases]
* = host={host} port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
auth_type = any
unix_socket_dir =
pool_mode = {mode}
default_pool_size = {size}
ignore_startup_parameters = {ignored}
"""


@contextmanager
def pooled(url: str, directory: Path, *, mode: str, ignored: str, size: int = 20) -> Iterator[str]:
    """Yield the URL of the same database behind a PgBouncer in this mode."""
    binary = program("pgbouncer")
    parts, listen = urlsplit(url), free_ports()
    configuration = directory / "pgbouncer.ini"
    configuration.write_text(
        CONFIGURATION.format(
            host=parts.hostname,
            port=parts.port,
            user=parts.username,
            password=parts.password or "",
            listen=listen,
            mode=mode,
            size=size,
            ignored=ignored,
        ),
        "utf-8",
    )
    configuration.chmod(0o644)
    for parent in (directory, *directory.parents):
        if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)  # it does not run as root
    process = subprocess.Popen(
        [binary, "-u", "nobody", str(configuration)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    behind = urlunsplit(parts._replace(netloc=f"{parts.username}@127.0.0.1:{listen}"))
    try:
        wait_until(lambda: _answers(behind))
        yield behind
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
