"""Retention: by hand with admin cleanup and cleanup-events, and by the workers themselves."""

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import App
from penstock.engine import retention
from penstock.engine.retention import Retention, Sweeper, sweep_all
from penstock.errors import StoreUnavailable
from penstock.model.executions import NewExecution, Swept
from penstock.model.ids import IdSource
from penstock.model.outcomes import Completed, Failed, Outcome
from penstock.model.states import State
from penstock.model.workers import WorkerInfo
from penstock.store.contract import Store
from penstock.store.opening import open_store
from penstock.store.sqlite.store import SqliteStore
from penstock.testing.clock import ManualClock
from tests.e2e.command_line import CommandLine, wait_until

DAY = timedelta(days=1)
SOON = {"every": 3600.0, "first_look": (0.0, 0.0)}
EVENTS_OF_ONE = 4  # created, marked ready, claimed, completed


def finish(penstock: CommandLine, count: int, *, days_ago: int, failed: bool = False) -> list[str]:
    """Have so many executions end so long ago; return their ids."""
    clock = ManualClock(datetime.now(UTC) - days_ago * DAY)
    store = open_store(penstock.url, schema=penstock.schema or "penstock", clock=clock)
    ids = IdSource(lambda: int(clock.now().timestamp()) * 1_000_000_000)
    made = [NewExecution(id=ids.next(), task="add", args="{}") for _ in range(count)]
    store.create(made)
    store.register(WorkerInfo(id="w", queues=("default",), tasks=("add",), slots=1))
    for one in store.claim("w", queues=["default"], tasks=["add"], limit=count):
        outcome: Outcome = Completed(lease=one.lease, result="1")
        if failed:
            outcome = Failed(lease=one.lease, error='{"type":"E","message":"m"}')
        assert store.settle([outcome]) == []
    store.unregister("w")
    store.close()
    return [new.id for new in made]


# --- by hand ----------------------------------------------------------------------------


def test_cleanup_removes_what_ended_well_and_leaves_its_history(penstock: CommandLine) -> None:
    old = finish(penstock, 3, days_ago=31)
    young = finish(penstock, 2, days_ago=29)

    answer = penstock("admin", "cleanup", "--older-than", "30d")

    assert (answer.status, answer.out) == (
        0,
        "Removed 3 executions that ended more than 30d ago.\n",
    )
    assert {one["id"] for one in penstock("list", "--json").json} == set(young)
    assert len(penstock("history", old[0], "--json").json) == EVENTS_OF_ONE
    assert penstock("show", old[0]).status == 1


def test_cleanup_events_removes_histories_whole(penstock: CommandLine) -> None:
    old = finish(penstock, 3, days_ago=91)
    young = finish(penstock, 1, days_ago=89)
    penstock("admin", "cleanup")

    answer = penstock("admin", "cleanup-events", "--older-than", "90d")

    assert (answer.status, answer.out) == (
        0,
        "Removed 12 events of executions that ended more than 90d ago.\n",
    )
    assert penstock("history", old[0]).status == 1
    assert len(penstock("history", young[0], "--json").json) == EVENTS_OF_ONE


@pytest.mark.parametrize("command", ["cleanup", "cleanup-events"])
def test_failed_and_live_executions_stay_with_their_events(
    penstock: CommandLine, command: str
) -> None:
    (failed,) = finish(penstock, 1, days_ago=4000, failed=True)
    live = penstock.enqueue("add")

    answer = penstock("admin", command, "--older-than", "0s")

    assert (answer.status, answer.out[:9]) == (0, "Removed 0")
    for execution_id, events in {failed: EVENTS_OF_ONE, live: 2}.items():
        assert penstock("show", execution_id).status == 0
        assert len(penstock("history", execution_id, "--json").json) == events


