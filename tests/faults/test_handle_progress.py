"""How far a task is: written now and then, and shown to whoever asks."""

import json
import threading
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from penstock import App, AsyncTaskHandle, Execution, TaskHandle
from penstock.cli import commands
from tests.support.workers import Place, wait_until

MakeApp = Callable[[], App]


def show(place: Place, execution: Execution[None], *options: str) -> str:
    answer = CliRunner().invoke(
        commands,
        ["show", execution.id, "--database", place.url, *options],
        env=place.environment,
        catch_exceptions=False,
    )
    assert answer.exit_code == 0, answer.output
    return answer.output


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_progress_is_shown_while_the_task_runs_and_after(
    make_app: MakeApp, place: Place, colour: str
) -> None:
    app, gate = make_app(), threading.Event()

    if colour == "def":

        @app.task
        def work(handle: TaskHandle) -> None:
            for n in range(1000):
                handle.progress(0.25 + n / 10_000, "reading the file")
            handle.defer_until(gate.is_set, every=0.02)
            handle.progress(1.0)

        execution = work.enqueue()
    else:

        @app.task(name="work")
        async def awork(handle: AsyncTaskHandle) -> None:
            for n in range(1000):
                await handle.progress(0.25 + n / 10_000, "reading the file")
            await handle.defer_until(gate.is_set, every=0.02)
            await handle.progress(1.0)

        execution = awork.enqueue()

    with app.worker(slots=1):
        wait_until(lambda: execution.refresh().sub_state == "deferred")
        assert "progress   25%, reading the file\n" in show(place, execution)
        shape = json.loads(show(place, execution, "--json"))
        assert shape["progress"] == {"fraction": 0.25, "note": "reading the file"}
        gate.set()
        execution.result(timeout=10)

    assert "100%\n" in show(place, execution)
    assert not any("progress" in event.type for event in execution.history())


def test_a_task_that_shows_nothing_has_no_progress(make_app: MakeApp, place: Place) -> None:
    app = make_app()

    @app.task
    def work() -> None: ...

    execution = work.enqueue()

    assert "progress" not in show(place, execution)
    assert json.loads(show(place, execution, "--json"))["progress"] is None
