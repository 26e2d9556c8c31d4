"""The matrix and the table that documents it say the same, and name tests that exist."""

import re

import pytest

from tests.faults.matrix import ROWS, Row
from tests.faults.table import PAGE, cells, is_accounted_for
from tests.support.workers import ROOT


@pytest.mark.parametrize("row", ROWS, ids=[row.fault for row in ROWS])
def test_a_row_names_tests_that_exist(row: Row) -> None:
    assert row.tests
    for test in row.tests:
        file, _, name = test.partition("::")
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), test


def test_the_table_has_every_row_of_the_matrix_and_no_other() -> None:
    documented = cells(PAGE.read_text(encoding="utf-8"))
    assert [tuple(row[:3]) for row in documented] == [row[:3] for row in ROWS]


def test_every_row_of_the_table_holds_or_names_what_was_missing() -> None:
    for *_, result in cells(PAGE.read_text(encoding="utf-8")):
        assert is_accounted_for(result), result
