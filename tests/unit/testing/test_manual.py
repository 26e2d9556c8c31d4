"""ManualApp: a database of the test's own, a clock that the test moves, tasks that it runs."""

import os
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from penstock import (
    App,
    GiveUp,
    Registry,
    TaskFailed,
    TaskHandle,
)
from penstock.rebinding import RunByATest
from penstock.settings import SettingsError
from penstock.testing import ManualApp
from penstock.testing.manual import NotInUse
from penstock.testing.manual_worker import NeverIdle
from penstock.testing.questions import NoSuchParameter


def whose_process() -> int:
    return os.getpid()


# --- running ------------------------------------------------------------------------------------


def test_nothing_runs_until_the_test_says_so(app: App, manual: ManualApp) -> None:
    ran: list[int] = []

    @app.task
    def note(number: int) -> None:
        ran.append(number)

    execution = note.enqueue(7)
    assert ran == []
    (had_a_turn,) = manual.run_until_idle()
    assert ran == [7]
    assert had_a_turn == execution
    assert had_a_turn.state == "completed"
    assert [event.type for event in execution.history()] == [
        "task.created", "task.marked_ready", "task.claimed", "task.started", "task.completed",
    ]  # fmt: skip


def test_a_task_without_a_handle_runs_in_the_calling_thread(app: App, manual: ManualApp) -> None:
    @app.task
    def where() -> int:
        return threading.get_ident()

    execution = where.enqueue()
    manual.run_until_idle()
    assert execution.result(timeout=0) == threading.get_ident()


def test_what_a_task_enqueues_runs_too_and_everything_in_order(app: App, manual: ManualApp) -> None:
    order: list[str] = []

    @app.task
    def step(name: str) -> None:
        order.append(name)
        if name == "first":
            step.enqueue("third")

    app.enqueue_many([step.request("first"), step.request("second")])
    step.using(priority=5).enqueue("urgent")
    had_a_turn = manual.run_until_idle()
    assert order == ["urgent", "first", "second", "third"]
    assert [one.args["name"] for one in had_a_turn] == order


def test_a_retry_waits_for_the_clock_and_not_a_moment_longer(app: App, manual: ManualApp) -> None:
    attempts: list[datetime] = []

    @app.task(retry=["1m", "5m"])
    def fail() -> None:
        attempts.append(manual.clock.now())
        raise ConnectionError("down")

    execution = fail.enqueue()
    begin = manual.clock.now()
    manual.run_until_idle()
    manual.advance("59s")
    assert manual.run_until_idle() == []
    manual.advance("1s")
    assert manual.run_until_idle() == [execution]
    manual.advance("5m")
    manual.run_until_idle()
    assert execution.refresh().state == "failed"
    assert [moment - begin for moment in attempts] == [
        timedelta(0),
        timedelta(minutes=1),
        timedelta(minutes=6),
    ]


def test_a_scheduled_execution_runs_when_its_time_has_come(app: App, manual: ManualApp) -> None:
    @app.task
    def remind() -> None: ...

    execution = remind.using(run_after="10m").enqueue()
    assert execution.run_at == manual.clock.now() + timedelta(minutes=10)
    assert manual.run_until_idle() == []
    manual.advance("10m")
    assert manual.run_until_idle() == [execution]
    assert execution.refresh().run_at == manual.clock.now()


def test_run_for_lets_everything_happen_at_its_own_time(app: App, manual: ManualApp) -> None:
    seen: list[tuple[str, timedelta]] = []
    begin = manual.clock.now()

    @app.task(retry=["1m", "5m"])
    def fail() -> None:
        seen.append(("fail", manual.clock.now() - begin))
        raise ConnectionError("down")

    @app.task
    def remind() -> None:
        seen.append(("remind", manual.clock.now() - begin))

    fail.enqueue()
    remind.using(run_after="2m").enqueue()
    remind.using(run_after="2h").enqueue()
    manual.run_for("1h")
    assert seen == [
        ("fail", timedelta(0)),
        ("fail", timedelta(minutes=1)),
        ("remind", timedelta(minutes=2)),
        ("fail", timedelta(minutes=6)),
    ]
    assert manual.clock.now() == begin + timedelta(hours=1)


