"""`penstock verify` is right about a system that works, and whose workers are killed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from penstock.engine.verifying import verify
from penstock.model.events import EventType
from penstock.model.verifying import Finding
from penstock.store.contract import Store
from tests.e2e.command_line import CommandLine
from tests.support import turbulence
from tests.support.turbulence import Turbulence
from tests.support.workers import Place, wait_until, workers_at

COUNT = 600
AT_ONCE = 3
SEED = 1
# Plain tasks only, of which none waits for a signal; and a killed worker releases nothing.
EXPECTED = set(EventType) - {
    EventType.SKIPPED,
    EventType.PAUSED,
    EventType.SUSPENDED,
    EventType.RELEASED,
}


@pytest.fixture
def place(penstock: CommandLine, tmp_path: Path) -> Iterator[Place]:
    schema = penstock.schema or "penstock"
    turbulence.app.configure(database=penstock.url, schema=schema)
    yield Place(penstock.url, schema, tmp_path)
    turbulence.app.close()


def look(store: Store) -> list[Finding]:
    return [finding for stretch in verify(store, stretch=100) for finding in stretch.findings]


def cancelled_while_it_ran(crowd: Turbulence) -> str:
    """Let happen for certain what meddling hits only by luck."""
    crowd.keep_alive(AT_ONCE)
    staying = turbulence.stay.enqueue()
    wait_until(lambda: staying.refresh().state == "running")
    staying.cancel("it has stayed for long enough")
    crowd.work_off(0, at_once=AT_ONCE)
    return staying.id


def abandoned(crowd: Turbulence) -> str:
    """Let a task take process after process along, with nobody there to cancel it first."""
    deadly = turbulence.take_along.enqueue(5)
    crowd.work_off(0, at_once=AT_ONCE)
    return deadly.id


@pytest.mark.slow
def test_nothing_is_found_while_workers_run_and_are_killed_nor_afterwards(
    penstock: CommandLine, place: Place
) -> None:
    store = turbulence.app.store
    ids = [one.id for one in turbulence.app.enqueue_many(turbulence.requests(COUNT))]
    with workers_at(place, store) as workers:
        crowd = Turbulence(workers, store, Random(SEED))
        for percent in range(90, -1, -10):
            crowd.work_off(COUNT * percent // 100, at_once=AT_ONCE)
            assert look(store) == []
            crowd.kill_one()
            if percent:
                crowd.meddle()
                assert look(store) == []
        ids += [cancelled_while_it_ran(crowd), abandoned(crowd)]
        assert look(store) == []

    assert penstock("verify").status == 0
    happened = Counter(event.type for one in ids for event in store.history(one))
    assert happened.keys() >= EXPECTED
    assert happened[EventType.CLAIMED] > COUNT
