"""How tasks are declared and called: what is refused, and with which words."""

import functools
import math
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import pytest

from penstock.engine.signatures import (
    ArgumentsDoNotFit,
    Colour,
    InvalidArguments,
    InvalidResult,
    InvalidTask,
    ResultDoesNotFit,
    TaskSignature,
)
from penstock.errors import PenstockError
from penstock.model.payloads import InvalidPayload


class TaskHandle:
    pass


class AsyncTaskHandle:
    pass


class Customer:
    pass


@dataclass
class Line:
    sku: str
    count: int


@dataclass
class Order:
    lines: list[Line]


class Mailer:
    def send(self, order_id: int) -> None: ...

    @classmethod
    def build(cls, order_id: int) -> None: ...

    @staticmethod
    def plain(order_id: int) -> int:
        return order_id

    def __call__(self, order_id: int) -> None: ...


Handle = TaskHandle  # an alias, as `import TaskHandle as Handle` makes one
HANDLES: dict[type, Colour] = {TaskHandle: Colour.SYNC, AsyncTaskHandle: Colour.ASYNC}


def signature_of(function: Callable[..., object], name: str | None = None) -> TaskSignature:
    own_name = str(getattr(function, "__name__", "task"))
    return TaskSignature(function, name=name or own_name, handle_types=HANDLES)


def send_receipt(order_id: int, to: str, copies: int = 1) -> str:
    return f"sent {order_id} to {to}"


def handle_second(order_id: int, handle: TaskHandle) -> None: ...
def handle_by_keyword(*, handle: TaskHandle) -> None: ...
def two_handles(handle: TaskHandle, other: TaskHandle) -> None: ...
def wrong_colour(handle: AsyncTaskHandle) -> None: ...
async def wrong_colour_async(handle: TaskHandle) -> None: ...
async def wrong_colour_text(handle: "penstock.TaskHandle") -> None: ...  # type: ignore[name-defined] # noqa: F821
def optional_handle(handle: TaskHandle | None) -> None: ...
def optional_text(handle: "TaskHandle | None") -> None: ...
def any_number(*items: int) -> None: ...
def items(count: int) -> Iterator[int]:
    yield count


async def async_items(count: int) -> AsyncIterator[int]:
    yield count


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (handle_second, ["'handle'", "first", "(handle: TaskHandle, …)"]),
        (handle_by_keyword, ["'handle'", "first positional"]),
        (two_handles, ["'handle' and 'other'", "one handle"]),
        (wrong_colour, ["AsyncTaskHandle", "plain `def`", "Annotate it with TaskHandle"]),
        (wrong_colour_async, ["`async def`", "Annotate it with AsyncTaskHandle"]),
        (wrong_colour_text, ["`async def`", "Annotate it with AsyncTaskHandle"]),
        (optional_handle, ["inside another type", "`handle: TaskHandle`"]),
        (optional_text, ["inside another type", "`handle: TaskHandle`"]),
        (any_number, ["*items", "by name", "items: list[int]"]),
        (items, ["yields", "Return a list"]),
        (async_items, ["yields", "Return a list"]),
        (lambda order_id: order_id, ["lambda", 'name="…"']),
        (Mailer.send, ["method of Mailer", "'self'", "module level"]),
        (Mailer.__dict__["build"], ["method", "module level"]),
        (Mailer().send, ["method", "object is not stored"]),
        ([].append, ["method", "object is not stored"]),
        (str.upper, ["method", "object is not stored"]),
        (Mailer, ["class", "Decorate a function"]),
        (Mailer(), ["a Mailer that can be called", "Write a `def`"]),
        (functools.partial(send_receipt, 1), ["a partial that can be called", "Write a `def`"]),
        (getattr, ["does not know its parameters", "Write a `def`"]),
        ("mail", ["a str", '`@app.task(name="…")`']),
    ],
)
def test_a_bad_declaration_is_refused_with_what_to_do(function: object, words: list[str]) -> None:
    with pytest.raises(InvalidTask) as caught:
        signature_of(cast("Callable[..., object]", function))
    assert [word for word in words if word not in str(caught.value)] == []
    assert isinstance(caught.value, PenstockError)


