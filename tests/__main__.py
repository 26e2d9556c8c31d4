"""`make test`: first what bears it, a test on every core; then the rest, one after the other.

Tests that are marked `alone` want a machine that does little else, so they have a step of their
own. Arguments go to pytest in both steps; who names files, or asks for something that only one run
can answer (`--pdb`, `--lf`, …), gets one plain run.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from tests.support.parts import ALONE, PART, TOGETHER
from tests.support.postgres import OWN_SERVER
from tests.support.telling import TOLD_IN, Told

ROOT = Path(__file__).parents[1]
# Files stay whole, in the order that the part puts them in.
IN_FILES = ("--dist", "loadfile", "--no-loadscope-reorder")
MOST_AT_A_TIME = 8  # each has a PostgreSQL of its own

_BUNDLE = re.compile("-[vqxsl]+")
FAILED, NOTHING_FOUND = 1, 5  # as pytest exits
STOP_EARLY = ("-x", "--exitfirst", "--maxfail")
ASK_FOR_ONE_RUN = (
    *("-h", "--help", "-V", "--version", "--markers", "--fixtures", "--co", "--collect-only"),
    *("-s", "--capture", "--pdb", "--trace", "--lf", "--last-failed", "--ff", "--failed-first"),
    *("--nf", "--new-first", "--sw", "--stepwise", "--junit", "--cache-", "-n", "--numprocesses"),
)


def main(arguments: Sequence[str]) -> int:
    at_a_time = min(_cores(), MOST_AT_A_TIME)
    if at_a_time == 1 or os.environ.get(OWN_SERVER) or _wants_one_run(arguments):
        return _pytest(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="penstock-tests-") as place:
        told_in = Path(place) / "told"
        click.echo(f"Step 1 of 2: {at_a_time} tests at a time.")
        together = _pytest(
            [*arguments, "-n", str(at_a_time), *IN_FILES, *_part(TOGETHER)], told_in=told_in
        )
        ended_early = together not in {0, FAILED, NOTHING_FOUND}
        if ended_early or (together == FAILED and _names_one_of(arguments, STOP_EARLY)):
            return together
        click.echo("\nStep 2 of 2: one test at a time.")
        alone = _pytest([*arguments, *_part(ALONE)])
        _tell(json.loads(told_in.read_text()), took=time.monotonic() - began)
    return _both(together, alone)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # what this process may use: a container may have fewer
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _wants_one_run(arguments: Sequence[str]) -> bool:
    names_files = any((ROOT / one.partition("::")[0]).exists() for one in arguments if one)
    return names_files or _names_one_of(arguments, ASK_FOR_ONE_RUN)


def _names_one_of(arguments: Iterable[str], options: Sequence[str]) -> bool:
    """Whether an option is there, also in a bundle of letters (-qx) or with its value (-n4)."""
    for one in arguments:
        letters = one[1:] if _BUNDLE.fullmatch(one) else ""
        for option in options:
            if one.startswith(option) or (option[1:] in letters and option[1:]):
                return True
    return False


def _part(name: str) -> list[str]:
    return ["-p", "tests.support.parts", f"{PART}={name}"]


def _pytest(arguments: Sequence[str], *, told_in: Path | None = None) -> int:
    if told_in is not None:
        arguments = ["-p", "tests.support.telling", f"{TOLD_IN}={told_in}", *arguments]
    # Ctrl-C is for the run, which then stops what it has started; we wait for it.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    command = [sys.executable, "-m", "pytest", *arguments]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    return status if status >= 0 else 128 - status


def _both(together: int, alone: int) -> int:
    if NOTHING_FOUND in {together, alone}:
        return alone if together == NOTHING_FOUND else together
    return together or alone


def _tell(told: Told, *, took: float) -> None:
    """Say again what came of the first step, which has scrolled away."""
    click.echo(f"\nStep 1 of 2 had: {told['counted']}.")
    for line in told["lines"]:
        click.echo(line)
    click.echo(f"Both steps took {int(took // 60)} min {took % 60:.0f} s.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
