"""A real disk that is full: nothing is lost, and work goes on when there is room again."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import App
from penstock.errors import StoreTakesNoWrites
from penstock.model.events import EventType
from tests.support import tasks
from tests.support.handling import connected
from tests.support.postgres import server_account
from tests.support.servers import Server
from tests.support.workers import QUICK, Place, Workers, counted, wait_until

SIZE = "12m"


class SmallDisk:
    """A file system of a few megabytes, filled up by a file of ours."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ballast = directory / "ballast"

    def fill(self) -> None:
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))

    def make_room(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    directory = Path(tempfile.mkdtemp(prefix="penstock-disk-"))
    mounted = shutil.which("mount") and os.geteuid() == 0
    if (
        not mounted
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(directory)],  # noqa: S607
            check=False,
            capture_output=True,
        ).returncode
    ):
        directory.rmdir()
        pytest.skip("no right to mount a small file system: it takes root")
    server_account().own(directory)
    try:
        yield SmallDisk(directory)
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)  # noqa: S607
        directory.rmdir()


@pytest.fixture
def place(disk: SmallDisk, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.node.callspec.params["database"] == "sqlite":
        return Place(f"sqlite:///{disk.directory / 'penstock.db'}", "unused", tmp_path)
    url = request.getfixturevalue("postgres_url")
    return Place(url, request.getfixturevalue("postgres_schema"), tmp_path)


@pytest.fixture
def on_small_disk(place: Place, app: App, disk: SmallDisk) -> Iterator[None]:
    """PostgreSQL's log stays where it was: only the tables are on the small disk."""
    if place.url.startswith("sqlite"):
        yield
        return
    server, space = Server(place.url), f"small_{place.schema}"
    server.query(f"CREATE TABLESPACE {space} LOCATION '{disk.directory}'")
    for table in ("task_executions", "task_outbox", "execution_events"):
        server.query(f"ALTER TABLE {place.schema}.{table} SET TABLESPACE {space}")
    yield
    for table in ("task_executions", "task_outbox", "execution_events"):
        server.query(f"ALTER TABLE {place.schema}.{table} SET TABLESPACE pg_default")
    server.query(f"DROP TABLESPACE {space}")


@pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def test_work_goes_on_when_a_full_disk_has_room_again(
    app: App,
    place: Place,
    workers: Workers,
    disk: SmallDisk,
    on_small_disk: None,
    database: str,
) -> None:
    with connected(place) as connection:
        connection.execute("CREATE TABLE effects (execution TEXT)")
    ids = [tasks.hold.enqueue(place.gate).id for _ in range(4)]
    worker = workers.start(slots=4, **QUICK)
    wait_until(lambda: counted(app.store, ids, EventType.STARTED).total() == 4)
    disk.fill()
    refused = ""
    for number in range(3000):
        try:
            ids.append(tasks.step.enqueue(number).id)
        except StoreTakesNoWrites as error:
            refused = str(error)
            break
    assert "Nothing of that was written. Make room" in refused
    place.open_gate()  # what ends now cannot be written down
    wait_until(lambda: "waiting for the database" in worker.log())
    assert worker.alive
    disk.make_room()

    for one in ids:
        app.get(one).result(timeout=30)
    assert counted(app.store, ids, EventType.RECOVERED).total() == 0
