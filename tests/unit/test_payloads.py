import json
import math
import pickle
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple, cast

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.model.payloads import (
    MAX_DEPTH,
    MAX_PAYLOAD_BYTES,
    InvalidPayload,
    check,
    decode,
    encode,
)

# What every store can hold and JSON can say without loss.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


class Colour(Enum):
    RED = "red"
    UNKNOWN = float("nan")


class Level(IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: float


@dataclass
class Line:
    sku: str
    price: float
    extra: object = None


@dataclass
class Sloppy:
    id: int

    def __eq__(self, other: object) -> bool:
        return bool(self.id == cast("Sloppy", other).id)

    __hash__ = None  # type: ignore[assignment]


class Order(msgspec.Struct, rename="camel"):
    order_id: int
    lines: list[Line] = msgspec.field(default_factory=list)
    note: str | msgspec.UnsetType = msgspec.UNSET


class Tagged(msgspec.Struct, tag="with\0nul"):
    n: int = 1


class Page(pydantic.BaseModel):
    number: int
    scale: float = 1.0
    paper_size: str = pydantic.Field(default="A4", alias="paperSize")
    anything: Any = None


class Scales(pydantic.RootModel[list[float]]):
    pass


def nested(depth: int) -> list[object]:
    value: list[object] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def refusal_of(call: Callable[[], object]) -> InvalidPayload:
    with pytest.raises(InvalidPayload) as refusal:
        call()
    return refusal.value


@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value: object) -> None:
    text = encode(value)
    # repr tells -0.0 from 0.0, 1 from 1.0 from True, and one order of keys from another.
    assert repr(decode(text)) == repr(value)
    assert check(text) == text
    assert repr(json.loads(text)) == repr(value)
    assert encode(decode(text)) == text


def test_text_is_compact_and_keeps_the_order_of_keys() -> None:
    assert encode({"to": "a@example.com", "order_id": 1}) == '{"to":"a@example.com","order_id":1}'


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, -(10**4000)])
def test_integers_of_any_size_survive_digit_by_digit(number: int) -> None:
    assert encode({"n": number}) == f'{{"n":{number}}}'
    assert decode(encode({"n": number})) == {"n": number}
    assert check(str(number)) == str(number)


@pytest.mark.parametrize("number", [0.1, 1e22, 5e-324, 1.7976931348623157e308, -0.0, 100.0])
def test_floats_survive_with_their_sign_and_stay_floats(number: float) -> None:
    assert repr(decode(encode(number))) == repr(number)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ((1, (2, None)), "[1,[2,null]]"),
        (frozenset({1}), "[1]"),
        (b"\0", '"AA=="'),
        (Colour.RED, '"red"'),
        (Level.HIGH, "3"),
        (Point(1, 2.0), "[1,2.0]"),
        (Line("a", 1.5), '{"sku":"a","price":1.5,"extra":null}'),
        (Order(1, [Line("a", 1)]), '{"orderId":1,"lines":[{"sku":"a","price":1,"extra":null}]}'),
        (datetime(2026, 11, 15, tzinfo=UTC), '"2026-11-15T00:00:00Z"'),
        (date(2026, 11, 15), '"2026-11-15"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.50"), '"1.50"'),
        ({1: "a", 2: "b"}, '{"1":"a","2":"b"}'),
        ({date(2026, 11, 15): 1}, '{"2026-11-15":1}'),
        (msgspec.Raw(b'{"a": [null]}'), '{"a": [null]}'),
        ({"null": "NaN", "u": "\\u0000"}, '{"null":"NaN","u":"\\\\u0000"}'),
        ("\x7f\u2028😀", '"\x7f\u2028😀"'),
    ],
)  # fmt: skip
def test_types_that_json_does_not_know_have_one_text(value: object, text: str) -> None:
    assert encode(value) == text
    assert check(text) == text


def test_a_pydantic_model_can_read_its_own_text() -> None:
    page = Page(number=1, paperSize="A5", anything={"when": None})
    text = encode([page])
    assert text == '[{"number":1,"scale":1.0,"paperSize":"A5","anything":{"when":null}}]'
    assert Page.model_validate(decode(encode(page))) == page
    assert encode(Scales([0.5])) == "[0.5]"