def needs_thread(lock: threading.Thread) -> None: ...
def needs_customer(customers: dict[str, list[Customer]]) -> None: ...
def needs_path(path: Path) -> None: ...
def needs_iterator(rows: Iterator[int]) -> None: ...
def ambiguous(key: bytes | str) -> None: ...
def no_type(order_id: "5") -> None: ...  # type: ignore[valid-type]
def no_python(order_id: "int or else") -> None: ...  # type: ignore[valid-type] # noqa: F722
def returns_customer() -> Customer: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (needs_thread, ["'lock'", "Thread", "pass its id"]),
        (needs_customer, ["'customers'", "Customer", "dataclasses"]),
        (needs_path, ["'path'", "str(path)"]),
        (needs_iterator, ["'rows'", "Iterator", "list"]),
        (ambiguous, ["'key'", "more than one str-like type", "Annotate one of them"]),
        (no_type, ["'order_id'", "'5' is not supported"]),
        (no_python, ["'order_id'", "is no type"]),
        (returns_customer, ["return annotation", "Customer"]),
    ],
)
def test_an_annotation_that_json_cannot_hold_is_refused_at_first_use(
    function: Callable[..., object], words: list[str]
) -> None:
    signature = signature_of(function)
    with pytest.raises(InvalidTask) as caught:
        signature.decode_arguments("{}")
    assert [word for word in words if word not in str(caught.value)] == []


def test_colour_and_handle_are_read_from_the_function() -> None:
    def plain(handle: TaskHandle, order_id: int) -> None: ...
    def text(handle: "TaskHandle") -> None: ...
    def alias(handle: "Handle") -> None: ...
    def hidden(handle: "penstock.TaskHandle") -> None: ...  # type: ignore[name-defined] # noqa: F821
    async def awaited(handle: AsyncTaskHandle) -> None: ...

    for function in (plain, text, alias, hidden):
        assert signature_of(function).takes_handle
        assert signature_of(function).colour is Colour.SYNC
    assert signature_of(awaited).colour is Colour.ASYNC
    assert signature_of(plain).bind((42,), {}) == {"order_id": 42}


def test_a_first_parameter_that_could_be_anything_is_no_handle() -> None:
    def bare(handle, order_id: int) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001
    def loose(handle: Any, order_id: int) -> None: ...  # noqa: ANN401
    def wide(handle: object, order_id: int) -> None: ...

    for function in (bare, loose, wide):
        signature = signature_of(function)
        assert not signature.takes_handle
        assert (
            signature.encode_arguments(({"a": [1]}, 2), {}) == '{"handle":{"a":[1]},"order_id":2}'
        )


def test_named_lambdas_static_methods_and_wrapped_functions_are_welcome() -> None:
    @functools.wraps(send_receipt)
    def wrapper(*args: Any, **kwargs: Any) -> str:  # noqa: ANN401
        return send_receipt(*args, **kwargs)

    assert signature_of(lambda n: n, name="same").bind((1,), {}) == {"n": 1}
    assert signature_of(Mailer.plain).bind((1,), {}) == {"order_id": 1}
    assert signature_of(Mailer.__dict__["plain"]).bind((1,), {}) == {"order_id": 1}
    assert signature_of(math.sqrt).encode_arguments((4,), {}) == '{"x":4}'
    for function in (wrapper, functools.cache(send_receipt)):
        with pytest.raises(InvalidArguments, match="order_id"):
            signature_of(function).encode_arguments(("42",), {"to": "x"})


def test_arguments_are_stored_by_name_in_the_order_of_the_parameters_without_defaults() -> None:
    signature = signature_of(send_receipt)
    expected = '{"order_id":42,"to":"x"}'
    assert signature.encode_arguments((42,), {"to": "x"}) == expected
    assert signature.encode_arguments((), {"to": "x", "order_id": 42}) == expected
    assert signature.encode_named({"to": "x", "order_id": 42}) == expected
    assert signature.decode_arguments(expected) == {"order_id": 42, "to": "x"}


