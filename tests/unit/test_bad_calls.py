"""What goes wrong on the first day: each message is one that a newcomer can act on.

Every case lists the words without which the message would not help: what was refused, which one it
was, why, and what to do next. Whatever was refused, nothing was written.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from penstock import App, AsyncTaskHandle, PenstockError, Registry, TaskHandle

NOWHERE = "0197a000-0000-7000-8000-000000000000"

Bad = Callable[[Any], object]  # takes an App, past every type checker


class Customer:
    pass


class Mailer:
    def send(self, order_id: int) -> None: ...


def send(order_id: int, to: str = "somebody") -> str:
    return f"sent {order_id} to {to}"


def other(order_id: int) -> int:
    return order_id


async def later(order_id: int) -> int:
    return order_id


def of_customers(customer: Customer) -> None: ...
def of_any_number(*order_ids: int) -> None: ...
def handle_second(order_id: int, handle: TaskHandle) -> None: ...
def wrong_colour(handle: AsyncTaskHandle) -> None: ...


def declare_twice(app: Any) -> None:  # noqa: ANN401
    app.task(name="receipt")(send)
    app.task(name="receipt")(other)


DECLARATIONS: dict[str, tuple[Bad, list[str]]] = {
    "one delay instead of a list": (
        lambda app: app.task(retry="1m")(send),
        ["retry='1m'", "a text is one delay, not a list", "Write ['1m']"],
    ),
    "a delay that is none": (
        lambda app: app.task(retry=["1m", "soon"])(send),
        ["retry[1]='soon'", "no number starts", "'1m30s'"],
    ),
    "a number of retries": (
        lambda app: app.task(retry=3)(send),
        ["retry=3", "not a list of delays", "one delay for each retry"],
    ),
    "a timeout that is none": (
        lambda app: app.task(timeout="soon")(send),
        ["timeout='soon'", "no number starts at 'soon'", "'1m30s'"],
    ),
    "a timeout of nothing": (
        lambda app: app.task(timeout=0)(send),
        ["timeout=0", "no task can end in no time", "Leave it out"],
    ),
    "an option that there is not": (
        lambda app: app.task(que="mail")(send),
        ["que='mail'", "no such option", "There are name, queue"],
    ),
    "an option beside the function": (
        lambda app: app.task(send, retries=3),
        ["retries=3", "no such option", "retry"],
    ),
    "a queue without a name": (
        lambda app: app.task(queue="")(send),
        ["queue=''", "between 1 and 200 characters"],
    ),
    "a queue that is no text": (
        lambda app: app.task(queue=7)(send),
        ["queue=7", "must be a str", "str(…)"],
    ),
    "a priority with a fraction": (
        lambda app: app.task(priority=1.5)(send),
        ["priority=1.5", "whole number", "Higher goes first"],
    ),
    "an executor that there is not": (
        lambda app: app.task(executor="fiber")(send),
        ["executor='fiber'", "in a thread or in a process", 'executor="process"'],
    ),
    "an async task in a process": (
        lambda app: app.task(executor="process")(later),
        ["executor='process'", "an `async def` task on the loop", "Leave it out"],
    ),
    "no crash allowed": (
        lambda app: app.task(max_crashes=0)(send),
        ["max_crashes=0", "at least 1", "Leave it out for the default"],
    ),
    "more crashes than a database can count": (
        lambda app: app.task(max_crashes=2**31)(send),
        ["max_crashes=2147483648", "at most 31 bits", "Leave it out for the default"],
    ),
    "a former name not in a list": (
        lambda app: app.task(aliases="old_name")(send),
        ["aliases='old_name'", "list of names", 'aliases=["old_name"]'],
    ),
    "a name given as if it were the function": (
        lambda app: app.task("send"),
        ["'send' cannot be a task", "a str", 'as in `@app.task(name="…")`'],
    ),
    "a lambda": (
        lambda app: app.task(lambda order_id: order_id),
        ["lambda has no name", 'name="…"'],
    ),
    "a method": (
        lambda app: app.task(Mailer().send),
        ["'send' cannot be a task", "its object is not stored", "function at module level"],
    ),
    "arguments without names": (
        lambda app: app.task(of_any_number),
        ["'of_any_number'", "*order_ids has no names", "order_ids: list[int]"],
    ),
    "a handle that is not first": (
        lambda app: app.task(handle_second),
        ["'handle_second'", "not the first", "(handle: TaskHandle, …)"],
    ),
    "a handle of the wrong colour": (
        lambda app: app.task(wrong_colour),
        ["'wrong_colour'", "plain `def`", "Annotate it with TaskHandle"],
    ),
    "two functions of one name": (
        declare_twice,
        ["'receipt'", "test_bad_calls.send", "test_bad_calls.other", "another name"],
    ),
    "a timeout in words": (
        lambda app: app.task(timeout="5 minutes")(send),
        ["timeout='5 minutes'", "here it is written '5m'", "'1m30s'"],
    ),
    "a delay in words": (
        lambda app: app.task(retry=["1 hour and 30 mins"])(send),
        ["retry[0]='1 hour and 30 mins'", "here it is written '1h30m'", "'1m30s'"],
    ),
    "a prefix that cannot be printed": (
        lambda _app: Registry(prefix="shop\n"),
        [r"prefix='shop\n'", "cannot be printed", "letters, digits"],
    ),
    "a module included that is not there": (
        lambda _app: App(include=["shop.no_such"]).import_included(),
        ["include='shop.no_such'", "there is no module 'shop'", "as an import would"],
    ),
    "something included that is no registry": (
        lambda _app: App(include=[send]),  # type: ignore[list-item]
        ["include=<function send", "neither a Registry nor the name of a module", "include=["],
    ),
}

CALLS: dict[str, tuple[Bad, list[str]]] = {
    "a value of the wrong type": (
        lambda app: app.tasks["send"].enqueue("forty-two"),
        ["'send'", "order_id='forty-two'", "does not fit int", "It takes order_id: int"],
    ),
    "an argument too few": (
        lambda app: app.tasks["send"].enqueue(),
        ["'send'", "'order_id' must be given", "It takes order_id: int"],
    ),
    "an argument too many": (
        lambda app: app.tasks["send"].enqueue(1, "x", 3),
        ["'send'", "3 arguments were given by position, and it takes 2"],
    ),
    "an argument misspelt": (
        lambda app: app.tasks["send"].enqueue(1, too="x"),
        ["no parameter 'too'", "did you mean 'to'?"],
    ),
    "an argument that cannot be stored": (
        lambda app: app.tasks["send"].enqueue(1, to=Customer()),
        ["'send'", "to=<", "cannot be stored", "dataclasses"],
    ),
    "an annotation that cannot be stored": (
        lambda app: app.task(of_customers).enqueue(Customer()),
        ["'of_customers'", "Customer, which JSON cannot hold", "pass its id"],
    ),
    "a connection among the arguments": (
        lambda app: app.tasks["send"].enqueue(1, connection=sqlite3.connect(":memory:")),
        ["no parameter 'connection'", "`.using(connection=…).enqueue(…)`", "Nothing was written"],
    ),
    "an option among the arguments": (
        lambda app: app.tasks["send"].enqueue(1, priority=5),
        ["no parameter 'priority'", "`.using(priority=…).enqueue(…)`"],
    ),
    "a moment among the arguments, by the name of elsewhere": (
        lambda app: app.tasks["send"].enqueue(1, run_at="10m"),
        ["no parameter 'run_at'", "`.using(run_after=…).enqueue(…)`"],
    ),
    "a retry policy among the arguments": (
        lambda app: app.tasks["send"].enqueue(1, retry=["1m"]),
        ["no parameter 'retry'", "`@app.task(retry=…)` declares it"],
    ),
    "an option where the code is known by name": (
        lambda app: app.enqueue("send", {"order_id": 1, "eta": "10m"}),
        ["no parameter 'eta'", "`.using(run_after=…).enqueue(…)`"],
    ),
    "delay, as elsewhere": (
        lambda app: app.tasks["send"].delay(1),
        ["'send'", "no `delay`", "`.enqueue(…)`"],
    ),
    "apply_async, as elsewhere": (
        lambda app: app.tasks["send"].apply_async((1,), countdown=10),
        ["'send'", "no `apply_async`", "`.using(…).enqueue(…)`"],
    ),
    "apply_async behind using": (
        lambda app: app.tasks["send"].using(priority=1).apply_async((1,)),
        ["'send'", "no `apply_async`"],
    ),
    "a moment without a time zone": (
        lambda app: app.tasks["send"].using(run_after=datetime(2040, 1, 1)).enqueue(1),  # noqa: DTZ001
        ["run_after=datetime", "another moment on every machine", "datetime.now(UTC)"],
    ),
    "a delay that is none": (
        lambda app: app.tasks["send"].using(run_after="tomorrow").enqueue(1),
        ["run_after='tomorrow'", "no number starts", "'1m30s'"],
    ),
    "a delay into the past": (
        lambda app: app.tasks["send"].using(run_after=-1).enqueue(1),
        ["run_after=-1", "negative", "timedelta"],
    ),
    "an option that there is not": (
        lambda app: app.tasks["send"].using(delay="10m").enqueue(1),
        ["delay='10m'", "no such option", "run_after", "connection"],
    ),
    "a key that is no text": (
        lambda app: app.tasks["send"].using(key=42).enqueue(1),
        ["key=42", "must be a str", "str(…)"],
    ),
    "a key of a whole document": (
        lambda app: app.tasks["send"].using(key="x" * 1000).enqueue(1),
        ["key=", "between 1 and 200", "hash what is long"],
    ),
    "a priority in words": (
        lambda app: app.tasks["send"].using(priority="high").enqueue(1),
        ["priority='high'", "whole number", "0 is the default"],
    ),
    "an engine for a connection": (
        lambda app: app.tasks["send"].using(connection=create_engine("sqlite://")).enqueue(1),
        ["a sqlalchemy.Engine", "no transaction itself", "with engine.begin() as connection"],
    ),
    "an async engine for a connection": (
        lambda app: asyncio.run(
            app.tasks["send"]
            .using(connection=create_async_engine("sqlite+aiosqlite://"))
            .aenqueue(1)
        ),
        ["a sqlalchemy.AsyncEngine", "no transaction", "async with engine.begin() as connection"],
    ),
    "a URL for a connection": (
        lambda app: app.tasks["send"].using(connection="sqlite:///orders.db").enqueue(1),
        ["`connection=` was given a str", "no connection that we know", "Pass a connection"],
    ),
    "no connection for a connection": (
        lambda app: app.tasks["send"].using(connection=None).enqueue(1),
        ["`connection=` was given None", "Pass a connection"],
    ),
    "a connection to another file": (
        lambda app: app.tasks["send"].using(connection=sqlite3.connect(":memory:")).enqueue(1),
        ["without Penstock tables", "the database that the app was configured with"],
    ),
    "a task that no app includes": (
        lambda _app: Registry().task(send).enqueue(1),
        ["'send'", "no App includes", "include=[registry]"],
    ),
    "arguments by position and by name": (
        lambda app: app.enqueue("send", [1, "x"]),
        ["'send'", "[1, 'x'] is not a dict of arguments by name"],
    ),
    "arguments without names, and without the code": (
        lambda app: app.enqueue("resize", [1]),
        ["arguments=[1]", "arguments go by name", '{"name": value}'],
    ),
    "a task without a name": (
        lambda app: app.enqueue("", {}),
        ["task=''", "between 1 and 200"],
    ),
    "a task for its name": (
        lambda app: app.enqueue(app.tasks["send"], {"order_id": 1}),
        ["task=<TaskFunction 'send'>", "must be a str", "task.enqueue"],
    ),
    "a task instead of its request": (
        lambda app: app.enqueue_many([app.tasks["send"].request(1), app.tasks["send"]]),
        ["requests[1]=<TaskFunction 'send'>", "no request", "task.request(…)"],
    ),
    "one request instead of many": (
        lambda app: app.enqueue_many(app.tasks["send"].request(1)),
        ["requests=", "no list of requests", "[task.request(…)"],
    ),
    "a state that there is not": (
        lambda app: app.find(state="done"),
        ["state='done'", "no such state", "completed"],
    ),
    "a limit of nothing": (
        lambda app: app.find(limit=0),
        ["limit=0", "at least 1", "the newest 100"],
    ),
    "a name that is not UTF-8": (
        lambda app: app.find(task="send\udcff"),
        ["task='send\\udcff'", "no text in UTF-8", "Leave those characters out"],
    ),
    "a queue that is not UTF-8": (
        lambda app: app.find(queue="\udcff"),
        ["queue='\\udcff'", "no text in UTF-8"],
    ),
    "a key with a NUL": (
        lambda app: app.find(key="a\0"),
        ["key='a\\x00'", "no database takes the character NUL", "Leave those characters out"],
    ),
    "a workflow that is not UTF-8": (
        lambda app: app.find_runs(workflow="\udcff"),
        ["workflow='\\udcff'", "no text in UTF-8"],
    ),
    "an id that is none": (
        lambda app: app.get("42"),
        ["'42'", "not a UUID"],
    ),
    "an id that nobody has": (
        lambda app: app.get(NOWHERE),
        [NOWHERE, "No execution", "retention", "penstock list"],
    ),
}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.chdir(tmp_path)
    app = App(f"sqlite:///{tmp_path / 'orders.db'}")
    yield app
    app.close()


def refused(bad: Bad, app: App) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        bad(app)
    return caught.value


@pytest.mark.parametrize(("bad", "words"), DECLARATIONS.values(), ids=DECLARATIONS)
def test_a_bad_declaration_says_what_to_do_and_declares_nothing(
    app: App, bad: Bad, words: list[str]
) -> None:
    known = {"receipt"} if bad is declare_twice else set()
    message = str(refused(bad, app))
    assert [word for word in words if word not in message] == [], message
    assert message.endswith((".", "?"))
    assert app.tasks.keys() == known
    assert set(app.counts().values()) == {0}


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
@pytest.mark.parametrize(("bad", "words"), CALLS.values(), ids=CALLS)
def test_a_bad_call_says_what_to_do_and_writes_nothing(
    app: App, bad: Bad, words: list[str]
) -> None:
    app.task(send)
    message = str(refused(bad, app))
    assert [word for word in words if word not in message] == [], message
    assert message.endswith((".", "?"))
    assert set(app.counts().values()) == {0}
    assert app.find() == []


def test_there_are_enough_of_each() -> None:
    assert min(len(DECLARATIONS), len(CALLS)) >= 15
