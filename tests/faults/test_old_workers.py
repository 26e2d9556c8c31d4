"""Workers of the first version go on while the tables are migrated under them, and afterwards."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from penstock import App
from tests.support import tasks
from tests.support.auditing import audit
from tests.support.workers import QUICK, ROOT, Place, wait_until, workers_at

FROZEN = Path(__file__).with_name("frozen") / "penstock_v1.zip"
PROGRAM = ROOT / "tests" / "support" / "frozen.py"
COUNT = 150


def start(place: Place, *doing: object) -> subprocess.Popen[bytes]:
    """Run the program of the first version."""
    log = (place.directory / "frozen.log").open("ab")
    with log:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), *map(str, doing)],
            env={**os.environ, **place.environment, "PYTHONPATH": str(FROZEN)},
            cwd=place.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )


def run(place: Place, *doing: object) -> list[str]:
    """Run it to its end; return what it says."""
    process = start(place, *doing)
    said, _ = process.communicate(timeout=60)
    log = (place.directory / "frozen.log").read_text(encoding="utf-8")
    assert process.returncode == 0, log
    return said.decode().split()


def test_old_workers_go_on_while_the_tables_are_migrated_and_afterwards(place: Place) -> None:
    run(place, "migrate")
    ids = run(place, "enqueue", 0, COUNT)
    old = [start(place, "work") for _ in range(2)]
    app = App(place.url, schema=place.schema)
    try:
        wait_until(lambda: len(place.runs()) > COUNT // 3)
        app.migrate()
        began = len(place.runs())
        ids += run(place, "enqueue", COUNT, COUNT)
        # Old workers do what is there and what the new version enqueues, in the same tables.
        new = [app.enqueue("step", {"number": number}) for number in range(2 * COUNT, 3 * COUNT)]
        ids += [one.id for one in new]
        wait_until(lambda: len(place.runs()) > began + COUNT)
        assert all(one.poll() is None for one in old)
        # And the new one takes over what an old one leaves behind when it is killed.
        old[0].kill()
        tasks.app.configure(database=place.url, schema=place.schema)
        with workers_at(place, app.store) as workers:
            workers.start(slots=4, **QUICK)
            wait_until(lambda: app.counts()["completed"] == len(ids), 60)
        old[1].send_signal(signal.SIGTERM)
        assert old[1].wait(30) == 0
        assert [app.get(one).result() for one in ids] == list(range(3 * COUNT))
        assert audit(app.store, place, ids) == []
    finally:
        for one in old:
            one.kill()
            one.wait()
            assert one.stdout is not None
            one.stdout.close()
        app.close()
