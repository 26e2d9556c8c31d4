"""Workers inside somebody else's process, and in the foreground until nothing is due."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock import App, TaskHandle
from penstock.errors import StoreUnavailable
from penstock.testing import Faults, lose_reply
from tests.support.workers import Place, wait_until

MakeApp = Callable[[], App]
PATIENCE = 10.0
LEASE = 1.0


def test_async_tasks_run_on_the_very_loop_of_an_async_block(make_app: MakeApp) -> None:
    app = make_app()
    loops: list[asyncio.AbstractEventLoop] = []

    @app.task
    async def where() -> int:
        loops.append(asyncio.get_running_loop())
        return threading.get_ident()

    @app.task
    def elsewhere() -> int:
        return threading.get_ident()

    async def serve() -> tuple[int, int]:
        async with app.worker(slots=2):
            first = await where.aenqueue()
            second = await elsewhere.aenqueue()
            return (await first.aresult(timeout=PATIENCE), await second.aresult(timeout=PATIENCE))

    async def main() -> tuple[tuple[int, int], bool]:
        answer = await serve()
        return answer, loops == [asyncio.get_running_loop()]

    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    (on_loop, on_thread), same_loop = asyncio.run(main())
    assert same_loop
    assert on_loop == threading.get_ident() != on_thread
    assert handlers == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))


def test_an_async_block_that_ends_gives_back_what_it_runs(make_app: MakeApp) -> None:
    app = make_app()
    begun = threading.Event()

    @app.task
    async def endless() -> None:
        begun.set()
        await asyncio.sleep(3600)

    execution = endless.enqueue()

    async def main() -> None:
        async with app.worker(grace=0.1):
            await asyncio.to_thread(wait_until, begun.is_set)

    asyncio.run(main())
    assert (execution.refresh().state, execution.attempt) == ("ready", 0)
    assert execution.history()[-1].type == "task.released"
    assert app.store.workers() == []


def test_a_loop_that_ends_under_a_worker_gives_back_what_it_cancels(make_app: MakeApp) -> None:
    app = make_app()
    begun = threading.Event()

    @app.task(retry=None)
    async def endless() -> None:
        begun.set()
        await asyncio.sleep(3600)

    execution = endless.enqueue()

    async def main() -> None:
        async with app.worker(grace=PATIENCE):
            await asyncio.to_thread(wait_until, begun.is_set)
            for one in asyncio.all_tasks():  # as asyncio.run does after a second Ctrl-C
                if one is not asyncio.current_task():
                    one.cancel()

    asyncio.run(main())
    assert (execution.refresh().state, execution.attempt) == ("ready", 0)
    assert execution.history()[-1].type == "task.released"


def test_who_waits_on_the_loop_for_what_only_that_loop_can_run_is_told(
    make_app: MakeApp, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app()

    @app.task
    async def hello() -> str:
        return "hello"

    async def main() -> str:
        async with app.worker():
            execution = await hello.using(run_after=0.2).aenqueue()
            with pytest.raises(TimeoutError):
                execution.result(timeout=1.5)
            return await execution.aresult(timeout=PATIENCE)

    assert asyncio.run(main()) == "hello"
    assert caplog.text.count("write `await ….aresult()`") == 1


def test_a_thread_that_outlives_its_block_keeps_its_lease_and_is_settled_when_it_ends(
    make_app: MakeApp,
) -> None:
    app, observing = make_app(), make_app()
    begun, go = threading.Event(), threading.Event()

    @app.task
    def long(handle: TaskHandle) -> int:
        begun.set()
        go.wait(PATIENCE)
        return handle.attempt

    @observing.task(name="long")
    def never_here(handle: TaskHandle) -> int:
        return -1

    execution = long.enqueue()
    with observing.worker(slots=1, heartbeat=LEASE / 5, lease=LEASE, queues=["elsewhere"]):
        with app.worker(grace=0.1, heartbeat=LEASE / 5, lease=LEASE):
            wait_until(begun.is_set)
        left_at = time.monotonic()
        wait_until(lambda: time.monotonic() - left_at > 2 * LEASE)
        assert execution.refresh().state == "running"
        go.set()
        assert execution.result(timeout=PATIENCE) == 1
        wait_until(lambda: len(app.store.workers()) == 1, what="it leaves when the task has ended")
    assert "task.recovered" not in [event.type for event in execution.history()]


SCRIPT = """
import asyncio, logging, os, sys, time
from penstock import App

logging.basicConfig(level="INFO")
app = App(sys.argv[1], schema=sys.argv[2])

@app.task
def on_a_thread():
    logging.info("begun")
    time.sleep(60)

@app.task
async def on_the_loop():
    logging.info("begun")
    await asyncio.sleep(60)

on_a_thread.enqueue()
on_the_loop.enqueue()
if sys.argv[4] == "until idle":
    app.run_worker(until_idle=True, grace=sys.argv[3])
    logging.info("goes on")
with app.worker(grace=sys.argv[3]):
    while app.counts()["running"] < 2:
        time.sleep(0.01)
    if sys.argv[4] == "fork" and os.fork() == 0:
        sys.exit()
    if sys.argv[4] == "stay":
        logging.info("in the block")
        time.sleep(60)
