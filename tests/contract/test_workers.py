import pytest

from penstock.model.workers import Beat, WorkerInfo
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.support import (
    OBSERVER,
    WORKER,
    beat_of,
    claim,
    declare_dead,
    enqueue,
    run_one,
    worker,
)


def test_a_registered_worker_is_seen_with_all_it_tells(store: Store, clock: ManualClock) -> None:
    told = WorkerInfo(
        id=WORKER,
        name="mail-1",
        host="büro",
        identity="boot:4026531836:17:99",
        queues=["mail", "default"],
        tasks=["send_email"],
        slots=7,
    )
    store.register(told)

    (peer,) = store.workers()

    assert (peer.info.id, peer.info.name, peer.info.host) == (WORKER, "mail-1", "büro")
    assert (peer.info.identity, peer.info.slots) == ("boot:4026531836:17:99", 7)
    assert (list(peer.info.queues), list(peer.info.tasks)) == (told.queues, told.tasks)
    assert (peer.beat_at, peer.started_at) == (clock.now(), clock.now())


def test_workers_are_listed_the_oldest_first(store: Store, clock: ManualClock) -> None:
    for worker_id in ("c", "a", "b"):
        worker(store, worker_id)
        clock.advance("1s")

    assert [peer.info.id for peer in store.workers()] == ["c", "a", "b"]


def test_a_heartbeat_counts_up_and_shows_its_time(store: Store, clock: ManualClock) -> None:
    worker(store)
    before = beat_of(store, WORKER)
    clock.advance("5s")

    pulse = store.heartbeat(WORKER)

    assert pulse.alive
    assert beat_of(store, WORKER).beat > before.beat
    (peer,) = store.workers()
    assert peer.beat_at == clock.now()


def test_a_heartbeat_shows_the_others_and_their_beats(store: Store, clock: ManualClock) -> None:
    worker(store)
    clock.advance("1s")
    worker(store, OBSERVER)
    store.heartbeat(OBSERVER)

    pulse = store.heartbeat(WORKER)

    assert [peer.seen for peer in pulse.peers] == [beat_of(store, OBSERVER)]
    assert pulse.peers[0].beat_at == clock.now()


def test_a_heartbeat_names_what_should_stop(store: Store) -> None:
    asked, other = run_one(store), run_one(store)
    run_one(store, OBSERVER)
    store.cancel([asked.lease.execution_id])

    assert store.heartbeat(WORKER).cancel_requested == (asked.lease.execution_id,)
    assert store.heartbeat(OBSERVER).cancel_requested == ()
    assert other.lease.execution_id not in store.heartbeat(WORKER).cancel_requested


def test_registering_again_after_a_lost_reply_is_one_worker(
    store: Store, clock: ManualClock
) -> None:
    worker(store)
    store.heartbeat(WORKER)
    before = beat_of(store, WORKER)
    worker(store)

    assert len(store.workers()) == 1
    assert beat_of(store, WORKER).beat >= before.beat


def test_a_worker_that_stops_in_good_order_is_forgotten(store: Store) -> None:
    worker(store)
    store.unregister(WORKER)
    store.unregister(WORKER)

    assert store.workers() == []
    assert store.heartbeat(WORKER).alive is False


def test_a_heartbeat_of_nobody_is_not_alive(store: Store) -> None:
    assert store.heartbeat("nobody").alive is False
    assert store.workers() == []


def test_a_worker_that_was_declared_dead_stays_dead(store: Store) -> None:
    worker(store)
    enqueue(store)
    declare_dead(store, WORKER)

    for _ in range(2):
        assert store.heartbeat(WORKER).alive is False
    assert claim(store, WORKER) == []
    assert [peer.info.id for peer in store.workers()] == [OBSERVER]


def test_a_beat_since_it_was_last_seen_saves_a_worker(store: Store) -> None:
    running = run_one(store)
    worker(store, OBSERVER)
    seen = beat_of(store, WORKER)
    store.heartbeat(WORKER)

    assert store.recover(OBSERVER, dead=[seen]) == []

    assert store.heartbeat(WORKER).alive
    assert store.start([running.lease]) == []


@pytest.mark.parametrize("observer", ["nobody", OBSERVER])
def test_a_dead_observer_declares_nothing(store: Store, observer: str) -> None:
    run_one(store)
    worker(store, OBSERVER)
    store.unregister(OBSERVER)

    assert store.recover(observer, dead=[beat_of(store, WORKER)]) == []

    assert store.heartbeat(WORKER).alive


def test_nobody_declares_itself_dead(store: Store) -> None:
    running = run_one(store)

    assert store.recover(WORKER, dead=[beat_of(store, WORKER)]) == []

    assert store.heartbeat(WORKER).alive
    assert store.start([running.lease]) == []


def test_several_workers_are_declared_dead_at_once(store: Store) -> None:
    dead = [run_one(store, f"dead-{n}").lease.worker_id for n in range(3)]
    alive = run_one(store, "alive")
    worker(store, OBSERVER)

    beats = [*(beat_of(store, one) for one in dead), Beat("unknown", 3)]
    recovered = store.recover(OBSERVER, dead=beats)

    assert len(recovered) == 3
    assert store.start([alive.lease]) == []
    assert {peer.info.id for peer in store.workers()} == {"alive", OBSERVER}