def test_equality_that_users_wrote_is_never_asked() -> None:
    assert encode({"a": Sloppy(1)}) == '{"a":{"id":1}}'


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"items": [0, 0, 0, {"name": "a\0"}]}, "$.items[3].name", "the string has a NUL"),
        ({"a": {"b\0": 1}}, '$.a["b\\u0000"]', "the key has a NUL"),
        ("\0", "$", "the string has a NUL"),
        ({"s": ["ok", "\ud800"]}, "$.s[1]", "half of a surrogate pair, '\\ud800'"),
        ({"\udc00": 1}, '$["\\udc00"]', "the key has half of a surrogate pair"),
        ({"a b": math.nan}, '$["a b"]', "JSON has no number for nan"),
        ({"x": None, "y": [None, math.inf]}, "$.y[1]", "JSON has no number for inf"),
        ((1, -math.inf), "$[1]", "JSON has no number for -inf"),
        (Order(1, [Line("a", math.nan)]), "$.lines[0].price", "JSON has no number for nan"),
        (Order(1, [Line("a", 1.0, object())]), "$.lines[0].extra", "values of type object"),
        (Order(1, note="\0"), "$.note", "the string has a NUL"),
        (Order(1, note="\ud800"), "$.note", "half of a surrogate pair"),
        (Tagged(), "$.type", "the string has a NUL"),
        ([Colour.UNKNOWN], "$[0]", "JSON has no number for nan"),
        ({"p": Page(number=1, scale=math.nan)}, "$.p.scale", "JSON has no number for nan"),
        ([Scales([1.0, math.inf])], "$[0][1]", "JSON has no number for inf"),
        ([Page(number=1, anything="\ud800")], "$[0].anything", "half of a surrogate pair"),
        ({"p": Page(number=1, anything=object())}, "$.p", "Unable to serialize unknown type"),
        ({"f": [print]}, "$.f[0]", "values of type builtin_function_or_method"),
        ({"c": 1j}, "$.c", "values of type complex"),
        ([Line], "$[0]", "values of type type"),
        ([{None: 1}], "$[0]", "a NoneType cannot be a key"),
        ({"k": {(1, 2): 3}}, "$.k", "a tuple cannot be a key"),
        ({"k": {True: 3}}, "$.k", "a bool cannot be a key"),
        ({math.nan: 1}, "$", "the key nan is not a finite number"),
        ({1: "a", "1": "b"}, '$["1"]', "two keys both become '1'"),
        ([10**5000], "$[0]", "more digits than Python reads"),
        ([msgspec.Raw(b"[1,")], "$[0]", "truncated"),
        ([msgspec.Raw(b"1],[2")], "$[0]", "trailing characters"),
        ([msgspec.Raw(b'["\\u0000"]')], "$[0][0]", "the string has a NUL"),
        ([msgspec.Raw(b'"\xff"')], "$[0]", "invalid start byte"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_path(
    value: object, path: str, reason: str
) -> None:
    refusal = refusal_of(lambda: encode(value))
    assert refusal.path == path
    assert reason in refusal.reason


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ('{"a":["\\u0000"]}', "$.a[0]", "the string has a NUL"),
        ('{"a":{"\\u0000":1}}', '$.a["\\u0000"]', "the key has a NUL"),
        ('["\\ud800"]', "$[0]", "half of a surrogate pair"),
        ('["\\udc00\\ud800"]', "$[0]", "half of a surrogate pair"),
        ('{"a":"\ud800"}', "$.a", "half of a surrogate pair"),
        ('{"a":NaN}', "$.a", "JSON has no number for nan"),
        ("-Infinity", "$", "JSON has no number for -inf"),
        ("[0,1e400]", "$[1]", "JSON has no number for inf"),
        ("1" * 400 + ".0", "$", "JSON has no number for inf"),
        ("1" * 5000, "$", "out of range"),
        ('"a\0"', "$", "malformed"),
        ("[1,]", "$", "malformed"),
        ('{"a":1} x', "$", "malformed"),
        ("", "$", "truncated"),
        ("[" * 100_000, "$", "more than 100 levels deep"),
    ],
)  # fmt: skip
def test_text_that_no_store_could_hold_is_refused_with_its_path(
    text: str, path: str, reason: str
) -> None:
    refusal = refusal_of(lambda: check(text))
    assert refusal.path == path
    assert reason in refusal.reason


@pytest.mark.parametrize(
    "text", [' {"b": 1,\n "a": 1.50} ', '"\\\\u0000"', '"\\ud83d\\ude00"', "-0", "1E2", '"[["']
)
def test_text_in_order_is_left_byte_for_byte_as_it_was(text: str) -> None:
    assert check(text) is text