def ship(order: Order, weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0) -> None: ...
def load(handle: TaskHandle, path: str, /, *, force: bool = False) -> None: ...
def tag(handle: TaskHandle, **labels: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "parameter", "words"),
    [
        (send_receipt, ("42",), {"to": "x"}, "order_id", ["order_id='42'", "fit int", "got `str`"]),
        (send_receipt, (True, "x"), {}, "order_id", ["order_id=True", "got `bool`"]),
        (send_receipt, (1.0, "x"), {}, "order_id", ["order_id=1.0", "got `float`"]),
        (send_receipt, (None, "x"), {}, "order_id", ["order_id=None", "got `null`"]),
        (send_receipt, (1,), {}, "to",
         ["'to' must be given", "It takes order_id: int, to: str, copies: int = 1."]),
        (send_receipt, (), {}, "order_id", ["'order_id' and 'to' must be given"]),
        (send_receipt, (1, "x", 1, 1), {}, None, ["4 arguments", "takes 3"]),
        (send_receipt, (1, "x"), {"to": "y"}, "to", ["'to' is given twice"]),
        (send_receipt, (1,), {"too": "y"}, "too", ["no parameter 'too'", "did you mean 'to'?"]),
        (send_receipt, (1, "a\0b"), {}, "to", ["to='a\\x00b'", "NUL", "Remove it"]),
        (send_receipt, (Customer(), "x"), {}, "order_id", ["order_id=<", "type Customer"]),
        (ship, (Order([Line("a", cast("int", "2"))]),), {}, "order",
         ["order=Order(", "got `str`", "(at order.lines[0].count)"]),
        (ship, ({"line": []},), {}, "order", ["Order", "missing required field `lines`"]),
        (ship, (Order([]), -1.0), {}, "weight", ["weight=-1.0", "> 0"]),
        (ship, (Order([]), math.nan), {}, "weight",
         ["weight=nan cannot be stored", "no number for nan"]),
        (load, (TaskHandle(), "x"), {}, None, ["2 arguments", "passes 'handle' itself"]),
        (load, (), {"path": "x"}, "path", ["'path' can be passed by position only"]),
        (load, ("x", True), {}, None, ["2 arguments", "takes 1"]),
        (load, ("x",), {"force": 1}, "force", ["force=1", "fit bool"]),
        (tag, (1,), {}, None, ["1 arguments", "takes 0", "It takes **labels: int."]),
        (tag, (), {"handle": 1}, "handle", ["'handle' is the handle"]),
        (tag, (), {"red": "1"}, "red", ["red='1'", "fit int"]),
        (tag, (), {"a b": "\0"}, None, ["cannot be stored", "NUL"]),
    ],
)  # fmt: skip
def test_a_bad_call_is_refused_with_the_parameter_and_what_fits(
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    parameter: str | None,
    words: list[str],
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        signature_of(function).encode_arguments(args, kwargs)
    message = str(caught.value)
    assert [word for word in [*words, "Nothing was written"] if word not in message] == []
    assert caught.value.parameter == parameter
    assert caught.value.task == function.__name__


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"order_id": 1}, ["'to' must be given"]),
        ({"order_id": 1, "to": "x", "cc": "y"}, ["no parameter 'cc'"]),
        ({"order_id": "1", "to": "x"}, ["order_id='1'", "fit int"]),
        ({1: 2}, ["key 1"]),
        ([1, "x"], ["[1, 'x'] is not a dict"]),
    ],
)
def test_arguments_by_name_are_checked_like_a_call(arguments: object, words: list[str]) -> None:
    with pytest.raises(InvalidArguments) as caught:
        signature_of(send_receipt).encode_named(cast("dict[str, object]", arguments))
    assert [word for word in words if word not in str(caught.value)] == []


def test_positional_only_parameters_are_stored_by_name_and_passed_by_position() -> None:
    def area(width: int = 1, height: int = 2, /, *, unit: str = "m") -> str:
        return f"{width * height} {unit}"

    signature = signature_of(area)
    stored = signature.encode_named({"height": 5, "unit": "cm"})
    args, kwargs, _ = signature.read_call(stored)
    assert (args, kwargs) == ((1, 5), {"unit": "cm"})
    assert area(*args, **kwargs) == "5 cm"  # type: ignore[arg-type]
    assert signature.read_call('{"unit":"cm"}') == ((), {"unit": "cm"}, None)


