"""`make mutants`: take each protection out of a copy of the source, and see that a test dies of it.

    make mutants ARGS="fence"        only those whose name has this in it

A mutant that survives is a protection that nobody would miss. Exits with 1 if one does.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from tests.mutants.mutants import MUTANTS, Mutant
from tests.support.workers import ROOT

PASSED, FAILED = 0, 1  # pytest's exit status
LONGEST = 600.0


class DoesNotFit(Exception):
    """The text that a mutant replaces is not in its file, or is there more than once."""

    def __init__(self, mutant: Mutant, times: int) -> None:
        super().__init__(
            f"The mutant {mutant.name!r} does not fit {mutant.file}: {mutant.before!r} is there "
            f"{times} times. The protection has moved; let the mutant follow it."
        )


def mutated(mutant: Mutant, text: str) -> str:
    """Return the text of its file with the protection taken out.

    Raises:
        DoesNotFit: it is not there exactly once.
    """
    begin, end = 0, len(text)
    if mutant.statement is not None:
        statement = rf"^-- name: {mutant.statement}$.*?(?=^-- name: |\Z)"
        found = re.search(statement, text, re.MULTILINE | re.DOTALL)
        begin, end = found.span() if found else (0, 0)
    part = text[begin:end]
    if part.count(mutant.before) != 1:
        raise DoesNotFit(mutant, part.count(mutant.before))
    return text[:begin] + part.replace(mutant.before, mutant.after) + text[end:]


def run_tests(source: Path, tests: Sequence[str]) -> int:
    """Run these tests against that copy of the source; return pytest's exit status."""
    # A copy that hangs is as dead as one that fails.
    try:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", *tests],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(source)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=LONGEST,
        ).returncode
    except subprocess.TimeoutExpired:
        return FAILED


def copied(directory: str, name: str) -> Path:
    source = Path(directory) / name
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    return source


def main() -> None:
    wanted = " ".join(sys.argv[1:])
    chosen = [mutant for mutant in MUTANTS if wanted in mutant.name]
    survived: list[str] = []
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-") as directory:
        tests = sorted({test for mutant in chosen for test in mutant.killed_by})
        if run_tests(copied(directory, "whole"), tests) != PASSED:
            click.echo("The tests fail without any mutant: mend that first.")
            sys.exit(2)
        for number, mutant in enumerate(chosen):
            source = copied(directory, f"mutant-{number}")
            file = source / mutant.file
            file.write_text(mutated(mutant, file.read_text(encoding="utf-8")), encoding="utf-8")
            status = run_tests(source, mutant.killed_by)
            if status != FAILED:
                survived.append(mutant.name)
            click.echo(f"{'killed' if status == FAILED else 'SURVIVED'}  {mutant.name}")
            shutil.rmtree(source)
    click.echo(f"{len(chosen) - len(survived)} of {len(chosen)} killed")
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
