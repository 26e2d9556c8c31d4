"""Both stores and a small model do the same random things, and nobody can tell them apart."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import structs
from msgspec.structs import replace

from penstock.errors import KeyTaken
from penstock.model.executions import Claimed, NewExecution
from penstock.model.outcomes import Outcome
from penstock.model.states import SubState
from penstock.model.workers import Beat, Pulse, WorkerInfo
from penstock.store.contract import Store
from penstock.testing.clock import ManualClock
from tests.contract.audit import complaints
from tests.contract.databases import Database, PostgresDatabase, SqliteDatabase
from tests.contract.model import Model
from tests.contract.support import ENDINGS, OTHER_TASK, TASK, TASKS, Options, new

T = TypeVar("T")

DAY = timedelta(days=1)
MOST_WORKERS = 8

tasks = st.sampled_from(TASKS)
queues = st.sampled_from(["a", "b"])
serials = st.sampled_from([None, None, "s1", "s2"])
# Anything that has a place in a list is named by a number, counted from the newest.
places = st.integers(min_value=0, max_value=12)
moments = st.sampled_from([None, 0, 10, 60]).map(
    lambda seconds: None if seconds is None else timedelta(seconds=seconds)
)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[str, Options]]:
    return [
        (
            draw(tasks),
            Options(
                queue=draw(queues),
                priority=draw(st.sampled_from([0, 0, 0, 5])),
                delay=draw(moments),
                key=draw(st.sampled_from([None, None, "k1", "k2"])),
                serial=draw(serials),
                max_crashes=draw(st.sampled_from([1, 2])),
            ),
        )
        for _ in range(draw(st.integers(min_value=1, max_value=3)))
    ]


class Machine(RuleBasedStateMachine):
    def __init__(self, databases: list[Database], stores: list[Store], clock: ManualClock) -> None:
        super().__init__()
        self.databases = databases
        self.stores = stores
        self.clock = clock
        self.model = Model(clock.now)
        self.requested: list[NewExecution] = []
        self.claimed: list[Claimed] = []
        self.workers: list[str] = []

    def both(self, operation: Callable[[Store], T]) -> T:
        """Do it on both stores and return their answer, which has to be the same."""
        first, second = (operation(store) for store in self.stores)
        assert first == second
        return first

    def some(self, options: Sequence[T], place: int) -> T:
        return options[-1 - place % len(options)]

    @initialize()
    def begin(self) -> None:
        for database in self.databases:
            database.empty()
        # Now, because sweeping compares it with ids; to the second, so that each run is the same.
        self.clock.set_to(datetime.now(UTC).replace(microsecond=250_000))
        self.add_worker()
        self.add_worker()

    @precondition(lambda self: len(self.workers) < MOST_WORKERS)
    @rule()
    def add_worker(self) -> None:
        worker_id = f"w{len(self.workers)}"
        self.workers.append(worker_id)
        self.both(lambda store: store.register(WorkerInfo(id=worker_id)))
        self.model.beats[worker_id] = 0

    @rule(batch=batches())
    def create(self, batch: list[tuple[str, Options]]) -> None:
        requested = [new(task, **options) for task, options in batch]
        self.requested += requested
        assert self.both(lambda store: store.create(requested)) == self.model.create(requested)

    @precondition(lambda self: self.requested)
    @rule(place=places)
    def create_again(self, place: int) -> None:
        again = [self.some(self.requested, place)]
        if again[0].id in self.model.executions:
            assert self.both(lambda store: store.create(again)) == self.model.create(again)

    @rule(
        place=places,
        served=st.sampled_from([["a"], ["b"], ["a", "b"], ["b", "a"]]),
        known=st.sampled_from([TASKS, TASKS, (TASK,), (OTHER_TASK,)]),
        limit=st.integers(min_value=1, max_value=3),
        suspects=st.sampled_from([True, True, False]),
    )
    def claim(
        self, place: int, served: list[str], known: tuple[str, ...], limit: int, suspects: bool
    ) -> None:
        worker_id = self.some(self.workers, place)

        def claim(store: Store) -> list[Claimed]:
            claimed = store.claim(
                worker_id, queues=served, tasks=known, limit=limit, suspects=suspects
            )
            # Sequences are the database's own; only the order that they give is promised.
            return [structs.replace(one, seq=0) for one in claimed]

        claimed = self.both(claim)
        leases = self.model.claim(
            worker_id, queues=served, tasks=known, limit=limit, suspects=suspects
        )
        assert [one.lease for one in claimed] == leases
        self.claimed += claimed

    @precondition(lambda self: self.claimed)
    @rule(place=places)
    def start(self, place: int) -> None:
        leases = [self.some(self.claimed, place).lease]
        assert self.both(lambda store: store.start(leases)) == self.model.start(leases)

    @precondition(lambda self: self.claimed)
    @rule(place=places, sub_state=st.sampled_from(SubState))
    def change_sub_state(self, place: int, sub_state: SubState) -> None:
        leases = [self.some(self.claimed, place).lease]

        def change(store: Store) -> object:
            deferred = sub_state is SubState.DEFERRED
            return store.defer(leases, reason="waits") if deferred else store.undefer(leases)

        assert self.both(change) == self.model.change(leases, sub_state)

    @precondition(lambda self: self.claimed)
    @rule(endings=st.lists(st.tuples(places, st.sampled_from(sorted(ENDINGS))), max_size=4))
    def settle(self, endings: list[tuple[int, str]]) -> None:
        outcomes: dict[str, Outcome] = {}
        for place, ending in endings:
            claimed = self.some(self.claimed, place)
            outcome = structs.replace(ENDINGS[ending](claimed.lease), serial=claimed.serial)
            outcomes[claimed.lease.execution_id] = outcome
        batch = list(outcomes.values())
        assert self.both(lambda store: store.settle(batch)) == self.model.settle(batch)

    @rule()
    def promote(self) -> None:
        assert self.both(lambda store: store.promote()) == self.model.promote()

    @rule(seconds=st.sampled_from([1, 10, 60]))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(observer=places, dead=places, seen_late=st.booleans())
    def recover(self, observer: int, dead: int, seen_late: bool) -> None:
        watching, stopped = self.some(self.workers, observer), self.some(self.workers, dead)
        seen = [Beat(stopped, self.model.beats.get(stopped, 0) - seen_late)]
        recovered = self.both(lambda store: store.recover(watching, dead=seen))
        assert recovered == self.model.recover(watching, seen)

    @rule(place=places)
    def heartbeat(self, place: int) -> None:
        worker_id = self.some(self.workers, place)

        def beat(store: Store) -> Pulse:
            pulse = store.heartbeat(worker_id)
            return replace(pulse, cancel_requested=tuple(sorted(pulse.cancel_requested)))

        pulse = self.both(beat)
        assert pulse.alive == (worker_id in self.model.beats)
        if pulse.alive:
            self.model.beats[worker_id] += 1
        assert {peer.seen for peer in pulse.peers} == {
            Beat(*beat) for beat in self.model.beats.items() if beat[0] != worker_id
        }
        assert set(pulse.cancel_requested) == {
            one.id
            for one in self.model.executions.values()
            if one.worker_id == worker_id and one.cancel_requested
        }

    @rule(place=places, forgotten=places)
    def reconcile(self, place: int, forgotten: int) -> None:
        worker_id = self.some(self.workers, place)
        held = [one.lease for one in self.claimed if one.lease.worker_id == worker_id][forgotten:]
        lost = self.both(lambda store: store.reconcile(worker_id, held))
        assert lost == self.model.reconcile(worker_id, held)

    @precondition(lambda self: self.model.executions)
    @rule(chosen=st.lists(places, min_size=1, max_size=3))
    def cancel(self, chosen: list[int]) -> None:
        known = sorted(self.model.executions)
        ids = list(dict.fromkeys(self.some(known, place) for place in chosen))
        assert self.both(lambda store: store.cancel(ids)) == self.model.cancel(ids)

    @precondition(lambda self: self.model.executions)
    @rule(place=places)
    def rerun(self, place: int) -> None:
        execution_id = self.some(sorted(self.model.executions), place)

        def rerun(store: Store) -> object:
            try:
                return store.rerun([execution_id])
            except KeyTaken as error:
                return error.holder

        answer = self.both(rerun)
        try:
            expected: object = [self.model.rerun(execution_id)]
        except KeyTaken as error:
            expected = error.holder
        assert answer == expected

    @rule(queue=queues)
    def pause_or_unpause(self, queue: str) -> None:
        if queue in self.model.paused:
            assert self.both(lambda store: store.unpause(queue))
        else:
            assert self.both(lambda store: store.pause(queue))
        self.model.paused ^= {queue}
        assert self.both(lambda store: store.paused()) == sorted(self.model.paused)

    @rule()
    def sweep(self) -> None:
        self.clock.advance(2 * DAY)
        swept = self.both(lambda store: store.sweep(older_than=DAY))
        assert swept == self.model.sweep(DAY)

    @invariant()
    def nobody_can_tell_them_apart(self) -> None:
        expected = [self.model.executions[id_].snapshot() for id_ in sorted(self.model.executions)]
        for store in self.stores:
            assert store.find(limit=1000)[::-1] == expected

    def teardown(self) -> None:
        for one in self.model.executions.values():
            told = self.both(
                lambda store, id_=one.id: [  # type: ignore[misc]
                    (event.type, event.worker_id, event.at, event.data)
                    for event in store.history(id_)
                ]
            )
            assert [entry[:2] for entry in told] == one.history
        for database in self.databases:
            assert complaints(database) == []


@pytest.fixture
def stores(
    sqlite: SqliteDatabase, emptied_postgres: PostgresDatabase, clock: ManualClock
) -> Iterator[list[Store]]:
    stores = [sqlite.open(clock), emptied_postgres.open(clock)]
    for store in stores:
        store.migrate()
    yield stores
    for store in stores:
        store.close()


@pytest.mark.slow
def test_nobody_can_tell_the_stores_from_the_model(
    sqlite: SqliteDatabase,
    emptied_postgres: PostgresDatabase,
    stores: list[Store],
    clock: ManualClock,
) -> None:
    run_state_machine_as_test(
        lambda: Machine([sqlite, emptied_postgres], stores, clock),  # type: ignore[arg-type]
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