def test_a_removal_that_is_stopped_says_how_far_it_came(
    on_sqlite: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(on_sqlite, 4, days_ago=31)
    monkeypatch.setattr(retention, "BATCH", 3)
    sweep, sweeps = SqliteStore.sweep, iter([True, False])

    def on_a_full_disk(store: SqliteStore, **wanted: Any) -> Swept:  # noqa: ANN401
        if not wanted["dry_run"] and not next(sweeps, True):
            full = OSError("no space left")
            raise StoreUnavailable("sweep", because=full) from full
        return sweep(store, **wanted)

    monkeypatch.setattr(SqliteStore, "sweep", on_a_full_disk)
    answer = on_sqlite("admin", "cleanup", "--older-than", "30d")
    assert answer.status == 1
    assert "Stopped by the database (no space left): about 3 of 4 are done" in answer.err


@pytest.mark.parametrize(
    ("command", "told"), [("cleanup", "3 executions that"), ("cleanup-events", "12 events of")]
)
def test_a_dry_run_counts_and_removes_nothing(
    penstock: CommandLine, command: str, told: str
) -> None:
    finish(penstock, 3, days_ago=100)

    answer = penstock("admin", command, "--older-than", "90d", "--dry-run")

    assert answer.status == 0
    assert answer.out.startswith(told)
    assert answer.out.endswith("ended more than 90d ago would go.\n")
    assert penstock("admin", command, "--older-than", "90d").out.startswith(f"Removed {told}")


def test_without_an_age_the_settings_say_how_old(
    penstock: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(penstock, 1, days_ago=10)
    assert penstock("admin", "cleanup").out.startswith("Removed 0 executions")
    assert penstock("admin", "cleanup-events").out.endswith("90d ago.\n")

    monkeypatch.setenv("PENSTOCK_CLEANUP_COMPLETED_AFTER_DAYS", "9")
    assert penstock("admin", "cleanup").out.startswith("Removed 1 executions")


def test_an_age_that_is_none_is_a_misuse(penstock: CommandLine) -> None:
    answer = penstock("admin", "cleanup", "--older-than", "a month")
    assert answer.status == 2
    assert "not a duration" in answer.err


def test_much_is_told_along_the_way(penstock: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.retention.BATCH", 2)
    finish(penstock, 10, days_ago=40)
    answer = penstock("admin", "cleanup")
    assert answer.err.splitlines()[0] == "removing executions: 2 of 10"
    assert len(answer.err.splitlines()) == 4


# --- by the workers ---------------------------------------------------------------------


@pytest.fixture
def store(penstock: CommandLine) -> Iterator[Store]:
    with penstock.store() as store:
        yield store


def sweeper(store: Store, worker_id: str = "w", *, every: float = 3600) -> Sweeper:
    kept = Retention(executions=30 * DAY, events=90 * DAY)
    return Sweeper(store, kept, worker_id=lambda: worker_id, every=every, first_look=(0, 0))


def register(store: Store, *worker_ids: str) -> None:
    for worker_id in worker_ids:
        store.register(WorkerInfo(id=worker_id, queues=("default",), tasks=("add",), slots=1))


def test_a_sweep_removes_all_that_is_too_old_and_logs_each_batch(
    penstock: CommandLine,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("penstock.engine.retention.BATCH", 4)
    finish(penstock, 5, days_ago=91)
    finish(penstock, 5, days_ago=31)

    with caplog.at_level(logging.INFO, logger="penstock.worker"):
        sweeper(store).sweep()

    assert store.find() == []
    assert sum(swept(store, events=True)) == 0
    assert [record.getMessage() for record in caplog.records] == [
        "removed 4 executions that ended more than 30d ago",
        "removed 4 executions that ended more than 30d ago",
        "removed 2 executions that ended more than 30d ago",
        *["removed 4 events of executions that ended more than 90d ago"] * 5,
    ]


def swept(store: Store, *, events: bool) -> list[int]:
    sweep, age = (store.sweep_events, 90 * DAY) if events else (store.sweep, 30 * DAY)
    return list(sweep_all(sweep, age, rest=lambda _: False, dry_run=True))


def test_in_every_period_one_worker_has_the_turn_and_each_has_it_in_time(store: Store) -> None:
    register(store, "a", "b", "c")
    sweepers = {name: sweeper(store, name) for name in ("a", "b", "c")}

    turns = [
        [name for name, one in sweepers.items() if one.is_our_turn(hour * 3600 + offset)]
        for hour in range(6)
        for offset in (0, 3599)
    ]

    assert all(len(turn) == 1 for turn in turns)
    assert {name for turn in turns for name in turn} == {"a", "b", "c"}
    assert turns[0::2] == turns[1::2]


def test_the_turn_of_one_that_died_goes_to_another(store: Store) -> None:
    register(store, "a", "b")
    store.unregister("a")

    assert [sweeper(store, "b").is_our_turn(hour * 3600) for hour in range(3)] == [True] * 3
    assert not any(sweeper(store, "a").is_our_turn(hour * 3600) for hour in range(3))


def test_it_sweeps_on_a_thread_of_its_own_until_it_is_stopped(
    penstock: CommandLine, store: Store
) -> None:
    finish(penstock, 5, days_ago=40)
    register(store, "w")
    one = sweeper(store)
    thread = threading.Thread(target=one.run_until_stopped)
    thread.start()

    wait_until(lambda: store.counts()[State.COMPLETED] == 0)

    one.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_a_database_that_does_not_answer_only_makes_it_late(
    penstock: CommandLine,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    finish(penstock, 1, days_ago=40)
    register(store, "w")
    sweep, failures = store.sweep, iter([StoreUnavailable("sweep", because=OSError("gone"))])

    def sometimes(*, older_than: timedelta, after: str | None, limit: int, dry_run: bool) -> Swept:
        for failure in failures:
            raise failure
        return sweep(older_than=older_than, after=after, limit=limit, dry_run=dry_run)

    monkeypatch.setattr(store, "sweep", sometimes)
    one = sweeper(store, every=0.01)
    thread = threading.Thread(target=one.run_until_stopped)
    thread.start()
    wait_until(lambda: store.counts()[State.COMPLETED] == 0)
    one.stop()
    thread.join(10)

    assert "leaving it for the next time" in caplog.text


def test_a_worker_keeps_the_tables_small_as_its_settings_say(
    penstock: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CLEANUP_COMPLETED_AFTER_DAYS", "10")
    monkeypatch.setenv("PENSTOCK_EXECUTION_EVENTS_RETENTION_DAYS", "20")
    monkeypatch.setattr(Sweeper.__init__, "__kwdefaults__", SOON)
    removed = finish(penstock, 2, days_ago=11)
    forgotten = finish(penstock, 2, days_ago=21)
    (failed,) = finish(penstock, 1, days_ago=400, failed=True)
    kept = finish(penstock, 1, days_ago=9)
    app = App(penstock.url, schema=penstock.schema)

    @app.task
    def add() -> None: ...

    with app.worker():
        wait_until(lambda: not app.store.history(forgotten[1]))

    assert {one.id for one in app.find()} == {failed, *kept}
    assert [len(app.store.history(one)) for one in (*removed, failed)] == [EVENTS_OF_ONE] * 3
    app.close()