def test_who_waits_for_what_has_not_run_is_told_what_the_test_has_to_do(
    app: App, manual: ManualApp
) -> None:
    @app.task
    def send() -> str:
        return "sent"

    flow = app.workflow("flow")
    flow.task(send.function)

    execution = send.using(run_after="90s").enqueue()
    run = flow.start()
    with pytest.raises(TimeoutError, match=r"is scheduled.*manual\.advance\('1m30s'\).*run_until_"):
        execution.result(timeout=0)
    with pytest.raises(TimeoutError, match=r"is running.*manual\.run_until_idle\(\)"):
        run.result(timeout=0)

    manual.advance("1m30s")
    with pytest.raises(TimeoutError, match=r"nothing runs by itself.*manual\.run_until_idle\(\)"):
        execution.result(timeout=0)
    manual.run_until_idle()
    assert (execution.result(timeout=0), run.result(timeout=0)) == ("sent", {"send": "sent"})


def test_an_error_is_stored_as_in_production_and_comes_out_on_request(
    app: App, manual: ManualApp
) -> None:
    @app.task(retry=None)
    def fail(number: int) -> None:
        raise GiveUp(f"number {number}")

    first = fail.enqueue(1)
    manual.run_until_idle()
    with pytest.raises(TaskFailed, match="number 1"):
        first.result(timeout=0)

    second = fail.enqueue(2)
    with pytest.raises(GiveUp, match="number 2"):
        manual.run_until_idle(raise_errors=True)
    assert second.refresh().state == "failed"


def test_what_is_meant_for_the_test_comes_out_unasked(app: App, manual: ManualApp) -> None:
    @app.task(retry=None)
    def fail(handle: TaskHandle) -> None:
        pytest.fail("the fake was called twice")

    fail.enqueue()
    with pytest.raises(pytest.fail.Exception, match="called twice"):
        manual.run_until_idle()


def test_a_result_that_cannot_be_stored_comes_out_too(app: App, manual: ManualApp) -> None:
    @app.task
    def wrong() -> object:
        return object()

    wrong.enqueue()
    with pytest.raises(Exception, match="cannot be stored"):
        manual.run_until_idle(raise_errors=True)


def test_tasks_that_never_end_are_named(app: App, manual: ManualApp) -> None:
    @app.task
    def again() -> None:
        again.enqueue()

    again.enqueue()
    with pytest.raises(NeverIdle, match="'again'"):
        manual.run_until_idle(limit=5)


def test_a_task_that_moves_the_clock_past_its_timeout_has_timed_out(
    app: App, manual: ManualApp
) -> None:
    @app.task(timeout="30s", retry=None)
    def slow(seconds: int) -> str:
        manual.advance(seconds)
        return "done"

    right, wrong = slow.enqueue(30), slow.enqueue(31)
    manual.run_until_idle()
    assert right.result(timeout=0) == "done"
    with pytest.raises(TaskFailed, match="timeout of 30 s"):
        wrong.result(timeout=0)


def test_only_the_queues_asked_for_are_worked_on(app: App, manual: ManualApp) -> None:
    @app.task
    def note() -> None: ...

    mail, slow = (
        note.using(queue="mail").enqueue(),
        note.using(queue="slow").enqueue(),
    )
    assert manual.run_until_idle(queues=["mail"]) == [mail]
    assert manual.run_until_idle() == [slow]


def test_a_serial_keeps_its_order_over_retries(app: App, manual: ManualApp) -> None:
    order: list[int] = []

    @app.task(retry=["1m"])
    def ship(number: int) -> None:
        order.append(number)
        if order == [1]:
            raise ConnectionError("down")

    for number in (1, 2):
        ship.using(serial="order-42").enqueue(number)
    manual.run_until_idle()
    assert order == [1]
    manual.run_for("1m")
    assert order == [1, 1, 2]


def test_what_follows_a_failure_runs_exactly_once(app: App, manual: ManualApp) -> None:
    told: list[str] = []

    @app.task
    def tell(execution_id: str) -> None:
        told.append(execution_id)

    @app.task(retry=None, on_failure=tell)
    def fail() -> None:
        raise ValueError("no")

    execution = fail.enqueue()
    manual.run_until_idle()
    assert told == [execution.id]


