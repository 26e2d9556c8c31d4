"""Tasks that wait for a slot: who is next."""

from datetime import UTC, datetime

from penstock import App
from penstock.engine.attempts import Attempt
from penstock.engine.stock import Stock
from penstock.model.executions import Claimed, Lease

app = App("sqlite://")


@app.task
def work() -> None: ...


def claimed(queue: str, number: int, *, received_at: float = 0.0) -> Attempt:
    one = Claimed(
        lease=Lease(f"{queue}{number}", 1, "worker"),
        task="work",
        args="{}",
        queue=queue,
        priority=0,
        seq=number,
        attempt=1,
        retries=0,
        crashes=0,
        suspect=False,
        serial=None,
        has_follow_ups=False,
        claimed_at=datetime(2025, 1, 1, tzinfo=UTC),
    )
    return Attempt(one, app.tasks["work"], received_at)


def all_in_order(stock: Stock) -> list[str]:
    return [stock.pop().id for _ in range(len(stock))]


def test_queues_take_turns_and_each_keeps_its_order() -> None:
    stock = Stock()
    stock.add([claimed("a", n) for n in range(3)])
    stock.add([claimed("b", n) for n in range(2)])
    assert stock.queues == {"a": 3, "b": 2}
    assert all_in_order(stock) == ["a0", "b0", "a1", "b1", "a2"]
    assert stock.queues == {}


def test_a_task_waits_behind_one_task_of_each_other_queue() -> None:
    stock = Stock()
    stock.add([claimed("a", n) for n in range(500)])
    stock.add([claimed("b", n) for n in range(500)])
    stock.pop()
    stock.add([claimed("c", 0)])
    assert [stock.pop().id for _ in range(3)] == ["b0", "a1", "c0"]


def test_what_has_waited_too_long_is_taken_out_and_the_rest_stays() -> None:
    stock = Stock()
    stock.add([claimed("a", 0, received_at=1.0), claimed("b", 0, received_at=2.0)])
    stock.add([claimed("a", 1, received_at=3.0)])
    assert [attempt.id for attempt in stock.take_received_until(2.0)] == ["a0", "b0"]
    assert len(stock) == 1
    assert all_in_order(stock) == ["a1"]
