"""PgBouncer in transaction mode, where no session is anybody's for longer than a transaction."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support.postgres import _free_port, server_account
from tests.support.remote import Remote
from tests.support.workers import QUICK, Place, Workers, wait_until

pytestmark = pytest.mark.postgres

COUNT = 200


@pytest.fixture
def pooled_url(postgres_url: str, tmp_path: Path) -> Iterator[str]:
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("no PgBouncer: on Debian and Ubuntu, apt-get install pgbouncer")
    server, port, account = urlsplit(postgres_url), _free_port(), server_account()
    place = Path(f"/tmp/penstock-pgbouncer-{port}")  # noqa: S108 - where another user may go
    place.mkdir(mode=0o700)
    account.own(place)
    (place / "users").write_text(f'"{server.username}" "{server.password}"\n')
    (place / "ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        f"auth_type = plain\nauth_file = {place}/users\npool_mode = transaction\n"
        "default_pool_size = 5\n"
        "ignore_startup_parameters = extra_float_digits,options\n"
    )
    for path in place.iterdir():
        account.own(path)
    with (place / "log").open("wb") as log:
        bouncer = subprocess.Popen(
            [program, str(place / "ini")],
            stdout=log,
            stderr=log,
            user=account.user,
            group=account.group,
            extra_groups=account.extra_groups,
        )
    url = postgres_url.replace(f":{server.port}/", f":{port}/")
    try:
        wait_until(lambda: _answers(url), what="PgBouncer")
        yield url
    finally:
        bouncer.kill()
        bouncer.wait()
        shutil.rmtree(place)


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def test_workers_behind_a_pooler_do_all_that_there_is(
    remote: Remote, pooled_url: str, tmp_path: Path
) -> None:
    """Also without a listening connection of their own: then they poll, and that is enough."""
    place = Place(pooled_url, remote.place.schema, tmp_path)
    workers = Workers(place, remote.store)
    ids = remote.enqueue_steps(COUNT)
    try:
        first = workers.start(slots=4, poll=1, **QUICK)
        workers.start(slots=4, poll=1, **QUICK)
        wait_until(lambda: remote.completed() >= COUNT // 4)
        first.kill()
        remote.wait_for(ids)
        time.sleep(1.0)
        ids += remote.enqueue_steps(20)
        remote.wait_for(ids)
    finally:
        workers.end()
    assert remote.completed() == len(ids)
