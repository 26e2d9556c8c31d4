"""Tasks that run for each element of a list, declared and run on both databases."""

import time
from dataclasses import dataclass

import pytest

from penstock import App, WorkflowFailed
from penstock.engine.workflow_errors import InvalidWorkflow
from tests.e2e.flows import PATIENCE, states, work


@dataclass
class Shop:
    name: str


def test_each_element_runs_and_dependents_see_the_list(flows: App) -> None:
    nightly = flows.workflow("nightly", inputs=Shop)

    @nightly.task
    def orders(name: str) -> list[int]:
        return [3, 1, 2]

    @nightly.task(for_each=orders.output)
    async def invoice(number: int, name: str) -> str:
        return f"{name} {number}"

    @nightly.task
    def post(all_of_them: list[str] = invoice.output) -> int:
        return len(all_of_them)

    run = nightly.start(name="shop")
    work(flows)
    assert run.result(timeout=PATIENCE) == {
        "orders": [3, 1, 2],
        "invoice": ["shop 3", "shop 1", "shop 2"],
        "post": 3,
    }
    assert run.refresh()[invoice].result() == ["shop 3", "shop 1", "shop 2"]
    assert flows.get(run[invoice].id).result() == ["shop 3", "shop 1", "shop 2"]
    assert "each number" in nightly.graph()
    assert "for each number of orders" in nightly.graph(form="text")


def test_an_element_that_fails_is_rerun_alone(flows: App) -> None:
    flow = flows.workflow("flow")
    broken = {2}
    seen: list[int] = []

    @flow.task
    def numbers() -> list[int]:
        return [1, 2, 3]

    @flow.task(for_each=numbers.output, retry=None)
    def check(number: int) -> int:
        seen.append(number)
        if number in broken:
            raise ValueError(number)
        return number

    run = flow.start()
    work(flows)
    with pytest.raises(WorkflowFailed, match="1 of 3 elements failed"):
        run.result(timeout=PATIENCE)
    broken.clear()
    assert run.rerun(from_failed=True) == "done"
    work(flows)
    assert run.result(timeout=PATIENCE)["check"] == [1, 2, 3]
    assert sorted(seen) == [1, 2, 2, 3]


def test_ten_thousand_elements_in_one_process(flows: App) -> None:
    flow = flows.workflow("flow")

    @flow.task
    async def numbers() -> list[int]:
        return list(range(10_000))

    @flow.task(for_each=numbers.output)
    async def double(number: int) -> int:
        return 2 * number

    @flow.task
    async def total(all_of_them: list[int] = double.output) -> int:
        return sum(all_of_them)

    begun = time.perf_counter()
    run = flow.start()
    with flows.worker(slots=10):
        assert run.result(timeout=60)["total"] == 99_990_000
    took = time.perf_counter() - begun
    assert took < 30  # 10 s on a machine that has nothing else to do
    assert states(run) == {"numbers": "completed", "double": "completed", "total": "completed"}


def test_what_cannot_run_for_each_is_refused(flows: App) -> None:
    flow = flows.workflow("flow", inputs=Shop)

    @flow.task
    def number() -> int:
        return 1

    @flow.task
    def numbers() -> list[int]:
        return [1]

    with pytest.raises(InvalidWorkflow, match="needs a list, and 'number' returns int"):

        @flow.task(for_each=number.output)  # type: ignore[call-overload, untyped-decorator]
        def of_a_number(item: int) -> None: ...

    with pytest.raises(InvalidWorkflow, match="none of its parameters takes an element"):

        @flow.task(for_each=numbers.output)
        def takes_none(name: str) -> None: ...

    with pytest.raises(ValueError, match="it is no output of a task"):

        @flow.task(for_each=[1, 2])
        def of_a_plain_list(item: int) -> None: ...