def test_a_cycle_is_named_where_it_closes() -> None:
    order: dict[str, object] = {"lines": []}
    order["lines"] = [{"order": order}]
    refusal = refusal_of(lambda: encode(order))
    assert refusal.path == "$.lines[0].order"
    assert refusal.reason == "it contains itself"


def test_the_same_value_in_two_places_is_no_cycle() -> None:
    shared = (1, 2)
    assert encode({"a": shared, "b": [shared, shared]}) == '{"a":[1,2],"b":[[1,2],[1,2]]}'


@pytest.mark.parametrize("wrap", [list, tuple])
def test_depth_ends_at_the_same_level_for_values_and_for_text(wrap: Callable[[Any], Any]) -> None:
    deepest = nested(MAX_DEPTH)
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert encode(deepest) == encode(wrap(deepest)) == check(text) == text
    refusals = [
        refusal_of(lambda: encode(wrap([deepest]))),
        refusal_of(lambda: check(f"[{text}]")),
        refusal_of(lambda: encode(nested(20_000))),
    ]
    assert {refusal.reason for refusal in refusals} == {"it is more than 100 levels deep"}
    assert all(len(str(refusal)) < 200 for refusal in refusals)


def test_many_brackets_are_not_depth() -> None:
    wide = [{"a": [n]} for n in range(1_000)]
    assert decode(encode(wide)) == wide
    assert decode(encode("[" * 1_000)) == "[" * 1_000


def test_the_largest_payload_fits_and_one_byte_more_does_not() -> None:
    # Two letters of quotes, and a letter of two bytes: the limit counts bytes.
    largest = "é" + "x" * (MAX_PAYLOAD_BYTES - 4)
    text = encode(largest)
    assert len(text.encode()) == MAX_PAYLOAD_BYTES
    assert check(text) is text
    assert refusal_of(lambda: encode(largest + "x")).path == "$"
    assert refusal_of(lambda: check(text + " ")).path == "$"


def test_an_oversize_payload_names_its_heaviest_part_the_limit_and_the_way_out() -> None:
    value = {"order_id": 1, "files": [{"name": "scan", "data": "x" * MAX_PAYLOAD_BYTES}]}
    assert str(refusal_of(lambda: encode(value))) == (
        "The payload cannot be stored: it has 8,388,658 bytes and the limit is 8,388,608 "
        "(at $.files[0].data). Store the data elsewhere, a file or a table, and pass a reference "
        "to it."
    )


def test_no_part_is_blamed_for_a_payload_of_many() -> None:
    value = {"rows": ["x" * (MAX_PAYLOAD_BYTES // 4)] * 5}
    assert refusal_of(lambda: encode(value)).path == "$.rows"


def test_what_is_not_json_is_refused_when_read() -> None:
    assert "malformed" in refusal_of(lambda: decode("{'a': 1}")).reason
    assert "surrogates" in refusal_of(lambda: decode('"\ud800"')).reason
    assert isinstance(refusal_of(lambda: decode("")), PenstockError)


def test_an_attribute_that_was_never_set_is_left_out() -> None:
    @dataclass
    class Late:
        a: float
        b: int = field(init=False)

    assert encode([Late(1.0), None, (1,)]) == '[{"a":1.0},null,[1]]'
    assert refusal_of(lambda: encode([Late(1.0), Late(math.nan)])).path == "$[1].a"
    assert refusal_of(lambda: encode([Late(1.0), object()])).path == "$[1]"


def test_a_refusal_survives_the_way_between_processes() -> None:
    refusal = refusal_of(lambda: encode({"a": math.nan}))
    copy = pickle.loads(pickle.dumps(refusal))  # noqa: S301 - our own bytes
    assert copy.path == "$.a"
    assert str(copy) == str(refusal)


@given(st.text(st.characters(codec=None), max_size=6))
def test_any_string_is_stored_unchanged_or_refused(text: str) -> None:
    storable = "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)
    try:
        encoded = encode({text: [text]})
    except InvalidPayload:
        assert not storable
    else:
        assert storable
        assert decode(encoded) == {text: [text]}


@given(st.text('[]{}",:01eE+-.\\u0dAnulNaN \0', max_size=14))
def test_any_text_that_passes_the_check_can_be_read_and_encoded_again(text: str) -> None:
    try:
        check(text)
    except InvalidPayload:
        return
    assert "\0" not in text
    assert decode(encode(decode(text))) == decode(text)
