"""The primary is lost, a standby is promoted, and the workers go on with it."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.testing import Proxy
from tests.support.postgres import _free_port, server_account
from tests.support.remote import remote_site
from tests.support.servers import Server, private_server
from tests.support.workers import QUICK, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

COUNT = 400


class Standby:
    """A replica of a server, in a directory of its own beside it."""

    def __init__(self, primary: Server, directory: Path) -> None:
        self._programs = primary._programs
        self._data = directory / "standby"
        self._account = server_account()
        self.port = _free_port()
        parts = urlsplit(primary.url)
        self._run(
            "pg_basebackup",
            f"--pgdata={self._data}",
            f"--dbname={primary.url}?application_name=standby",
            "--write-recovery-conf",
            "--wal-method=stream",
            "--checkpoint=fast",
        )
        self._run(
            "pg_ctl", f"--pgdata={self._data}", "--wait", f"--options={self._options}", "start"
        )
        self.url = primary.url.replace(f":{parts.port}/", f":{self.port}/")

    @property
    def _options(self) -> str:
        return (
            f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories='' "
            "-c max_connections=200 -c synchronous_standby_names=''"
        )

    def promote(self) -> None:
        self._run("pg_ctl", f"--pgdata={self._data}", "--wait", "promote")

    def stop(self) -> None:
        self._run("pg_ctl", f"--pgdata={self._data}", "--mode=immediate", "--wait", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        # A file, not a pipe: the server inherits it and would keep a pipe open.
        with tempfile.TemporaryFile() as said:
            finished = subprocess.run(
                [str(self._programs / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd="/",
                check=False,
                user=self._account.user,
                group=self._account.group,
                extra_groups=self._account.extra_groups,
            )
            said.seek(0)
            assert finished.returncode == 0, said.read().decode(errors="replace")


@pytest.fixture
def primary() -> Iterator[Server]:
    with private_server() as server:
        yield server


@pytest.fixture
def standby(primary: Server) -> Iterator[Standby]:
    directory = Path(tempfile.mkdtemp(prefix="penstock-standby-"))
    server_account().own(directory)
    standby = Standby(primary, directory)
    # What was acknowledged is on the standby, too: nothing may be lost by the fail-over.
    primary.configure({"synchronous_standby_names": "*", "synchronous_commit": "remote_apply"})
    wait_until(
        lambda: primary.query("SELECT sync_state FROM pg_stat_replication") == [("sync",)],
        what="a synchronous standby",
    )
    yield standby
    standby.stop()
    shutil.rmtree(directory)


def lead_to(proxy: Proxy, port: int) -> None:
    """From now on the name of the database leads to another server."""
    proxy._behind = ("127.0.0.1", port)
    proxy.cut()


def test_what_was_acknowledged_before_a_fail_over_is_done_after_it(
    primary: Server, standby: Standby, tmp_path: Path
) -> None:
    with remote_site(primary.url, "penstock", tmp_path) as remote:
        ids = remote.enqueue_steps(COUNT)
        for _ in range(2):
            remote.workers.start(slots=4, **QUICK)
        wait_until(lambda: remote.completed() >= COUNT // 4)

        primary.stop("immediate")
        time.sleep(2 * 1.5)  # for two leases there is nobody
        standby.promote()
        lead_to(remote.proxy, standby.port)
        # The test goes where the workers go.
        remote.app.close()
        remote.app.configure(database=standby.url)
        remote.wait_for(ids)
        assert remote.completed() == COUNT
