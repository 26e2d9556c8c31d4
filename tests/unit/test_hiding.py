"""What is hidden is hidden wherever it is, and nothing else changes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.hiding import hide

NAMES = ("password", "token")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(NAMES), inner),
)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ('{"user":"ann","password":"hunter2"}', '{"user":"ann","password":"***"}'),
        ('{"login":{"Password":"hunter2"}}', '{"login":{"Password":"***"}}'),
        ('[{"token":{"of":["many","parts"]}},{"n":1}]', '[{"token":"***"},{"n":1}]'),
        ('{"pass\\u0077ord":"hunter2"}', '{"password":"***"}'),
        ('{"tokens":123456789012345678901234567890.50}',) * 2,
        ('"password"',) * 2,
        ("null",) * 2,
        ("half a text",) * 2,
        ('{"password":"hunter2"', '"***"'),
        ("[" * 5000 + '{"password":"hunter2"}' + "]" * 5000, '"***"'),
    ],
    ids=[
        "top", "case", "list", "escaped", "digits", "value", "null", "torn", "torn with it", "deep",
    ],
)  # fmt: skip
def test_members_are_hidden_by_name_at_any_depth(stored: str, shown: str) -> None:
    assert hide(stored, NAMES) == shown


@given(JSON)
def test_without_such_members_nothing_changes_and_with_them_only_their_values(
    value: object,
) -> None:
    def expected(of: object) -> object:
        if isinstance(of, dict):
            return {
                name: "***" if name.casefold() in NAMES else expected(one)
                for name, one in of.items()
            }
        return [expected(one) for one in of] if isinstance(of, list) else of

    stored = json.dumps(value)
    assert json.loads(hide(stored, NAMES)) == expected(value)
    assert hide(stored, ()) == stored