def test_any_keyword_travels_with_the_type_of_the_others() -> None:
    def label(order_id: int, **lines: Line) -> None: ...

    signature = signature_of(label)
    text = signature.encode_arguments((1,), {"b": Line("x", 1), "a": {"sku": "y", "count": 2}})
    assert text.startswith('{"order_id":1,')
    assert signature.decode_arguments(text) == {
        "order_id": 1,
        "b": Line("x", 1),
        "a": Line("y", 2),
    }


def test_a_new_parameter_with_a_default_takes_old_arguments() -> None:
    old = '{"order_id":42,"to":"x"}'
    assert signature_of(send_receipt).decode_arguments(old) == {"order_id": 42, "to": "x"}


@pytest.mark.parametrize(
    ("function", "stored", "field", "words"),
    [
        (send_receipt, '{"order_id":1}', "to", ["'to' is not among them", "default"]),
        (send_receipt, '{"order_id":1,"to":"x","cc":[2]}', "cc", ["'cc' ([2])", "Put 'cc' back"]),
        (send_receipt, '{"order_id":"abc","to":"x"}', "order_id",
         ['\'order_id\' is "abc"', "int is expected", "got `str`", "Change the signature"]),
        (ship, '{"order":{"lines":[{"sku":"a"}]}}', "order.lines[0]",
         ["missing required field `count`", "(at order.lines[0])"]),
        (tag, '{"red":"x"}', "red", ["'red' is", "int is expected"]),
        (tag, '{"handle":1}', "handle", ["no parameter has that name"]),
        (send_receipt, "[1]", "$", ["an object in JSON"]),
        (send_receipt, '{"order_id"', "$", ["an object in JSON"]),
        (send_receipt, f'{{"order_id":1,"to":[{"7," * 99}7]}}', "to", ["…"]),
    ],
)  # fmt: skip
def test_stored_arguments_that_no_longer_fit_name_the_field(
    function: Callable[..., object], stored: str, field: str, words: list[str]
) -> None:
    with pytest.raises(ArgumentsDoNotFit) as caught:
        signature_of(function).decode_arguments(stored)
    message = str(caught.value)
    assert caught.value.field == field
    assert [word for word in [*words, "rerun", function.__name__] if word not in message] == []
    assert len(message) < 400


def test_a_result_comes_back_as_the_return_annotation_says() -> None:
    def pack() -> Order: ...  # type: ignore[empty-body]
    def bare(): ...  # type: ignore[no-untyped-def] # noqa: ANN202
    def nothing() -> None: ...

    stored = signature_of(pack).encode_result(Order([Line("a", 1)]))
    assert stored == '{"lines":[{"sku":"a","count":1}]}'
    assert signature_of(pack).decode_result(stored) == Order([Line("a", 1)])
    for function in (bare, nothing):
        assert signature_of(function).decode_result(stored) == {"lines": [{"sku": "a", "count": 1}]}
    with pytest.raises(
        ResultDoesNotFit, match=r"'pack' is .*Order is expected.*at lines"
    ) as caught:
        signature_of(pack).decode_result('{"lines":1}')
    assert caught.value.field == "lines"


def test_a_result_that_cannot_be_stored_names_its_path() -> None:
    async def forgotten() -> None: ...

    signature = signature_of(send_receipt)
    with pytest.raises(InvalidResult, match=r"result of task 'send_receipt'.*at \$\.a\[1\]") as odd:
        signature.encode_result({"a": [1, Customer()]})
    assert isinstance(odd.value, InvalidPayload)
    with pytest.raises(InvalidResult, match=r"nobody awaited.*`async def`"):
        signature.encode_result(forgotten())


@pytest.mark.parametrize(
    "error",
    [
        InvalidTask("a", "b", "c"),
        InvalidArguments("a", None, "b", "c"),
        ArgumentsDoNotFit("a", "b", None, "c"),
        InvalidResult("a", "$", "b", "c"),
        ResultDoesNotFit("a", "b", "c", "d", "e"),
    ],
)
def test_errors_survive_the_way_out_of_a_child_process(error: PenstockError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
