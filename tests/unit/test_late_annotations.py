"""Annotations that are still text at declaration, and the types that they lead to."""

from __future__ import annotations

import base64
import datetime as dt
import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NewType, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.signatures import (
    ArgumentsDoNotFit,
    Colour,
    InvalidArguments,
    InvalidTask,
    TaskSignature,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


class TaskHandle:
    pass


class AsyncTaskHandle:
    pass


HANDLES: dict[type, Colour] = {TaskHandle: Colour.SYNC, AsyncTaskHandle: Colour.ASYNC}


def signature_of(function: Callable[..., object]) -> TaskSignature:
    return TaskSignature(function, name=function.__name__, handle_types=HANDLES)


def there_and_back(function: Callable[..., object], value: object) -> object:
    signature = signature_of(function)
    arguments = signature.decode_arguments(signature.encode_arguments((value,), {}))
    return arguments["value"]


def before_its_type(handle: TaskHandle, value: Page) -> Page: ...  # type: ignore[empty-body]


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Access(enum.IntFlag):
    READ = 1
    WRITE = 2


class Address(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, populate_by_name=True)

    street: str
    since: dt.date
    post_code: str = pydantic.Field(alias="postCode", default="")


class Company(Address):
    vat: str = ""


@pydantic.dataclasses.dataclass
class Checked:
    count: int = pydantic.Field(default=1, gt=0)


@dataclass
class Page:
    number: int
    level: Level
    addresses: list[Address] = field(default_factory=list)
    parent: Page | None = None


@dataclass
class Cover(Page):
    title: str = ""


@dataclass
class Picky:
    number: int

    def __post_init__(self) -> None:
        if self.number > 9:
            raise KeyError(self.number)


class Struct(msgspec.Struct):
    at: dt.datetime
    pages: dict[int, Page]


class Options(TypedDict, total=False):
    colour: str
    size: int


class Point(NamedTuple):
    x: int
    y: float


class Hidden(msgspec.Struct):
    part: Fraction


OrderId = NewType("OrderId", int)
HOME = Address(street="Ring 1", since=dt.date(2026, 1, 2), postCode="1010")


@dataclass
class Everything:
    """A handful of types at once, to be made up by hypothesis."""

    number: int
    real: float
    text: str
    raw: bytes
    day: dt.date
    time: dt.time
    at: dt.datetime
    span: dt.timedelta
    identity: uuid.UUID
    price: Decimal
    level: Level
    maybe: int | None
    pair: tuple[int, str]
    several: set[int]
    by_day: dict[dt.date, bool]
    point: Point


def take_page(value: Page) -> None: ...
def take_optional(value: Page | None) -> None: ...
def take_struct(value: Struct) -> None: ...
def take_options(value: Options) -> None: ...
def take_point(value: Point) -> None: ...
def take_level(value: Level) -> None: ...
def take_access(value: Access) -> None: ...
def take_model(value: Address) -> None: ...
def take_models(value: dict[str, list[Address | None]]) -> None: ...
def take_everything(value: Everything) -> None: ...
def take_objects(value: dict[str, object]) -> None: ...
def take_sequence(value: Sequence[Mapping[str, int]]) -> None: ...
def take_frozen(value: frozenset[uuid.UUID]) -> None: ...
def take_literal(value: Literal["a", 1]) -> None: ...
def take_id(value: OrderId) -> None: ...
def take_bytes(value: bytes) -> None: ...
def take_picky(value: Picky) -> None: ...
def take_any(value: Any) -> None: ...  # noqa: ANN401


PAGE = Page(1, Level.HIGH, [HOME], Page(2, Level.LOW))


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (before_its_type, PAGE),
        (take_page, PAGE),
        (take_optional, None),
        (take_optional, PAGE),
        (take_struct, Struct(dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC), {7: PAGE})),
        (take_options, {"size": 3}),
        (take_point, Point(1, 2.5)),
        (take_level, Level.LOW),
        (take_access, Access.READ | Access.WRITE),
        (take_model, HOME),
        (take_models, {"a": [HOME, None]}),
        (take_objects, {"a": [1, {"b": None}]}),
        (take_sequence, [{"a": 1}]),
        (take_frozen, frozenset({uuid.UUID(int=1)})),
        (take_literal, "a"),
        (take_id, OrderId(3)),
        (take_bytes, b"\x00\xff"),
        (take_any, {"a": [1.5, 2**70]}),
    ],
)
def test_a_value_arrives_as_annotated(function: Callable[..., object], value: object) -> None:
    arrived = there_and_back(function, value)
    assert (type(arrived), arrived) == (type(value), value)


FINITE = st.floats(allow_nan=False, allow_infinity=False)
EVERYTHING = st.builds(
    Everything,
    real=FINITE,
    text=TEXTS,
    at=st.datetimes(timezones=st.none() | st.just(dt.UTC)),
    price=st.decimals(allow_nan=False, allow_infinity=False),
    pair=st.tuples(st.integers(), TEXTS),
    point=st.builds(Point, y=FINITE),
)


@given(EVERYTHING)
def test_typed_values_survive_the_round_trip(value: Everything) -> None:
    assert there_and_back(take_everything, value) == value