def test_process_tasks_run_here_as_well(app: App, manual: ManualApp) -> None:
    execution = app.task(executor="process")(whose_process).enqueue()
    manual.run_until_idle()
    assert execution.result(timeout=0) == os.getpid()


# --- enqueued -----------------------------------------------------------------------------------


def test_enqueued_finds_executions_by_some_of_their_arguments(app: App, manual: ManualApp) -> None:
    @app.task
    def send(order_id: int, to: str, day: date = date(2030, 1, 1)) -> None: ...

    first, second = send.enqueue(1, to="ada"), send.enqueue(2, to="ada", day=date(2031, 1, 1))
    assert manual.enqueued(send) == [first, second]
    assert manual.enqueued(send, to="ada") == [first, second]
    assert manual.enqueued(send, order_id=2, to="ada") == [second]
    assert manual.enqueued("send", order_id=3) == []
    assert manual.enqueued(send, day=date(2030, 1, 1)) == [first]
    manual.run_until_idle()
    (found,) = manual.enqueued(send, order_id=1)
    assert found.state == "completed"
    with pytest.raises(NoSuchParameter, match="'send' takes no 'oder_id'"):
        manual.enqueued(send, oder_id=1)


# --- the block ----------------------------------------------------------------------------------


def test_the_app_goes_back_to_its_own_database(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'own.db'}")

    @app.task
    def note() -> None: ...

    own = note.enqueue()
    with ManualApp(app) as manual:
        assert app.find() == []
        other = note.enqueue()
        with ManualApp(app):
            assert app.find() == []
        assert manual.enqueued(note) == [other]
    assert app.find() == [own]
    app.close()


def test_tasks_of_a_registry_are_rebound_with_their_app(tmp_path: Path) -> None:
    tasks = Registry(prefix="shop.")

    @tasks.task
    def note() -> None: ...

    app = App(f"sqlite:///{tmp_path / 'own.db'}", include=[tasks])
    note.enqueue()
    with ManualApp(app) as manual:
        assert manual.enqueued(note) == []
        note.enqueue()
        assert len(manual.run_until_idle()) == 1
    note.enqueue()
    assert len(app.find()) == 2
    app.close()


def test_a_database_that_is_not_there_is_never_touched(app: App) -> None:
    @app.task
    def note() -> None: ...

    with ManualApp(app) as manual:
        note.enqueue()
        assert len(manual.run_until_idle()) == 1


def test_no_worker_starts_and_closing_loses_nothing(app: App, manual: ManualApp) -> None:
    @app.task
    def note() -> None: ...

    with app.worker() as worker:
        execution = note.enqueue()
        worker.wait_until_idle()
    app.close()  # as a program does at its end
    assert execution.refresh().state == "ready"
    with pytest.raises(RunByATest, match="run_until_idle"):
        app.run_worker(until_idle=True)


def test_after_a_database_that_cannot_be_opened_the_app_is_its_own_again(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'own.db'}")
    with pytest.raises(SettingsError), ManualApp(app, database="mysql://localhost/shop"):
        pass
    assert app.find() == []
    assert (tmp_path / "own.db").exists()
    app.close()


def test_outside_its_block_it_says_so(app: App) -> None:
    manual = ManualApp(app)
    with pytest.raises(NotInUse, match="with ManualApp"):
        manual.run_until_idle()


def test_the_clock_starts_where_the_test_wants_it(app: App) -> None:
    new_year = datetime(2030, 1, 1, tzinfo=UTC)

    @app.task
    def note() -> None: ...

    flow = app.workflow("flow", timeout="1h")

    @flow.task
    def only() -> None: ...

    with ManualApp(app, start=new_year):
        execution = note.enqueue()
        assert execution.created_at == execution.refresh().created_at == new_year
        run = flow.start()
        assert run.created_at == run.refresh().created_at == new_year
        assert flow.start().deadline == run.deadline == new_year + timedelta(hours=1)
