"""Mutants keep up with the source: `make mutants` kills them, these tests see that they fit."""

import pytest

from tests.mutants.__main__ import mutated
from tests.mutants.mutants import MUTANTS, Mutant
from tests.support.workers import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_fits_the_source_and_names_tests_that_exist(mutant: Mutant) -> None:
    text = (ROOT / "src" / mutant.file).read_text(encoding="utf-8")
    assert mutated(mutant, text) != text
    for test in mutant.killed_by:
        file, _, name = test.partition("::")
        there = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {name.partition('[')[0]}" in there


def test_no_mutant_comes_twice() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 14