"""


def run_script(place: Place, *, grace: str, then: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, place.url, place.schema, grace, then],
        stderr=subprocess.PIPE,
        text=True,
    )


def hear(script: subprocess.Popen[str], *words: str) -> None:
    """Read the log of a script until each of these has been said, in this order."""
    assert script.stderr is not None
    for word in words:
        for line in script.stderr:
            if word in line:
                break
        else:
            pytest.fail(f"it has not said {word!r}")


def assert_given_back(app: App) -> None:
    executions = app.find()
    assert [one.state for one in executions] == ["ready", "ready"]
    assert [one.history()[-1].type for one in executions] == ["task.released"] * 2
    assert app.store.workers() == []


def test_a_second_interruption_gives_back_what_runs_in_a_block(
    make_app: MakeApp, place: Place
) -> None:
    app = make_app()
    app.migrate()
    with run_script(place, grace="60s", then="stay") as script:
        hear(script, "in the block")  # an interruption on the way there is another story
        script.send_signal(signal.SIGINT)
        hear(script, "stopping")
        script.send_signal(signal.SIGINT)
        hear(script, "KeyboardInterrupt")

        assert script.wait(PATIENCE) == -signal.SIGINT
    assert_given_back(app)


def test_who_works_until_all_is_done_hears_of_an_interruption(
    make_app: MakeApp, place: Place
) -> None:
    app = make_app()
    app.migrate()
    with run_script(place, grace="100ms", then="until idle") as script:
        hear(script, "begun", "begun")
        script.send_signal(signal.SIGINT)
        hear(script, "given back to run again: 1", "still running on threads", "KeyboardInterrupt")

        assert script.wait(PATIENCE) == -signal.SIGINT
    assert_given_back(app)


@pytest.mark.parametrize("then", ["leave", "fork"])
def test_a_thread_that_its_process_does_not_wait_for_is_given_back(
    make_app: MakeApp, place: Place, then: str
) -> None:
    app = make_app()
    app.migrate()
    with run_script(place, grace="100ms", then=then) as script:
        hear(script, "begun", "begun", "still running on threads")

        assert script.wait(PATIENCE) == 0
    assert_given_back(app)


def test_until_idle_does_all_that_is_due_and_nothing_else(make_app: MakeApp) -> None:
    app = make_app()
    order: list[str] = []

    @app.task
    def follow() -> None:
        order.append("follow-up")

    @app.task(on_success=follow, retry=[0, 0])
    def first(handle: TaskHandle) -> None:
        order.append(f"try {handle.attempt}")
        if handle.attempt < 3:
            raise ConnectionError("not yet")

    @app.task
    async def member(number: int) -> None:
        order.append(f"member {number}")

    first.enqueue()
    for number in range(5):
        member.using(serial="one by one").enqueue(number)
    later = follow.using(run_after="1h").enqueue()
    app.run_worker(until_idle=True, slots=4)

    members = [entry for entry in order if entry.startswith("member")]
    others = [entry for entry in order if not entry.startswith("member")]
    assert members == [f"member {number}" for number in range(5)]
    assert others == ["try 1", "try 2", "try 3", "follow-up"]
    assert later.refresh().state == "scheduled"
    assert app.store.workers() == []


@pytest.mark.parametrize("number", range(5))
def test_until_idle_misses_nothing_that_its_own_work_releases(
    make_app: MakeApp, number: int
) -> None:
    app = make_app()

    @app.task
    def last(execution_id: str) -> str:
        return execution_id

    @app.task(on_success=last)
    def first() -> None: ...

    executions = [first.enqueue() for _ in range(20 * (number + 1))]
    app.run_worker(until_idle=True, slots=1 + number)
    assert app.counts()["completed"] == 2 * len(executions)


def test_queued_work_of_a_former_name_runs(make_app: MakeApp) -> None:
    app, older = make_app(), make_app()

    @app.task(name="send_receipt", aliases=["send_mail", "mail"])
    def send(number: int) -> int:
        return number

    executions = [older.enqueue(name, {"number": 3}) for name in ("send_mail", "mail")]
    app.run_worker(until_idle=True)
    assert [one.result(timeout=PATIENCE) for one in executions] == [3, 3]


def test_until_idle_outlives_a_question_that_nobody_answered(make_app: MakeApp) -> None:
    app = make_app()

    @app.task
    def hello() -> str:
        return "hello"

    execution = hello.enqueue()
    with Faults().at("before_propagate", lose_reply).injected(app) as faults:
        runs = threading.Thread(target=lambda: app.run_worker(until_idle=True), daemon=True)
        runs.start()
        runs.join(PATIENCE)
    assert not runs.is_alive()
    assert faults.happened["before_propagate"] == 1
    assert execution.result(timeout=0) == "hello"


def test_a_worker_that_cannot_register_leaves_nothing_behind(make_app: MakeApp) -> None:
    app = make_app()

    def start() -> None:
        with app.worker():
            pass

    threads = threading.active_count()
    with Faults().at("before_register", lose_reply).injected(app), pytest.raises(StoreUnavailable):
        start()
    assert threading.active_count() == threads
    gc.collect()  # a loop that nobody closed says so then
    start()


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"heartbeat": 0}, r"heartbeat=0 .* Give 10ms or more"),
        ({"poll": "1ms"}, r"poll='1ms' .* Give 10ms or more"),
        ({"lease": "5s"}, r"lease='5s' .* twice the heartbeat, which is 3s"),
        ({"lease": "soon"}, r"lease='soon' .* Give seconds"),
        ({"slot": 3}, r"slot=3 .* There are grace, heartbeat, lease"),
    ],
)
def test_a_worker_with_impossible_options_is_refused_by_name(
    make_app: MakeApp, choices: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said), make_app().worker(**choices):
        pass
