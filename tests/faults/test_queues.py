"""What runs when: limits, priorities, turns between queues, pauses."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock import App
from penstock.engine.runner import MOST_IN_STOCK
from tests.support.workers import wait_until

MakeApp = Callable[[], App]
PATIENCE = 10.0


class Crowd:
    """Counts how many are inside at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self.most = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1


def test_four_tasks_on_four_slots_take_as_long_as_one(make_app: MakeApp) -> None:
    app = make_app()

    @app.task
    def long() -> None:
        time.sleep(1)

    with app.worker(slots=4):
        begun = time.monotonic()
        for execution in [long.enqueue() for _ in range(4)]:
            execution.result(timeout=PATIENCE)
    assert time.monotonic() - begun < 1.5


def test_no_more_of_a_task_run_than_it_says_and_the_next_begins_when_one_ends(
    make_app: MakeApp,
) -> None:
    app, stranger = make_app(), make_app()
    crowd, others = Crowd(), Crowd()

    @app.task(max_running=2, aliases=["old_name"])
    def limited() -> None:
        with crowd.one_more():
            time.sleep(0.1)

    @app.task
    def free() -> None:
        with others.one_more():
            time.sleep(0.1)

    executions = [limited.enqueue() for _ in range(5)]
    executions += [stranger.enqueue("old_name") for _ in range(5)]
    executions += [free.enqueue() for _ in range(5)]
    with app.worker(slots=10):
        begun = time.monotonic()
        for execution in executions:
            execution.result(timeout=PATIENCE)
    assert crowd.most == 2
    assert others.most > 2
    assert time.monotonic() - begun < 3


def test_a_limited_task_gets_its_turn_among_many_others(make_app: MakeApp) -> None:
    app = make_app()
    order: list[str] = []

    @app.task
    def common() -> None:
        order.append("common")

    @app.task(max_running=1)
    def rare() -> None:
        order.append("rare")

    app.enqueue_many([common.request() for _ in range(200)])
    rare.enqueue()
    app.enqueue_many([common.request() for _ in range(MOST_IN_STOCK + 500)])
    with app.worker(slots=2) as worker:
        worker.wait_until_idle()
    assert len(order) == 200 + 1 + MOST_IN_STOCK + 500
    assert order.index("rare") < 200 + MOST_IN_STOCK


def test_urgent_tasks_come_first_and_equals_in_their_order(make_app: MakeApp) -> None:
    app = make_app()
    order: list[int] = []

    @app.task
    def note(number: int) -> None:
        order.append(number)

    for number, priority in enumerate([0, 0, 5, -1, 5, 0]):
        note.using(priority=priority).enqueue(number)
    with app.worker(slots=1) as worker:
        worker.wait_until_idle()
    assert order == [2, 4, 0, 1, 5, 3]


def test_busy_queues_take_turns(make_app: MakeApp) -> None:
    """Also beside a task that is limited, and therefore claimed by itself."""
    app = make_app()
    order: list[str] = []

    @app.task(queue="left")
    def left() -> None:
        order.append("left")
        time.sleep(0.005)

    @app.task(queue="right")
    def right() -> None:
        order.append("right")
        time.sleep(0.005)

    @app.task(queue="right", max_running=1)
    def limited() -> None:
        order.append("limited")

    app.enqueue_many([left.request() for _ in range(100)])
    app.enqueue_many([right.request() for _ in range(100)])
    with app.worker(slots=2, queues=["left", "right"]) as worker:
        worker.wait_until_idle()
    early = order[:100]
    assert min(early.count("left"), early.count("right")) >= 20


def test_a_paused_queue_rests_for_all_workers_and_goes_on_at_once(make_app: MakeApp) -> None:
    app, other = make_app(), make_app()

    @app.task(queue="mail")
    def send() -> str:
        return "sent"

    @app.task(queue="default")
    def work() -> str:
        return "worked"

    @other.task(queue="mail", name="send")
    def send_too() -> str:
        return "sent"

    with app.worker(), other.worker():
        assert app.store.pause("mail")
        mails = [send.enqueue() for _ in range(5)]
        assert [work.enqueue().result(timeout=PATIENCE) for _ in range(5)] == ["worked"] * 5
        assert {mail.refresh().state for mail in mails} == {"ready"}

        assert app.store.unpause("mail")
        begun = time.monotonic()
        assert [mail.result(timeout=PATIENCE) for mail in mails] == ["sent"] * 5
        assert time.monotonic() - begun < 2


def test_a_worker_leaves_alone_what_it_does_not_know(make_app: MakeApp) -> None:
    app, stranger = make_app(), make_app()

    @app.task
    def known() -> str:
        return "done"

    unknown = [stranger.enqueue("from_the_next_release") for _ in range(3)]
    executions = [known.enqueue() for _ in range(3)]
    with app.worker(slots=1) as worker:
        assert [one.result(timeout=PATIENCE) for one in executions] == ["done"] * 3
        worker.wait_until_idle()
    for one in unknown:
        assert [event.type for event in one.history()] == ["task.created", "task.marked_ready"]


def test_long_tasks_in_every_slot_leave_the_others_in_the_queue(make_app: MakeApp) -> None:
    """Work in stock would only be claimed and given back, again and again."""
    app = make_app()
    go = threading.Event()
    inside = Crowd()

    @app.task
    def long() -> None:
        with inside.one_more():
            go.wait(PATIENCE)

    executions = [long.enqueue() for _ in range(40)]
    with app.worker(slots=30):
        wait_until(lambda: inside.most == 30)
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() - begun > 0.5)
        go.set()
        for execution in executions:
            execution.result(timeout=PATIENCE)
    released = [
        event.type for one in executions for event in one.history() if "released" in event.type
    ]
    assert released == []
