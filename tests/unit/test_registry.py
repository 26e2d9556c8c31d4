"""Which tasks there are: names, former names, what replaces and what is refused."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import App, GiveUp, Registry, Retry, Task, UnknownTask
from penstock.errors import NotBound
from penstock.model.retry import DEFAULT_RETRY
from penstock.registry import NameTaken, RegistryTaken


def send(order_id: int, to: str = "somebody") -> str:
    """Send a receipt."""
    return f"sent {order_id} to {to}"


def another(order_id: int) -> int:
    return order_id


async def later(order_id: int) -> int:
    return order_id


def new_version_of(name: str) -> Callable[..., Any]:
    """Return what a reload or a notebook makes: another object of the same module and name."""
    scope: dict[str, Any] = {"__name__": __name__}
    exec(f"def {name}(order_id: int) -> int: return -order_id", scope)  # noqa: S102
    function: Callable[..., Any] = scope[name]
    return function


def test_a_task_is_called_like_its_function() -> None:
    registry = Registry()
    task = registry.task(send)
    assert task.name == "send"
    assert registry.get("send") is task
    assert list(registry) == [task]
    assert "send" in registry
    assert "other" not in registry


def test_a_name_can_be_fixed_and_a_prefix_stands_before_it() -> None:
    registry = Registry(prefix="shop.")
    assert registry.task(name="receipt")(send).name == "shop.receipt"
    assert registry.task(another).name == "shop.another"
    assert registry.names() == ["shop.receipt", "shop.another"]


def test_one_function_can_be_two_tasks() -> None:
    registry = Registry()
    slow, fast = registry.task(name="slow")(send), registry.task(name="fast", queue="fast")(send)
    assert [slow.options.queue, fast.options.queue] == ["default", "fast"]


def test_a_former_name_leads_to_the_task_of_today() -> None:
    registry = Registry()
    task = registry.task(aliases=["mail_receipt", "post_receipt"])(send)
    assert registry.get("mail_receipt") is registry.get("post_receipt") is task
    assert "mail_receipt" in registry
    assert registry.names() == ["send", "mail_receipt", "post_receipt"]


def test_a_former_name_is_known_with_the_prefix_and_without() -> None:
    registry = Registry(prefix="shop.")
    task = registry.task(name="receipt", aliases=["send"])(send)
    assert registry.get("shop.send") is registry.get("send") is task
    assert registry.names() == ["shop.receipt", "shop.send", "send"]


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    registry = Registry()
    registry.task(send)
    with pytest.raises(UnknownTask, match="Did you mean 'send'"):
        registry.get("sent")
    with pytest.raises(UnknownTask, match="Name the module that defines it with --import, or in"):
        registry.get("no_such_thing")


# --- declared again -------------------------------------------------------------------------


def test_the_same_function_declared_again_replaces_the_one_before_it() -> None:
    registry = Registry()
    registry.task(name="send", aliases=["old"])(send)
    newer = registry.task(queue="mail", aliases=["older"])(new_version_of("send"))
    assert registry.get("send") is newer
    assert registry.names() == ["send", "older"]
    assert newer(42) == -42


def test_another_function_of_that_name_is_refused_and_both_places_are_named() -> None:
    registry = Registry()
    first = registry.task(send)
    with pytest.raises(NameTaken) as refused:
        registry.task(name="send")(another)
    error = refused.value
    assert error.name == "send"
    assert error.first == f"{__name__}.send ({__file__}:{send.__code__.co_firstlineno})"
    assert error.second == f"{__name__}.another ({__file__}:{another.__code__.co_firstlineno})"
    assert error.first in str(error)
    assert error.second in str(error)
    assert 'another name with @task(name="…")' in str(error)
    assert registry.get("send") is first


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"aliases": ["mail"]}, {"name": "mail"}),
        ({"name": "mail"}, {"aliases": ["mail"]}),
        ({"aliases": ["mail"]}, {"aliases": ["mail"]}),
    ],
)
def test_a_former_name_cannot_be_another_functions(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    registry = Registry()
    registry.task(**first)(send)
    with pytest.raises(NameTaken, match="'mail'"):
        registry.task(**second)(another)
    assert len(list(registry)) == 1


# --- what a declaration keeps ---------------------------------------------------------------


def test_a_task_without_options_has_the_documented_defaults() -> None:
    options = Registry().task(send).options
    assert (options.queue, options.priority, options.timeout) == ("default", 0, None)
    assert options.retry == DEFAULT_RETRY == Retry.exponential(first="5s", factor=3, cap="1h")
    assert (options.max_crashes, options.max_running, options.aliases) == (3, None, ())
    assert options.executor == "thread"
    assert Registry().task(later).options.executor == "loop"


def test_options_are_kept_in_one_form() -> None:
    options = (
        Registry()
        .task(
            queue="mail",
            priority=-5,
            retry=["1m", 300],
            timeout="30s",
            executor="process",
            max_crashes=1,
            max_running=2,
        )(send)
        .options
    )
    assert options.retry == Retry(delays=[timedelta(minutes=1), timedelta(minutes=5)])
    assert options.timeout == timedelta(seconds=30)
    assert (options.queue, options.priority, options.executor) == ("mail", -5, "process")
    assert (options.max_crashes, options.max_running) == (1, 2)
    assert Registry().task(retry=None)(send).options.retry.delays == ()


def test_a_plain_call_runs_the_function_and_looks_like_it() -> None:
    task = Registry().task(send)
    assert task(42, to="x") == "sent 42 to x"
    assert isinstance(task, Task)
    assert (getattr(task, "__name__", None), task.__doc__) == ("send", "Send a receipt.")
    assert repr(task) == "<TaskFunction 'send'>"
    assert asyncio.run(Registry().task(later)(42)) == 42


def test_a_plain_call_raises_what_the_function_raises() -> None:
    @Registry().task
    def fails() -> None:
        raise GiveUp("no such order")

    with pytest.raises(GiveUp, match="no such order"):
        fails()


# --- without an App -------------------------------------------------------------------------


def test_a_task_that_no_app_includes_cannot_be_enqueued_and_says_what_to_do() -> None:
    task = Registry(prefix="shop.").task(send)
    with pytest.raises(NotBound, match=r"'shop\.send'.*App\(url, include=\[registry\]\)"):
        task.enqueue(42)
    with pytest.raises(NotBound):
        task.get("0197a000-0000-7000-8000-000000000000")
    with pytest.raises(NotBound):
        asyncio.run(task.aenqueue(42))


def test_the_arguments_are_checked_without_an_app_all_the_same() -> None:
    task = Registry().task(send)
    assert task.request(42, to="x").new.args == '{"order_id":42,"to":"x"}'
    with pytest.raises(TypeError, match="order_id"):
        task.enqueue("forty-two")  # type: ignore[arg-type]


def test_a_task_of_a_closed_app_opens_it_again() -> None:
    registry = Registry()
    task = registry.task(send)
    app = App("sqlite:///:memory:", include=[registry])
    task.enqueue(42)
    app.close()
    assert task.enqueue(42).created
    app.close()


def test_a_closed_app_cannot_have_back_what_another_app_has_taken() -> None:
    registry = Registry()
    task = registry.task(send)
    first = App("sqlite:///:memory:", include=[registry])
    first.close()
    second = App("sqlite:///:memory:", include=[registry])
    with pytest.raises(RegistryTaken, match="Close that App first"):
        first.counts()
    task.enqueue(42)
    assert second.counts()["ready"] == 1
    second.close()
