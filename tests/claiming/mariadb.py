"""A real MariaDB for one test run, which cannot outlive it.

The programs come from Debian's package `mariadb-server`. Its service is not used: the server runs
on a data directory and a socket of its own, as root (then it becomes `nobody`) and as a plain user.
"""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text

from tests.support.postgres import Account, server_account

START_TIMEOUT = 60
STOP_TIMEOUT = 60
DATABASE = "penstock"

# Waits for a line or for the end of its input, whichever comes first: when the test run is killed,
# its end of the pipe closes, and the server goes the same way as after an orderly run.
GUARDIAN = """
place=$1; shift
"$@" >"$place/log" 2>&1 &
server=$!
read -r _ || true
kill -KILL "$server"
wait "$server"
rm -rf "$place"
"""


class MariadbDidNotStart(Exception):
    """The server for the tests could not be made or started."""

    def __init__(self, program: str, output: str) -> None:
        self.program = program
        self.output = output
        super().__init__(
            f"{program} failed, so there is no MariaDB for the tests. Its output follows. To use "
            f"a server of your own, set PENSTOCK_TEST_MARIADB_URL.\n{output.strip()}"
        )


@dataclass(frozen=True)
class Programs:
    server: str
    installer: str


def installed_programs() -> Programs | None:
    """Return where the programs are, or None where the package is not installed."""
    # A plain user's PATH often lacks the directories of servers.
    places = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
    server = shutil.which("mariadbd") or shutil.which("mariadbd", path=places)
    installer = shutil.which("mariadb-install-db") or shutil.which(
        "mariadb-install-db", path=places
    )
    return Programs(server, installer) if server and installer else None


@contextmanager
def temporary_server(programs: Programs) -> Iterator[str]:
    """Run a new server and give the URL of an empty database, through a socket.

    The server is stopped and its directory deleted on leaving, and also when this process is
    killed. Only the user who runs it, and root, can reach the socket.

    Raises:
        MariadbDidNotStart: with the output of the program that failed.
    """
    account = server_account()
    place = Path(tempfile.mkdtemp(prefix="penstock-mariadb-"))
    account.own(place)
    _initialise(programs, place, account)
    address = place / "socket"
    guardian = subprocess.Popen(
        [
            "/bin/sh",
            "-c",
            GUARDIAN,
            "guardian",
            str(place),
            programs.server,
            "--no-defaults",
            f"--datadir={place / 'data'}",
            f"--socket={address}",
            f"--pid-file={place / 'pid'}",
            "--skip-networking",
            "--innodb-buffer-pool-size=128M",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        # Ctrl-C in a terminal reaches the whole process group; the guardian has to outlive it.
        start_new_session=True,
        user=account.user,
        group=account.group,
        extra_groups=account.extra_groups,
    )
    try:
        _wait_for(address, place / "log")
        yield f"mariadb+pymysql://root@localhost/{DATABASE}?unix_socket={address}&charset=utf8mb4"
    finally:
        guardian.communicate(b"stop\n", timeout=STOP_TIMEOUT)


def _initialise(programs: Programs, place: Path, account: Account) -> None:
    finished = subprocess.run(
        [
            programs.installer,
            "--no-defaults",
            f"--datadir={place / 'data'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=place,
        check=False,
        user=account.user,
        group=account.group,
        extra_groups=account.extra_groups,
    )
    if finished.returncode:
        shutil.rmtree(place, ignore_errors=True)
        raise MariadbDidNotStart("mariadb-install-db", finished.stdout)


def _wait_for(address: Path, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not _answers(address):
        if time.monotonic() > deadline:
            output = log.read_text(errors="replace") if log.exists() else ""
            raise MariadbDidNotStart("mariadbd", output)
        time.sleep(0.05)
    engine = create_engine(f"mariadb+pymysql://root@localhost/?unix_socket={address}")
    with engine.begin() as connection:
        connection.execute(text(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4"))
    engine.dispose()


def _answers(path: Path) -> bool:
    # Not by the driver, which leaves its socket open when nobody answers.
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True
