# mypy: ignore-errors
"""Mistakes with workflows: each marked line is an error in both type checkers, no other is.

The line above this text keeps the project's own check quiet; the samples are checked without it.
"""

import sqlite3
from dataclasses import dataclass

from penstock import App, Context, all_done, failed, value

app = App()


@dataclass
class Daily:
    day: str


@app.task
def plain(n: int) -> int:
    return n


daily = app.workflow("daily_orders", inputs=Daily)
empty = app.workflow("empty")


@daily.task
def fetch(day: str) -> list[int]:
    return [len(day)]


# --- starting -----------------------------------------------------------------------------

daily.start()  # error
daily.start(3)  # error
daily.start(day=3)  # error
daily.start(dey="monday")  # error
empty.start(day="monday")  # error
daily.using(connection=sqlite3.connect(":memory:")).astart(day="monday")  # error
daily.using(connection="sqlite:///orders.db").start(day="monday")  # error
daily.using(connection=sqlite3.connect(":memory:"), priority=3).start(day="monday")  # error
app.workflow("bad", inputs=3)  # error
app.workflow("bad", on_success=fetch)  # error
app.workflow("bad", timeouts="1h")  # error

# --- tasks --------------------------------------------------------------------------------


@daily.task
def total(ids: list[str] = fetch.output) -> int:  # error
    return len(ids)


@daily.task
def misread(ids: int = fetch.output) -> int:  # error
    return ids


@daily.task(after=fetch)  # error
def single() -> None: ...


@daily.task(after=[plain])  # error
def after_plain() -> None: ...


@daily.task(when="all_done")  # error
def by_text() -> None: ...


@daily.task(when=value("n"))  # error
def by_value() -> None: ...


@daily.task(befor=[fetch])  # error
def misspelt(context: Context) -> None:
    del context["day"]


fetch.enqueue("monday")  # error
fetch.using(priority=3)  # error
fetch(3)  # error

# --- conditions ---------------------------------------------------------------------------

failed(plain)  # error
failed(fetch) | value("n")  # error
joined = all_done | value("n") == 1  # error
value(3)  # error
value("n").in_("text")  # error

# --- results ------------------------------------------------------------------------------

run = daily.start(day="monday")
text: str = run[fetch].result()  # error
run[plain]  # error
number: int = run.result()  # error
daily.find(state="ready")  # error
app.find_runs(state="waiting")  # error