@pytest.mark.parametrize(
    ("function", "given_value", "arrives"),
    [
        (take_page, {"number": 1, "level": "high"}, Page(1, Level.HIGH)),
        (take_page, Cover(1, Level.HIGH, title="T"), Page(1, Level.HIGH)),
        (take_level, "low", Level.LOW),
        (take_point, [1, 2], Point(1, 2.0)),
        (take_model, {"street": "Ring 1", "since": "2026-01-02", "postCode": "1010"}, HOME),
        (take_model, Company(**HOME.model_dump(by_alias=True), vat="x"), HOME),
        (take_bytes, base64.b64encode(b"abc").decode(), b"abc"),
        (take_sequence, ({"a": 1},), [{"a": 1}]),
    ],
)
def test_what_encodes_to_the_annotated_type_is_taken(
    function: Callable[..., object], given_value: object, arrives: object
) -> None:
    assert there_and_back(function, given_value) == arrives


@pytest.mark.parametrize(
    ("function", "value", "words"),
    [
        (take_level, "medium", ["value='medium'", "Level", "enum value"]),
        (take_model, {"street": "Ring 1"}, ["Address", "required", "(at value.since)"]),
        (take_models, {"a": [{"street": 1, "since": "2026-01-02"}]}, ["valid string", "street"]),
        (take_page, {"number": 1}, ["missing required field `level`"]),
        (take_point, [1], ["Point", "length"]),
        (take_bytes, "no base64!", ["base64"]),
        (take_literal, "b", ["value='b'"]),
        (take_picky, Picky.__new__(Picky), ["missing required field `number`"]),
        (take_picky, {"number": 10}, ["KeyError", "10"]),
    ],
)
def test_a_value_of_another_shape_is_refused_with_its_path(
    function: Callable[..., object], value: object, words: list[str]
) -> None:
    with pytest.raises(InvalidArguments) as caught:
        signature_of(function).encode_arguments((value,), {})
    assert caught.value.parameter == "value"
    assert [word for word in words if word not in str(caught.value)] == []


def test_a_stored_model_that_no_longer_fits_names_the_field_inside_it() -> None:
    stored = '{"value":{"a":[null,{"street":"x","since":"soon"}]}}'
    with pytest.raises(ArgumentsDoNotFit) as caught:
        signature_of(take_models).decode_arguments(stored)
    assert caught.value.field == "value[...][1].since"


def test_a_name_hidden_from_the_running_program_is_refused_with_the_way_out() -> None:
    def halve(number: int, part: list[Fraction]) -> None: ...
    def nested(hidden: Hidden) -> None: ...
    def result() -> Fraction: ...  # type: ignore[empty-body]
    def dotted(at: dt.no_such_type) -> None: ...  # type: ignore[name-defined]

    for function, words in (
        (halve, ["'part'", "'Fraction'", "at module level, not under TYPE_CHECKING"]),
        (nested, ["'hidden'", "'Fraction'", "inside Hidden", "not under TYPE_CHECKING"]),
        (result, ["return annotation", "'Fraction'", "not under TYPE_CHECKING"]),
        (dotted, ["'at'", "'no_such_type'"]),
    ):
        signature = signature_of(function)
        with pytest.raises(InvalidTask) as caught:
            signature.encode_arguments(tuple("1" for _ in signature._positional), {})
        assert [word for word in words if word not in str(caught.value)] == []


def test_a_class_that_is_local_to_a_function_is_found_where_the_task_uses_it() -> None:
    def task(value: Local) -> Local:
        return Local(value.number + 1)

    signature = signature_of(task)

    @dataclass
    class Local:
        number: int

    text = signature.encode_arguments((Local(1),), {})
    assert signature.decode_arguments(text) == {"value": Local(1)}
    assert signature.decode_result('{"number":2}') == Local(2)


def test_an_annotation_that_fails_is_looked_up_again_at_the_next_use() -> None:
    def task(value: DefinedLater) -> None: ...  # type: ignore[name-defined] # noqa: F821

    signature = signature_of(task)
    with pytest.raises(InvalidTask, match="DefinedLater"):
        signature.encode_arguments((1,), {})
    task.__globals__["DefinedLater"] = int
    try:
        assert signature.encode_arguments((1,), {}) == '{"value":1}'
    finally:
        del task.__globals__["DefinedLater"]


def test_a_handle_in_text_annotations_is_known_at_declaration() -> None:
    async def wrong(handle: TaskHandle) -> None: ...
    def second(value: int, handle: TaskHandle) -> None: ...

    assert signature_of(before_its_type).takes_handle
    with pytest.raises(InvalidTask, match="AsyncTaskHandle"):
        signature_of(wrong)
    with pytest.raises(InvalidTask, match="not the first"):
        signature_of(second)


def test_a_pydantic_dataclass_is_refused_rather_than_read_without_validation() -> None:
    def task(value: list[Checked]) -> None: ...

    with pytest.raises(InvalidTask, match=r"pydantic dataclass.*BaseModel"):
        signature_of(task).decode_arguments("{}")


def test_parameters_may_have_any_name_that_python_allows() -> None:
    def task(self: int, p0: int, größe: int, __struct_fields__: int) -> None: ...  # noqa: PLC2401

    signature = signature_of(task)
    text = signature.encode_arguments((1, 2, 3, 4), {})
    arrived = signature.decode_arguments(text)
    assert arrived == {"self": 1, "p0": 2, "größe": 3, "__struct_fields__": 4}
