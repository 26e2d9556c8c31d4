# pyright: strict
"""Workflows as users write them, and both type checkers accept them, with no driver installed."""

import sqlite3
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, assert_type

from penstock import (
    App,
    AsyncTaskHandle,
    Condition,
    Context,
    Event,
    Execution,
    Registry,
    Run,
    TaskHandle,
    Workflow,
    WorkflowTask,
    all_done,
    failed,
    skipped,
    succeeded,
    value,
)

app = App()
tasks = Registry(prefix="shop.")


@dataclass
class Daily:
    day: str
    pages: int = 1


class Pair(NamedTuple):
    left: int
    right: str


@app.task
def tell(execution_id: str) -> None:
    del execution_id


# --- declarations -------------------------------------------------------------------------

daily = app.workflow("daily_orders", inputs=Daily, timeout="1h", on_failure=tell)
plain = tasks.workflow("plain")
paired = tasks.workflow("paired", inputs=Pair, on_success=tell)
of_any: Workflow[...] = daily


@daily.task
def fetch(day: str) -> list[int]:
    return [len(day)]


@daily.task
async def total(ids: list[int] = fetch.output) -> int:
    return sum(ids)


@daily.task(after=[fetch, "total"], queue="reports", retry=["1m"], timeout="30s")
def stamp(context: Context) -> None:
    context["stamped"] = True


@daily.task(after=[total, stamp], when=failed(total) | value("stamped").exists())
def report(handle: TaskHandle, day: str, sum_: int | None = total.output) -> str:
    return f"{day} {sum_} {handle.attempt}"


@daily.task(after=[report], when=all_done & ~skipped("stamp"), name="last", aliases=["final"])
async def close(handle: AsyncTaskHandle) -> None:
    await handle.progress(1.0)


assert_type(fetch("monday"), list[int])
assert_type(fetch.output, list[int])
assert_type(total.output, int)
assert_type(report.output, str)
of_report: WorkflowTask[str, ..., Any] = report

# --- conditions ---------------------------------------------------------------------------

assert_type(value("n") == 3, Condition)
assert_type(value("n") != "text", Condition)
assert_type(value("n") < 3, Condition)
assert_type((value("n") >= 3) & succeeded(fetch), Condition)
assert_type(value("n").in_(["a", "b"]), Condition)
assert_type(value("n").in_({1, 2}), Condition)
assert_type(~value("n").contains("a"), Condition)

# --- starting -----------------------------------------------------------------------------

run = daily.start(day="monday")
assert_type(run, Run)
assert_type(daily.start("monday", 3), Run)
assert_type(plain.start(), Run)
assert_type(paired.start(left=1, right="2"), Run)
connection = sqlite3.connect(":memory:")
assert_type(daily.using(connection=connection).start(day="monday"), Run)
assert_type(daily.using(connection=connection, notify=False).start(day="monday"), Run)


async def start_on_a_loop() -> None:
    assert_type(await daily.astart(day="monday"), Run)
    assert_type(await (await daily.aget(run.id)).aresult(timeout=5), dict[str, Any])
    await run.apause()
    await run.aresume()
    await run.acancel("no longer wanted")
    await run.arerun(from_failed=True)


# --- looking ------------------------------------------------------------------------------

assert_type(run.result(timeout=5), dict[str, Any])
assert_type(run[total], Execution[int])
assert_type(run[total].result(), int)
assert_type(run[report].result(), str)
assert_type(run["total"], Execution[Any])
assert_type(run.tasks["total"].state == "ready", bool)
assert_type(run.state, Literal["running", "paused", "completed", "failed", "cancelled"])
assert_type(run.history(), list[Event])
assert_type(run.context, dict[str, Any])
assert_type(daily.find(state="failed", limit=3), list[Run])
assert_type(app.find_runs(workflow=daily), list[Run])
assert_type(daily.graph(), str)
found = app.get(run.id)
if isinstance(found, Run):
    assert_type(found, Run)
